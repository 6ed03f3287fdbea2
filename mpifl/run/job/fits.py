"""Which keys go with which ways of training, for all tables of a job but `[local]` (see `local_fits.py`).

Each pair of key and way stands once, in the column of the way. A cell with = decides nothing. Either such a
key is a way itself, and its own column decides, or the algorithm and the task decide in `job_checks.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from mpifl.silo.steps import LOCAL, Fits

if TYPE_CHECKING:
    from mpifl.run.job.outline import Outline

_JOB = """
key                                                           usual rule                  private              silo            sum sums  masks            split                      compile             batch_silos         clock    asynchronous late
name,shards,seed,rounds,device,threads,model                  +     +                     +                    +               +   +     +                +                          +                   +                   +        +            +
data,local,cohort,aggregation,compression                     +     +                     +                    +               +   +     +                +                          +                   +                   +        +            +
attack,evaluate,checkpoint,tracking                           +     +                     +                    +               +   +     +                +                          +                   +                   +        +            +
kernels                                                       +     +                     +                    +               +   +     +                +                          -                   +                   +        +            +
model.name,weights,strict,save                                +     +                     +                    +               +   +     +                +                          +                   +                   +        +            +
model.buffers                                                 +     reset                 reset                reset           +   reset +                -                          +                   +                   +        reset        reset
data.augment                                                  +     +                     -                    +               +   +     +                -                          flip|crop|flip-crop flip|crop|flip-crop +        +            +
data.rotation,zoom,shift,brightness,contrast                  +     +                     -                    +               +   +     +                -                          +                   +                   +        +            +
task                                                          +     +                     =                    +               +   +     +                =                          +                   +                   +        +            +
algorithm                                                     +     =                     =                    =               =   +     =                =                          +                   +                   +        +            =
split                                                         +     =                     =                    =               =   =     =                +                          =                   =                   -        =            -
split.cut_width,merge,top,protect,epsilon,bottoms             +     =                     =                    =               =   =     =                +                          =                   =                   =        =            =
clock                                                         +     =                     =                    =               =   =     =                =                          =                   =                   +        +            -
clock.speeds,slowest,fastest,jitter,seed                      +     =                     =                    =               =   =     =                =                          =                   =                   +        +            =
clock.deadline                                                +     +                     -                    -               -   -     -                =                          +                   +                   +        -            =
server_optimizer                                              +     +                     +                    +               +   +     +                =                          +                   +                   +        +            +
cohort.fraction                                               +     +                     +                    +               -   +     +                -                          +                   +                   +        -            +
cohort.quorum                                                 +     +                     +                    +               +   +     +                -                          +                   +                   +        +            +
cohort.deadline                                               +     +                     +                    +               +   +     +                -                          +                   +                   -        =            +
cohort.weights                                                +     uniform               +                    uniform         -   +     +                -                          +                   +                   +        +            +
cohort.select                                                 +     uniform|poisson|own   uniform|examples|own uniform|poisson +   +     uniform|examples -                          +                   +                   +        -            +
cohort.candidates                                             +     -                     -                    -               +   +     -                -                          +                   +                   +        -            +
cohort.late,late_a,late_rounds                                +     =                     =                    =               =   =     =                =                          +                   +                   =        =            +
aggregation.rule                                              +     +                     +                    -               +   -     +                -                          +                   +                   +        -            mean
aggregation.byzantine,pre,s,m,tau,nu,iterations,disk_buffer   +     +                     +                    -               +   -     +                -                          +                   +                   +        +            +
aggregation.clip                                              +     +                     +                    -               -   +     +                -                          +                   +                   +        -            +
compression.upload                                            +     none|float16|bfloat16 +                    -               +   -     +                none|float16|bfloat16|qsgd +                   +                   +        +            none
compression.download,bits,norm                                +     +                     +                    +               +   +     +                +                          +                   +                   +        +            +
compression.error_feedback                                    +     +                     +                    -               +   -     +                False                      +                   +                   +        +            +
compression.bucket                                            +     +                     +                    +               +   +     +                512                        +                   +                   +        +            +
compression.share                                             +     -                     +                    -               +   -     +                -                          +                   +                   +        +            +
attack.kind                                                   +     +                     -                    -               +   -     +                -                          +                   +                   +        -            +
attack.silos,std,factor,z,epsilon,direction                   +     +                     -                    -               +   -     +                -                          +                   +                   +        +            +
attack.mimicked,target,patch,value,share,keep_optimizer_state +     +                     -                    -               +   -     +                -                          +                   +                   +        +            +
privacy                                                       +     =                     +                    +               +   +     +                -                          +                   +                   +        -            -
privacy.level                                                 +     +                     +                    +               +   +     +                -                          +                   +                   example  +            +
privacy.noise_at,clip,quantile,clip_start,noise,noise_of      +     +                     +                    +               +   +     +                -                          +                   +                   +        +            +
privacy.epsilon,delta,accountant,evaluate_unprotected         +     +                     +                    +               +   +     +                -                          +                   +                   +        +            +
security                                                      +     =                     +                    +               +   +     +                -                          +                   +                   +        -            -
security.masks,range,least,colluding                          +     +                     +                    +               +   +     +                -                          +                   +                   +        +            +
evaluate.every,batch_size,target,target_accuracy              +     +                     +                    +               +   +     +                +                          +                   +                   +        +            +
evaluate.stop_at_target,split,patience                        +     +                     +                    +               +   +     +                +                          +                   +                   +        +            +
evaluate.where                                                +     +                     +                    +               +   +     +                -                          +                   +                   +        +            +
evaluate.behind                                               +     +                     -                    -               -   +     +                -                          +                   +                   +        +            +
evaluate.keep_best                                            +     +                     +                    +               +   +     +                False                      +                   +                   +        +            +
evaluate.silos                                                +     +                     +                    +               +   +     +                .                          +                   +                   +        +            +
checkpoint.every,keep,background                              +     +                     +                    +               +   +     +                +                          +                   +                   +        +            +
checkpoint.mirror                                             +     +                     +                    +               +   +     -                -                          +                   +                   +        +            +
tracking.console,jsonl,tensorboard,mlflow,wandb,observers     +     +                     +                    +               +   +     +                +                          +                   +                   +        +            +
tracking.step_losses                                          +     +                     -                    -               -   -     -                -                          +                   -                   +        -            +
"""  # noqa: E501

_WHY = """
compile     kernels                    kernels = 'avx2': does not hold what [local] compile = true compiles; leave one out
compile     data.augment               [data] augment = '{value}': a function of your own may change shapes, for which [local] {way} = true has no step; leave one of them out
batch_silos data.augment               [data] augment = '{value}': a function of your own may change shapes, for which [local] {way} = true has no step; leave one of them out
rule        cohort.weights             [cohort] weights = '{value}': by [aggregation] rule = '{job.aggregation.rule}' silos count alike, since a silo could claim any number of examples; use 'uniform', or leave it out
rule        cohort.select              [cohort] select = '{value}': by [aggregation] rule = '{job.aggregation.rule}' silos are drawn by the {by} that they claim, so that liars would be most of a round; use 'uniform'
rule        compression.upload         [compression] upload = '{value}': [aggregation] rule = '{job.aggregation.rule}' compares single elements, which it draws or leaves out; use 'bfloat16', 'float16' or 'none'
rule        model.buffers              [model] buffers: {value}: a single silo decides it, and [aggregation] rule = '{job.aggregation.rule}' is against that; use 'reset', or rule = 'mean'
sum         aggregation.clip           [privacy] noise_at = 'sum': [aggregation] clip = {value:g} says of each silo whether its gradient is longer, which no noise hides; leave it out
sum         cohort.fraction,weights    [privacy] noise_at = 'sum': examples of all silos have one chance to be drawn, and count alike; leave [cohort] fraction and weights out
private     local.deadline             [local] deadline = {value:g}: a silo asked again would answer otherwise, and the difference is protected by nothing; leave it out under [privacy]
sum         local.batch_growth         [local] batch_growth = {value:g}: [privacy] plans its noise for batches of one size; leave it out
private     local.epochs_decay         [local] epochs_decay = {value:g}: [privacy] plans its noise for rounds of equal steps; leave it out
private     local.batch_growth         [local] batch_growth = {value:g}: [privacy] plans its noise for batches of one size; leave it out
private     local.precision            [local] precision = '{value}': [privacy] bounds norms in float32; use 'fp32'
private     local.accumulate_batches   [local] accumulate_batches = {value}: a step of [privacy] has one batch, of any size; use a larger batch_size
private     local.batch_silos          [local] batch_silos = true: each silo of [privacy] draws and clips by itself; leave it out
private     local.compile              [local] compile = true: a step of [privacy] is not compiled; leave it out
private     cohort.select              [cohort] select = '{value}': goes by losses, which [privacy] withholds; use another
private     data.augment               [data] augment = '{value}': [privacy] takes examples as they are; leave one of them out
private     data.rotation,zoom,shift,brightness,contrast {key} = {value}: [privacy] takes examples as they are; leave one of them out
private     tracking.step_losses       [tracking] step_losses = {value}: losses of examples are protected by nothing; leave it out under [privacy]
silo        tracking.step_losses       [tracking] step_losses = {value}: losses of single silos are protected by nothing; leave it out under [privacy]
sum         tracking.step_losses       [tracking] step_losses = {value}: losses of examples are protected by nothing; leave it out under [privacy]
sums        tracking.step_losses       [tracking] step_losses = {value}: are of single silos, and masks hide them; leave it out under [security]
masks       tracking.step_losses       [tracking] step_losses = {value}: are of single silos, and masks hide them; leave it out under [security]
split       tracking.step_losses       [tracking] step_losses = {value}: each batch is a step of all parties; leave it out
batch_silos tracking.step_losses       [tracking] step_losses = {value}: [local] batch_silos = true takes steps of several silos at once; leave one of them out
asynchronous tracking.step_losses      [tracking] step_losses = {value}: by [clock] silos hand over in one round what they trained in another; leave one of them out
private     attack.kind                [attack] kind = '{value}': who lies spends no budget; leave one of them out
private     model.buffers              [model] buffers: {value}: what buffers learn of examples is protected by nothing; use 'reset'
silo        cohort.weights             [cohort] weights = '{value}': one silo's update would weigh more than the noise hides; [privacy] level = 'silo' takes 'uniform'
silo        cohort.select              [cohort] select = '{value}': silos would be drawn by what they hold, or by code that no promise covers; use 'uniform' or 'poisson'
silo        aggregation.rule           [aggregation] rule = '{value}': [privacy] level = 'silo' adds its noise to a mean; use 'mean'
silo        aggregation.clip           [aggregation] clip = {value:g}: [privacy] clip bounds updates; leave this one out
silo        compression.upload         [compression] upload = '{value}': a codec would change updates after they are clipped; use 'none' with [privacy] level = 'silo'
silo        attack.kind                [attack] kind = '{value}': what liars send is no part of a promise; leave one of them out
silo        model.buffers              [model] buffers: {value}: what buffers learn of examples is protected by nothing; use 'reset'
sums        aggregation.rule           [aggregation] rule = '{value}': a rule that compares silos must see them, and masks hide them; use 'mean', or leave [security] out
sums        compression.upload         [compression] upload = '{value}': masked vectors do not shrink; use 'none', or leave [security] out
sums        attack.kind                [attack] kind = '{value}': who lies is to be seen, and masks hide it; leave one of them out
sums        model.buffers              [model] buffers: {value}: the server looks at each silo's, and masks hide them; use 'reset'
masks       cohort.select              [cohort] select = '{value}': each site draws a round's silos itself, by the job's seed, and knows no losses of others; use 'uniform' or 'examples'
masks       local.deadline             [local] deadline = {value:g}: a silo asked again would answer otherwise, and the difference of two sums would show it; leave it out under [security]
masks       checkpoint.mirror          [checkpoint] mirror = true: another site's rank would become the server; leave it out under [security]
asynchronous cohort.fraction           [cohort] fraction = {value:g}: the clock says who takes part; leave it out, and take [algorithm] concurrency
asynchronous cohort.select,candidates  [cohort] select = '{job.cohort.select}': the clock says who takes part; leave it out
clock       cohort.deadline            [cohort] deadline = {value:g}: is of real seconds, and by [clock] those of the job count; leave it out
clock       local.deadline             [local] deadline = {value:g}: [clock] has a time of its own for each step; leave it out
clock       privacy.level              [privacy] level = '{value}': who is drawn stays secret, and [clock] would tell by the slowest of them; leave one of them out
asynchronous clock.deadline            [clock] deadline = {value:g}: asynchronous rounds wait for nobody; leave it out
private     clock.deadline             [clock] deadline = {value:g}: nobody has counted a budget with silos left out by their sizes; leave it out under [privacy]
silo        clock.deadline             [clock] deadline = {value:g}: nobody has counted a budget with silos left out by their sizes; leave it out under [privacy]
sum         clock.deadline             [clock] deadline = {value:g}: nobody has counted a budget with silos left out by their sizes; leave it out under [privacy]
sums        clock.deadline             [clock] deadline = {value:g}: masks are among all silos that the round draws; leave one of them out
masks       clock.deadline             [clock] deadline = {value:g}: masks are among all silos that the round draws; leave one of them out
asynchronous aggregation.rule          [aggregation] rule = '{value}': by [clock] silos hand over updates of models of unequal age, which a rule would compare; use 'mean'
asynchronous aggregation.clip          [aggregation] clip = {value:g}: by [clock] a silo may hand over several updates at a time; leave it out
asynchronous attack.kind               [attack] kind = '{value}': lies in the round in which a silo begins, and it hands over in another; leave one of them out
asynchronous privacy                   [privacy]: counts a round's answers, and by [clock] silos hand over in one round what they trained in another; leave one of them out
asynchronous security                  [security]: by [clock] few silos hand over at a time, and a sum over few hides little; leave one of them out
asynchronous model.buffers             [model] buffers: {value}: by [clock] an update is handed over later than buffers are learned; use 'reset'
clock       split                      [split]: all parties speak at once, and by [clock] each has a time of its own; leave one of them out
split       aggregation.rule,clip      [aggregation]: lines are not averaged; leave it out
split       compression.upload         [compression] upload = '{value}': top and bottoms need all of a line; use 'qsgd' or 'bfloat16'
split       compression.error_feedback [compression] error_feedback = true: each line is of other rows than the last; leave it out
split       compression.bucket         [compression] bucket = {value}: each row is a bucket; leave it out
split       attack.kind                [attack] kind = '{value}': is of updates, and these silos send lines; leave it out
split       privacy                    [privacy]: clips and noises updates, and these silos send lines; leave it out
split       security                   [security]: sums updates, and these silos send lines; leave it out
split       data.augment               [data] augment = '{value}': silos would change their columns apart; leave it out
split       data.rotation,zoom,shift,brightness,contrast {key} = {value}: silos would change their columns apart; leave it out
split       evaluate.where             [evaluate] where = '{value}': no worker has the whole network; leave it out
split       evaluate.behind            [evaluate] behind = true: scoring needs all parties, which train; leave it out
private     evaluate.behind            [evaluate] behind = true: a spent budget may end the run after any round, which is then scored at once; leave it out under [privacy]
silo        evaluate.behind            [evaluate] behind = true: a spent budget may end the run after any round, which is then scored at once; leave it out under [privacy]
sum         evaluate.behind            [evaluate] behind = true: a spent budget may end the run after any round, which is then scored at once; leave it out under [privacy]
split       evaluate.keep_best         [evaluate] keep_best = true: bottoms stay at their silos as they are at the end; leave it out
split       checkpoint.mirror          [checkpoint] mirror = true: another rank would learn the labels; leave it out
split       cohort.fraction            [cohort] fraction = {value:g}: every silo holds columns of every row, so that all take part; leave it out
split       cohort.quorum              [cohort] quorum = {value:g}: every silo holds columns of every row, so that all must answer; leave it out
split       cohort.deadline            [cohort] deadline = {value:g}: every silo holds columns of every row, so that nobody is left out; leave it out
split       cohort.select              [cohort] select = '{value}': every silo holds columns of every row, so that none is drawn; leave it out
split       cohort.weights             [cohort] weights = '{value}': every silo holds columns of every row, and none weighs more; leave it out
split       local.epochs_by_silo       [local] epochs_by_silo: every silo holds columns of every row, and all train on the same batches; use epochs or steps
split       local.straggler_chance     [local] straggler_chance = {value:g}: every silo holds columns of every row, and all train on the same batches; leave it out
split       local.deadline             [local] deadline = {value:g}: every silo holds columns of every row, and all train on the same batches; leave it out
split       local.accumulate_batches   [local] accumulate_batches = {value}: each batch is a step; leave it out
split       local.compile              [local] compile = true: a step is shared with the holder of labels; leave it out
split       local.batch_silos          [local] batch_silos = true: silos have columns, and halves of their own; leave it out
split       local.precision            [local] precision = '{value}': lines are float32; use 'fp32'
split       model.buffers              [model] buffers: each party keeps all buffers of its part of a split network; leave it out
late        model.buffers              [model] buffers: {value}: each silo's own value is of one round; use 'reset', or leave [cohort] late out
late        aggregation.rule           [aggregation] rule = '{value}': compares updates of one model, and a late sum is of an older one; use 'mean', or leave [cohort] late out
late        compression.upload         [compression] upload = '{value}': each silo's payload is of one round, and a late sum is of an older one; use 'none', or leave [cohort] late out
late        privacy                    [privacy]: counts a round's answers, and a late sum counts in another round; leave it or [cohort] late out
late        security                   [security]: masks of a round cancel in that round alone; leave it or [cohort] late out
late        split                      [split]: all parties speak at once, so that none is late; leave [cohort] late out
late        clock                      [clock]: says itself who is late, and what becomes of it; leave it or [cohort] late out
late        local.keep_optimizer_state [local] keep_optimizer_state = true: what a silo keeps counts with its own round alone; leave it or [cohort] late out
"""  # noqa: E501
FITS = Fits(_JOB, _WHY)
"""The fits of all keys, `table.key`; the cells of `[local]` are copied from its own table."""
for _way, _cells in FITS.cells.items():
    _cells |= {f"local.{key}": cell for key, cell in LOCAL.cells.get(_way, {}).items()}

IN_EFFECT: dict[str, Callable[[Outline], bool]] = {
    "usual": lambda job: True,
    "clock": lambda job: job.clock is not None,
    "rule": lambda job: not job.aggregation.is_mean,
    "compile": lambda job: job.local.compile,
    "batch_silos": lambda job: job.local.batch_silos,
    "sum": lambda job: job.privacy is not None and job.privacy.level == "example" and job.privacy.in_sum,
    "private": lambda job: job.privacy is not None and job.privacy.level == "example",
    "silo": lambda job: job.privacy is not None and job.privacy.level == "silo",
    "sums": lambda job: job.security is not None,
    "masks": lambda job: job.security is not None and job.security.masks,
    "split": lambda job: job.split is not None,
    "late": lambda job: job.cohort.late != "never",
}
"""Whether a job asks for a way; ways are checked in this order, after an algorithm's own `ways`."""


def why_not(way: str, job: Outline, fits: Fits = FITS) -> str:
    """Return which key of a job a way refuses, with advice; "" if none, or if the job does not ask for it.

    Args:
        fits: The table that has the way as a column.
    """
    return next(whys_not(way, job, fits), "")


def whys_not(way: str, job: Outline, fits: Fits = FITS) -> Iterator[str]:
    """Yield each refusal of a key as `why_not` does, each text once."""
    if way in IN_EFFECT and not IN_EFFECT[way](job):
        return
    tables: dict[str, Any] = {f"{name}.": table for name, table in job if isinstance(table, BaseModel)}
    if way not in LOCAL.cells:
        del tables["local."]
    refused = {
        key: value
        for prefix, table in {"": job, **tables}.items()
        for outcome, key, value in fits.unlike(way, table, prefix)
        if outcome == "-"
    }
    by = "losses" if job.cohort.select == "power-of-choice" else "examples"
    first = fits.first(way, refused, job=job, by=by)
    each = (fits.first(way, {key: value}, job=job, by=by) for key, value in refused.items())
    yield from dict.fromkeys(filter(None, (first, *each)))
