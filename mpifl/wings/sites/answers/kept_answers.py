"""A site's answers, which it keeps: a coordinator that goes back to a checkpoint gets the same ones again.

A second answer could have other bits, since another processor or number of threads rounds otherwise. Under
masks the ledger would refuse it, and the run would be lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from mpifl.common import InputError, one_line, remove_left_behind
from mpifl.exchange import OTHER
from mpifl.run.folder import serialization
from mpifl.wings.masked import SumPlan
from mpifl.wings.site import fsync_folder, make_own
from mpifl.wire import AnyReply, Report

ANSWERS = "answers"
"""The folder of answers in the private folder of a run."""
_NAME = re.compile(r"([0-9]{6})-([0-9a-f]{64})\.safetensors", re.ASCII)


@dataclass(frozen=True)
class SiteAnswer:
    """The answer to a question.

    Attributes:
        place: The number of the letter to which it was made. What silos keep lies under this number.
        replies: The replies of the site's silos that were asked.
        sums: The exact sums by window and vector, float64; under masks none.
        totals: Under masks the totals of whole numbers; see `SiteTotals`.
        plan: Under masks the plan by which they were made; None if no silo has added anything.
        singles: What is handed over of single silos' updates, by silo and vector.
        states: The digest of the state that each silo keeps now, for silos that keep one.
    """

    place: int
    replies: Sequence[AnyReply]
    sums: Mapping[tuple[int, str], Tensor] = field(default_factory=dict)
    states: Mapping[int, str] = field(default_factory=dict)
    totals: Mapping[str, Tensor] = field(default_factory=dict)
    plan: SumPlan | None = None
    singles: Mapping[tuple[int, str], Tensor] = field(default_factory=dict)

    @property
    def worked(self) -> int:
        """How many silos have no fault."""
        return sum(reply.fault is None for reply in self.replies)

    def first_fault(self, names: Sequence[str]) -> str:
        """Return which silo failed first and why, for the end of a line; "" if none did."""
        failed = next((reply for reply in self.replies if reply.fault is not None), None)
        if failed is None:
            return ""
        why = ": its error is told above" if failed.fault == OTHER else f": {one_line(failed.fault)}"
        return f"; {names[failed.silo]} failed{why}"


class KeptAnswers:
    """The answers without a fault of one run, each in a file of a private folder, by the question's digest.

    Args:
        folder: The folder; it is made if it is missing.
        without: What follows if an answer is removed, for lines that say what to do.
        again: How to go on after such a line.
    """

    def __init__(
        self, folder: Path, without: str = "its question is worked for again", again: str = "join again"
    ) -> None:
        self._without, self._again = without, again
        make_own(folder, str(folder))
        remove_left_behind(folder, _NAME.pattern)
        self._folder = folder
        found = [(path, _NAME.fullmatch(path.name)) for path in folder.iterdir()]
        self._paths = {name[2]: path for path, name in found if name}

    def of(self, question: str) -> SiteAnswer | None:
        """Return the answer to a question, None if there is none.

        Raises:
            InputError: its file is damaged.
        """
        if (path := self._paths.get(question)) is None:
            return None
        try:
            state = serialization.unpack(path.read_bytes())
            told = json.loads(state.pop("about"))
            return SiteAnswer(
                place=int(path.name[:6]),
                replies=Report.model_validate_json(told["report"]).headers,
                sums={(window, name): state[f"sum {window} {name}"] for window, name in told["sums"]},
                states={int(silo): digest for silo, digest in told["states"].items()},
                totals={name: state[f"total {name}"] for name in told["totals"]},
                singles={(silo, name): state[f"single {silo} {name}"] for silo, name in told["singles"]},
                plan=None if told["plan"] is None else SumPlan.model_validate_json(told["plan"]),
            )
        except (OSError, ValueError, KeyError) as error:
            what = f"cannot be read ({str(error)[:200]})"
            raise InputError(f"{path}: {what}; remove it, and {self._without}") from None

    def keep(self, question: str, answer: SiteAnswer) -> None:
        """Have an answer on the disk, unless it has a fault: what failed may work when it is asked again.

        Raises:
            InputError: it cannot be written.
        """
        if answer.worked < len(answer.replies):
            return
        path = self._folder / f"{answer.place:06d}-{question}.safetensors"
        told = {
            "report": Report(headers=list(answer.replies)).encode().decode(),
            "sums": [*answer.sums],
            "singles": [*answer.singles],
            "states": answer.states,
            "totals": [*answer.totals],
            "plan": None if answer.plan is None else answer.plan.model_dump_json(),
        }
        state: dict[str, Any] = {f"sum {window} {name}": one for (window, name), one in answer.sums.items()}
        state |= {f"single {silo} {name}": one for (silo, name), one in answer.singles.items()}
        state |= {f"total {name}": one for name, one in answer.totals.items()}
        try:
            serialization.write_state(path, {**state, "about": json.dumps(told)})
            fsync_folder(self._folder)
        except OSError as error:
            why = f"cannot be written ({error.strerror or error})"
            raise InputError(f"{path}: {why}; make room, and {self._again}") from None
        self._paths[question] = path

    def forget(self, before: int) -> None:
        """Remove the answers to letters with smaller numbers, which no checkpoint leads back to."""
        for question, path in [*self._paths.items()]:
            if int(path.name[:6]) < before:
                path.unlink(missing_ok=True)
                del self._paths[question]
