"""What a run has taken, beside what its plan says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mpifl.cli.plan.planned_job import planned
from mpifl.common import InputError
from mpifl.common.machine import ENERGY
from mpifl.report.observers import print_table
from mpifl.report.runs import read_run
from mpifl.run.folder import number, read_environment, read_metrics

BYTES = {"bytes_sent": "bytes, server to silos", "bytes_received": "bytes, silos to server"}
SECONDS = {"seconds": "rounds", "seconds_evaluation": "evaluations", "seconds_checkpoint": "checkpoints"}


class BillLine(NamedTuple):
    """One thing that a run has taken: planned, and found; None where it is not known."""

    what: str
    planned: float | None
    found: float | None

    @property
    def ratio(self) -> float | None:
        """How much was found for each that was planned."""
        known = self.planned and self.found is not None
        return self.found / self.planned if known and self.found is not None and self.planned else None


def bill_of(run: Path, profile: Path | None) -> tuple[list[BillLine], list[str]]:
    """Return what a run has taken beside its plan, and what the user must know to read it.

    Raises:
        InputError: the folder holds no run, its job cannot be planned any more, or the profile does not fit.
    """
    if not (run / "job.toml").exists():
        raise InputError(f"{run}: holds no run; name the folder that `mpifl train --out` wrote")
    if not read_metrics(run):
        raise InputError(f"{run}: no round is done yet, so there is nothing to bill")
    records, told = _checked(run), read_environment(run).get("ranks", {})
    ranks = max(map(int, told), default=0) + 1
    figures = planned(run / "job.toml", (), profile, ranks if profile else None)
    if len(records) > len(figures["rounds"]):
        raise InputError(f"{run}: has {len(records)} rounds, and its job.toml {len(figures['rounds'])}")
    rounds = figures["rounds"][: len(records)]
    lines = [
        BillLine(what, sum(one[key] for one in rounds), _sum(records, key)) for key, what in BYTES.items()
    ]
    lines += _costs(figures["forecast"], records, len(rounds))
    return lines, _notes(figures, records)


def _checked(run: Path) -> Sequence[Mapping[str, Any]]:
    """Return the records of a run's rounds.

    Raises:
        InputError: a round is missing, or has no number of bytes.
    """
    found = read_run(run)
    if found.missing or found.records[0]["round"] != 1:
        raise InputError(f"{run / 'metrics.jsonl'}: rounds are missing, so nothing can be added up")
    for record in found.records:
        for key in BYTES:
            if (found_bytes := number(record, key)) is None or found_bytes < 0:
                what = f"round {record['round']}: {key} = {record.get(key)!r:.40} is not a number of bytes"
                raise InputError(f"{run / 'metrics.jsonl'}: {what}")
    return found.records


def _costs(
    forecast: Mapping[str, Any] | None, records: Sequence[Mapping[str, Any]], done: int
) -> list[BillLine]:
    """Return the seconds and the server's memory; of a run that has not all its rounds the rounds alone."""
    rounds = sum(forecast["round_seconds"][:done]) if forecast else None
    whole = forecast["of_it"] if forecast and done == len(forecast["round_seconds"]) else {}
    lines = [
        BillLine(f"seconds, {what}", rounds if key == "seconds" else whole.get(what), _sum(records, key))
        for key, what in SECONDS.items()
    ]
    memory = round(1e6 * max(number(one, "server_rss_mb") or 0.0 for one in records))
    lines.append(BillLine("bytes, server's memory", forecast["server_bytes"] if forecast else None, memory))
    read = [key for key in ENERGY if all(key in one for one in records)]
    return lines + [BillLine(ENERGY[key], None, _sum(records, key)) for key in read]


def _notes(figures: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> list[str]:
    done, all = len(records), len(figures["rounds"])
    notes = [f"{done} of {all} rounds are done, and billed"] if done < all else []
    notes += [f"the plan's bytes are at most these: {line}" for line in figures["at_most"]]
    notes += [f"not in the plan: {line}" for line in figures["unknown"]]
    if lost := sum(len(one.get("attempts_lost", ())) for one in records):
        notes.append(f"{lost} attempts at a round were lost, and cost bytes and seconds that no plan has")
    if left := sum(bool(one.get("faults")) for one in records):
        what = f"{left} round{'s' * (left > 1)}, and did not send what the plan has"
        notes.append(f"silos were left out in {what}")
    notes.append(
        "memory: found is the server's at the ends of rounds; its peak and workers' are not recorded"
    )
    read = any(key in one for one in records for key in ENERGY)
    whole = "of all that ran on the server's machine; other nodes' is not recorded"
    return [*notes, f"energy: {whole if read else 'not readable in this run'}"]


def _sum(records: Sequence[Mapping[str, Any]], key: str) -> float:
    found = sum(number(one, key) or 0 for one in records)
    return round(found) if key in BYTES else found


def show_bill(run: Path, lines: Sequence[BillLine], notes: Sequence[str]) -> None:
    """Print the bill of a run."""
    rows = [[one.what, _written(one.planned), _written(one.found), _share(one.ratio)] for one in lines]
    print_table(f"{run}: planned and found", ["", "planned", "found", "found / planned"], rows)
    for note in notes:
        print(note)


def _written(value: float | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _share(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f}"
