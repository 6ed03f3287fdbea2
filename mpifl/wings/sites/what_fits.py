"""Which keys of a job may go over sites, and which go nowhere else. A key that is not listed is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mpifl.common import InputError
from mpifl.exchange.worker_side import WorkerContext
from mpifl.run.job import Job, why_not
from mpifl.silo.steps import Fits
from mpifl.training import Wing
from mpifl.wire import Transport

_KEYS = """
key                                                           sites
name,shards,seed,rounds,device,threads,kernels                +
model,data,task,algorithm,local,server_optimizer              +
cohort,aggregation,compression,attack,evaluate                +
checkpoint,tracking                                           +
model.name,strict,save,buffers                                +
data.augment,rotation,zoom,shift,brightness,contrast          +
cohort.fraction,quorum,deadline,weights,candidates            +
cohort.late,late_a,late_rounds                                +
cohort.select                                                 uniform|examples|power-of-choice|own
aggregation.rule                                              +
aggregation.clip                                              +
aggregation.byzantine,pre,s,m,tau,nu,iterations,disk_buffer   +
compression.upload                                            +
compression.download,bits,norm,error_feedback,bucket,share    +
attack.kind                                                   none
attack.silos,std,factor,z,epsilon,direction                   +
attack.mimicked,target,patch,value,share,keep_optimizer_state +
evaluate.every,batch_size,target,target_accuracy              +
evaluate.stop_at_target,split,patience,keep_best,silos        +
evaluate.where                                                server
evaluate.behind                                               -
checkpoint.every,keep,background                              +
checkpoint.mirror                                             False
tracking.console,jsonl,tensorboard,mlflow,wandb,observers     +
tracking.step_losses                                          -
security                                                      +
security.range,least,colluding                                +
security.masks                                                True
privacy                                                       +
privacy.level,noise_at,clip,quantile,clip_start               +
privacy.noise,noise_of,epsilon,delta,accountant               +
privacy.evaluate_unprotected                                  +
"""
_WHY = """
sites security.masks        [security] masks = false: sites send exact sums without it; leave [security] out, or have masks
sites split                 [split]: each batch would be two letters; start all ranks by one mpirun
sites clock                 [clock]: silos would hand over what they trained in earlier rounds, which does not go over sites yet; leave it out
sites attack.kind           [attack] kind = '{value}': who lies is no key of others' jobs; leave it out
sites cohort.select         [cohort] select = '{value}': letters show who was drawn; use 'uniform'
sites evaluate.where        [evaluate] where = '{value}': the test set would leave the coordinator; use 'server'
sites evaluate.behind       [evaluate] behind = true: was not tried over sites, where rounds wait for letters; leave it out
sites checkpoint.mirror     [checkpoint] mirror = true: no rank of a site takes the coordinator's place; leave it out
sites model.weights         [model] weights = '{value}': a path of one machine says nothing at another; leave it out
sites tracking.step_losses  [tracking] step_losses = {value}: sites tell nothing of single silos' steps; leave it out
"""  # noqa: E501
SITES = Fits(_KEYS, _WHY)
"""The fits of jobs over sites."""


def refuse_unfit(job: Job) -> None:
    """Refuse a job that does not go over sites.

    Raises:
        InputError: a key of it does not; the line names it.
    """
    if why := why_not("sites", job, SITES):
        raise InputError(why)


class InOneWorld(Wing):
    """Refuses to train a job that is for sites alone. Over sites the wing of the run takes its place."""

    name = "sites"

    def context(
        self, context: WorkerContext, placed: Mapping[int, Sequence[int]], transport: Transport, told: str
    ) -> WorkerContext:
        """Refuse to train.

        Raises:
            InputError: always.
        """
        what = "only a site may answer after its round, and these silos are not at sites"
        to_do = "begin a run over sites by `mpifl sites init`, or leave it out"
        raise InputError(f"[cohort] late = '{self._job.cohort.late}': {what}; {to_do}")


def wing(job: Job) -> Wing:
    """Return the wing of a training whose silos are not at sites."""
    return InOneWorld(job)
