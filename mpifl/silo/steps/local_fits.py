"""Tables of fits: for each way of training, the keys that it honours. A key that is not listed is refused.

A table is a text with a row for each key and a column for each way. Keys of one table with the same cells may
share a row, as `table.one,other`. A cell is one of these:

- `+` The key is honoured.
- `a|b` It is honoured with these values only. If the value is a table, all its values must be among them.
- `-` It is refused, unless it is left out.
- `.` and `.a|b` It has no effect there, and a line says so. Values that are not listed after the dot are
  refused.
- `~` and `~a|b` Another step takes its place, unless the value is listed after the tilde.
- `=` It is decided elsewhere: in the column of the key itself, which is also a way, or in code.

A key without a row and a row without a cell are refused. A table decides nothing about a way that is not one
of its columns. A second text holds the refusals: the way, the key, and the line. If a way refuses several
keys, the first of these lines is shown.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

# `plain` is the step lr * gradient. The program chooses it by itself and does not report it.
_LOCAL = """
key                  usual plain compile batch_silos private sum   masks split fedsgd fsvrg qffl scaffold fednova ditto fedsam fedrep paired clock asynchronous  newton late
optimizer            +     ~     +       +           +       -     +     +     -      -     -    -        -       +     +      +      -      +     +           -        +
lr                   +     +     +       +           +       +     +     +     +      +     +    +        +       +     +      +      +      +     +           -        +
lr_decay             +     +     +       +           +       +     +     +     +      +     +    +        +       +     +      +      +      +     +           -        +
momentum             +     ~     +       +           +       -     +     +     -      -     -    +        +       +     +      +      -      +     +           -        +
nesterov             +     ~     +       +           +       -     +     +     -      -     -    -        -       +     +      +      -      +     +           -        +
beta1                +     ~     +       +           +       -     +     +     -      -     -    -        -       +     +      +      -      +     +           -        +
beta2                +     ~     +       +           +       -     +     +     -      -     -    -        -       +     +      +      -      +     +           -        +
epsilon              +     ~     +       +           +       -     +     +     -      -     -    -        -       +     +      +      -      +     +           -        +
weight_decay         +     ~     +       +           +       -     +     +     -      -     -    +        +       +     +      -      -      +     +           -        +
clip_norm            +     ~     ~       +           +       -     +     +     -      -     -    -        -       +     +      +      -      +     +           -        +
schedule             +     ~     ~       +           +       -     +     +     -      -     -    -        -       +     +      +      -      +     +           -        +
warmup               +     ~     ~       +           +       -     +     +     -      -     -    -        -       +     +      +      -      +     +           -        +
schedule_rounds      +     +     +       +           +       .     +     +     .      +     +    +        +       +     +      +      +      +     +           -        +
keep_optimizer_state +     +     ~       +           +       -     +     .     -      -     -    -        -       -     +      -      -      +     -           -        -
epochs               +     +     +       +           +       .     +     +     .      +     +    +        +       +     +      +      +      +     +           -        +
epochs_decay         +     +     +       +           -       .     +     +     .      +     +    +        +       +     +      +      +      +     +           -        +
steps                +     +     +       +           +       .     +     +     .      +     +    +        +       +     +      +      +      +     +           -        +
batch_size           +     +     ~number number      +       +     +     +     .      +     +    +        +       +     +      +      +      +     +           -        +
batch_growth         +     +     ~       -           -       -     +     +     .      +     +    +        +       +     +      +      +      +     +           -        +
accumulate_batches   +     ~     ~       -           -       .     +     -     .      +     +    +        +       +     -      +      -      +     +           -        +
drop_last            +     +     +       +           +       .     +     +     .      +     +    +        +       +     +      +      +      +     +           -        +
straggler_chance     +     +     +       +           +       .     +     -     .      +     +    +        +       +     +      +      +      +     +           -        +
deadline             +     +     +       -           -       .     -     -     .      +     +    +        +       +     +      +      +      -     -           -        +
epochs_by_silo       +     +     +       +           +       .     +     -     .      +     +    +        +       +     +      +      +      +     +           -        +
compile              +     +     +       -           -       .     +     -     .      ~     +    +        +       +     ~      ~      ~      +     +           -        +
batch_silos          +     +     =       +           -       .     +     -     .      ~     +    +        +       +     ~      ~      ~      +     -           -        +
silos_per_step       +     +     =       +           -       .     +     -     .      +     +    +        +       +     +      +      +      +     +           -        +
precision            +     ~wide ~wide   wide        fp32    .wide +     fp32  .wide  wide  wide wide     wide    +     wide   +      wide   +     +           -        +
"""  # noqa: E501
_MARKS = "+-.~="
_SETS = {"wide": "fp32|tf32|bf16"}
"""Names for sets of values in cells. wide: precisions whose numbers have the range of float32."""

NOBODY = "nobody has said that the way '{way}' honours {key} = {value}; leave one of them out"
_WHY = """
batch_silos compile                                                                     batched steps take several silos at once, and compile makes a step of one; leave one out
batch_silos deadline                                                                    batched steps take several silos at once, and deadline stops each by its clock; leave one out
batch_silos accumulate_batches                                                          batched steps take several silos at once, and accumulate_batches takes steps of several batches; leave one out
batch_silos precision                                                                   batched steps take several silos at once, and fp16 leaves steps of single silos out; leave one out
batch_silos batch_size                                                                  batched steps take several silos at once, and batch_size = 'full' gives each another shape; leave one out
batch_silos batch_growth                                                                batched steps take several silos at once, and batch_growth gives each round another shape; leave one out
compile     batch_size                                                                  batch_size = 'full' gives each silo another shape; name a number
compile     batch_growth                                                                batch_growth gives each round another shape, and is for the plain step
compile     clip_norm,schedule,warmup,keep_optimizer_state,precision,accumulate_batches {key} is for the plain step
fedsgd      clip_norm,schedule,warmup,keep_optimizer_state,precision                    {name} takes one plain gradient step a round; leave [local] {key} out
fsvrg       clip_norm,schedule,warmup,keep_optimizer_state,precision                    fsvrg's step is its own; leave [local] {key} out
qffl        clip_norm,schedule,warmup,keep_optimizer_state,precision                    {name} goes by plain steps at one learning rate; leave [local] {key} out
scaffold    clip_norm,schedule,warmup,keep_optimizer_state,precision                    scaffold tells a gradient from how far equal steps, begun at rest, went; leave [local] {key} out
fednova     clip_norm,schedule,warmup,keep_optimizer_state,precision                    fednova counts equal steps that begin at rest; leave [local] {key} out
fedsgd      optimizer,momentum,nesterov,weight_decay                                    {name} takes one plain gradient step a round; use [local] optimizer = 'sgd', momentum = 0, weight_decay = 0 (momentum belongs to [server_optimizer])
fsvrg       optimizer,momentum,nesterov,weight_decay                                    fsvrg's step is its own; use [local] optimizer = 'sgd', momentum = 0, weight_decay = 0
qffl        optimizer,momentum,nesterov,weight_decay                                    {name} takes a change divided by lr for a gradient, as long as plain steps make it, and F_k for what they descend on; use [local] optimizer = 'sgd', momentum = 0, weight_decay = 0
scaffold    optimizer,nesterov                                                          scaffold tells a silo's mean gradient from how far its steps went, and corrects each step's gradient by it: it knows how for sgd with or without momentum only; use [local] optimizer = 'sgd' and nesterov = false
fednova     optimizer,nesterov                                                          fednova knows how often a gradient counts for sgd with or without momentum only; use [local] optimizer = 'sgd' and nesterov = false
fedsam      precision                                                                   fedsam takes a second gradient of each batch, whose loss is not scaled; use [local] precision = 'bf16', 'tf32' or 'fp32'
fedsam      accumulate_batches                                                          fedsam's second gradient is of one batch; leave [local] accumulate_batches out
fedrep      weight_decay                                                                fedrep holds one part of the model still, which would decay; use [local] weight_decay = 0
fedrep      keep_optimizer_state                                                        fedrep trains two parts in turns; leave [local] keep_optimizer_state out
paired      clip_norm,schedule,warmup,keep_optimizer_state,accumulate_batches           {name} trains two models by plain steps along the same batches; leave [local] {key} out
paired      precision                                                                   {name} trains two models by plain steps along the same batches; use [local] precision = 'bf16', 'tf32' or 'fp32'
paired      optimizer,momentum,nesterov,weight_decay                                    {name} trains two models by plain steps along the same batches; use [local] optimizer = 'sgd', momentum = 0, weight_decay = 0
asynchronous deadline                                                                   {name}: [clock] has a time of its own for each step; leave [local] deadline out
asynchronous batch_silos                                                                {name}: silos of a round train different numbers of times; leave [local] batch_silos out
asynchronous keep_optimizer_state                                                       {name}: a silo may train twice in a round; leave [local] keep_optimizer_state out
ditto       keep_optimizer_state                                                        ditto trains two models at a silo; leave [local] keep_optimizer_state out
newton      optimizer,lr,lr_decay,momentum,nesterov,beta1,beta2,epsilon,weight_decay,clip_norm,schedule,warmup,schedule_rounds,keep_optimizer_state,epochs,epochs_decay,steps,batch_size,batch_growth,accumulate_batches,drop_last,straggler_chance,deadline,epochs_by_silo,compile,batch_silos,silos_per_step,precision                                                                  {name} takes sums over all examples, and no steps; leave [local] {key} out
"""  # noqa: E501


class Fits:
    """A table of fits, and the texts of its refusals.

    Attributes:
        cells: The cells, by way and key.
        why: The texts, by way and key.
    """

    def __init__(self, text: str, why: str) -> None:
        (_, *ways), *rows = (line.split() for line in text.strip().splitlines())
        said = (line.split(maxsplit=2) for line in why.strip().splitlines())
        self.cells: dict[str, dict[str, str]] = {way: {} for way in ways}
        for names, *cells in rows:
            for way, cell in zip(ways, cells, strict=False):
                self.cells[way] |= dict.fromkeys(_keys(names), cell)
        self.why = {(way, key): text for way, names, text in said for key in _keys(names)}

    def outcome(self, way: str, key: str, value: Any, usual: Any = None) -> str:
        """Return what happens to a key: one of + - . ~

        Args:
            way: The way of training.
            usual: Its value if it is left out.
        """
        cell = self.cells[way].get(key, "-")
        mark, values = (cell[0], cell[1:]) if cell[0] in _MARKS else ("", cell)
        if mark in ("+", "=") or value is None or (mark and value == usual):
            return "+"
        listed = _listed(value, values) if values else mark == "."
        return {"": "-+", "-": "--", ".": "-.", "~": "~+"}[mark][listed]

    def unlike(self, way: str, table: BaseModel, prefix: str = "") -> Iterator[tuple[str, str, Any]]:
        """Yield the outcome, key and value of each key of a table that a way does not simply honour."""
        for key, usual in self._narrow(way, type(table), prefix) if way in self.cells else ():
            value = getattr(table, key)
            if value != usual and (outcome := self.outcome(way, prefix + key, value)) != "+":
                yield outcome, prefix + key, value

    def honours(self, way: str, table: BaseModel) -> bool:
        """Return whether a way honours all keys of a table."""
        return not any(self.unlike(way, table))

    def why_not(self, way: str, table: BaseModel, outcome: str = "-", **names: Any) -> str:
        """Return why a way refuses a table, or, for outcome ~, why another step takes its place; "" if it
        does not."""
        found = {key: value for one, key, value in self.unlike(way, table) if one == outcome}
        return self.first(way, found, **names)

    def first(self, way: str, refused: Mapping[str, Any], **names: Any) -> str:
        """Return the text for the first of the refused keys; "" if there is none."""
        told = [key for of, key in self.why if of == way and key in refused]
        for key in told or refused:
            text, value = self.why.get((way, key), NOBODY), refused[key]
            if isinstance(value, Mapping):
                values = self.cells[way].get(key, "")
                value = next(f"{at} = '{one}'" for at, one in value.items() if not _listed(one, values))
            return text.format(way=way, key=key, value=value, **names)
        return ""

    def idle(self, way: str) -> frozenset[str]:
        """Return the keys that have no effect in a way."""
        return frozenset(key for key, cell in self.cells[way].items() if cell.startswith("."))

    @functools.cache  # noqa: B019 - there are few tables, and all of them stay
    def _narrow(self, way: str, kind: type[BaseModel], prefix: str) -> list[tuple[str, Any]]:
        """Return the keys of a table that a way does not always honour, each with the value that needs no
        check."""
        filled = getattr(kind, "filled_in", {})
        usual = {key: filled.get(key, field.default) for key, field in kind.model_fields.items()}
        cells = {key: self.cells[way].get(prefix + key, "-") for key in usual}
        return [(key, usual[key] if cells[key][0] in _MARKS else None) for key in usual if cells[key] != "+"]


def refuse_idle(table: BaseModel, keys: Iterable[str], why: str) -> None:
    """Refuse keys of a table that have no effect beside its other keys.

    Values that keys have by themselves are accepted: the job in a run folder names all of them.

    Args:
        why: Why they have none, and what would do.

    Raises:
        ValueError: one is given; the text names it.
    """
    for key in keys:
        if (value := getattr(table, key)) != type(table).model_fields[key].default:
            raise ValueError(f"{key} = {str(value).lower() if isinstance(value, bool) else value}: {why}")


def _keys(names: str) -> list[str]:
    table, dot, keys = names.rpartition(".")
    return [f"{table}{dot}{key}" for key in keys.split(",")]


def _listed(value: Any, values: str) -> bool:
    """Return whether a cell lists a value; `number` is any number, `own` any name of the user's own code."""
    if isinstance(value, Mapping):
        return all(_listed(one, values) for one in value.values())
    names = _SETS.get(values, values).split("|")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) in names or ("number" in names and number) or ("own" in names and ":" in str(value))


LOCAL = Fits(_LOCAL, _WHY)
"""The keys of `[local]`."""
