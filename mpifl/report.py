"""Tables and curves from run folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mpifl.errors import InputError
from mpifl.run import read_metrics
from mpifl.tracking.console import on_terminal


@dataclass(frozen=True)
class Summary:
    """What a run came to; None where it cannot be told."""

    run: Path
    records: list[dict[str, Any]]

    @property
    def last(self) -> dict[str, Any]:
        """The last round that was evaluated, or else the last."""
        return next((r for r in reversed(self.records) if "test_accuracy" in r), self.records[-1])

    def figure(self, name: str) -> float | None:
        """Return a figure of the last evaluated round."""
        value = self.last.get(name)
        return None if value is None else float(value)

    def best(self) -> float | None:
        """Return the best test accuracy."""
        return max((float(r["test_accuracy"]) for r in self.records if "test_accuracy" in r), default=None)

    def total(self, *names: str, until: int | None = None) -> float:
        """Add up figures over the rounds, up to and with the round `until`."""
        return sum(
            float(r.get(name, 0)) for r in self.records for name in names if until is None or r["round"] <= until
        )

    def reached(self, target: float) -> int | None:
        """Return the first round with this test accuracy."""
        return next((r["round"] for r in self.records if r.get("test_accuracy", -1.0) >= target), None)


def read_run(run: Path) -> Summary:
    """Read a run folder.

    Raises:
        InputError: it holds no round.
    """
    records = read_metrics(run)
    if not records:
        raise InputError(f"{run}: no rounds in metrics.jsonl; name the folder of a run (mpifl train ... --out RUN)")
    return Summary(run, records)


def show_run(run: Path) -> None:
    """Print what a finished run came to, and where its model lies."""
    from mpifl.job import read_job

    job = read_job(run / "job.toml")
    console = _console()
    if not read_metrics(run):
        console.print(f"{run}: no round was run")
        return
    console.print(_table([read_run(run)], job.evaluate.target_accuracy))
    console.print(f"model: {run / 'model.safetensors'}", soft_wrap=True, highlight=False)


def compare_runs(runs: Sequence[Path], target: float | None, plot: Path | None) -> None:
    """Print runs side by side and draw their curves."""
    summaries = [read_run(run) for run in runs]
    console = _console()
    console.print(_table(summaries, target))
    if plot is not None:
        draw(summaries, plot)
        console.print(f"curve: {plot}", soft_wrap=True, highlight=False)


def evaluate_run(run: Path) -> None:
    """Score the model of a run on its shard folder's test set and print the figures."""
    from safetensors.torch import load_file

    from mpifl import models
    from mpifl.batches import Batches
    from mpifl.flat import FlatModel
    from mpifl.job import read_job
    from mpifl.shards import open_shard, read_federation
    from mpifl.silo import evaluate

    job = read_job(run / "job.toml")
    spec = read_federation(Path(job.shards))
    if spec.test is None:
        raise InputError(f"{job.shards}/federation.json: has no test set; partition with a source that has one")
    path = run / "model.safetensors"
    if not path.exists():
        raise InputError(f"{path}: is not there; the run has not come to its end (mpifl train ... --resume)")
    module = models.build(job.model.name, job.model.arguments, spec.features, spec.classes, job.seed)
    module.load_state_dict(load_file(path))
    model = FlatModel(module)
    test = open_shard(Path(job.shards), spec.test, spec)["test"]
    score = evaluate(model, model.trained.clone(), Batches(test, spec.features, model.device))
    print(f"test loss {score.loss:.4f}, test accuracy {score.accuracy:.2%}, {score.examples} examples")


def draw(summaries: Sequence[Summary], path: Path) -> None:
    """Draw test accuracy and training loss over the rounds into a PNG.

    Raises:
        InputError: matplotlib is not installed or the file cannot be written.
    """
    try:
        import matplotlib
    except ImportError:
        raise InputError("--plot: needs 'pip install mpifl[plots]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (accuracy, loss) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for summary in summaries:
        label = summary.run.name
        tested = [r for r in summary.records if "test_accuracy" in r]
        accuracy.plot([r["round"] for r in tested], [100 * r["test_accuracy"] for r in tested], label=label)
        trained = [r for r in summary.records if r.get("train_loss") is not None]
        loss.plot([r["round"] for r in trained], [r["train_loss"] for r in trained], label=label)
    accuracy.set(xlabel="round", ylabel="test accuracy (%)")
    loss.set(xlabel="round", ylabel="training loss", yscale="log")
    for axes in (accuracy, loss):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    accuracy.legend(frameon=False, loc="lower right")
    try:
        figure.savefig(path, dpi=144)
    except OSError as error:
        raise InputError(f"--plot {path}: cannot be written ({error.strerror})") from None
    finally:
        pyplot.close(figure)


def _console() -> Console:
    """Return a console that does not squeeze a table into 80 columns where nothing says how wide it may be."""
    return Console() if on_terminal() else Console(width=140, force_terminal=False)


def _table(summaries: Sequence[Summary], target: float | None) -> Table:
    table = Table()
    for heading in (
        "run",
        "rounds",
        "accuracy",
        "best",
        "loss",
        "worst silo",
        "std",
        "seconds",
        "MB sent",
        "MB received",
    ):
        table.add_column(heading, justify="left" if heading == "run" else "right", no_wrap=heading != "run")
    if target is not None:
        table.add_column(f"to {100 * target:g}%", justify="right")
    for summary in summaries:
        row = [
            str(summary.run),
            str(summary.records[-1]["round"]),
            _percent(summary.figure("test_accuracy")),
            _percent(summary.best()),
            _number(summary.figure("test_loss")),
            _percent(summary.figure("silo_accuracy_worst")),
            _percent(summary.figure("silo_accuracy_std")),
            f"{summary.total('seconds'):.1f}",
            f"{summary.total('bytes_sent') / 1e6:,.1f}",
            f"{summary.total('bytes_received') / 1e6:,.1f}",
        ]
        table.add_row(*row, *([_to_target(summary, target)] if target is not None else []))
    return table


def _to_target(summary: Summary, target: float) -> str:
    round = summary.reached(target)
    if round is None:
        return f"not reached in {summary.records[-1]['round']} rounds"
    megabytes = summary.total("bytes_sent", "bytes_received", until=round) / 1e6
    return f"{round} rounds, {summary.total('seconds', until=round):.1f} s, {megabytes:,.1f} MB"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
