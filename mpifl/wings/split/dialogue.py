"""The server's side of a dialogue: it receives a message from every silo, and answers each."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from mpifl.common import InputError, RoundLost
from mpifl.sums import is_finite
from mpifl.wings.split.activation_codecs import LONGEST, Writing
from mpifl.wings.split.split_clients import SplitClient
from mpifl.wings.split.split_messages import MessageMark, SplitMessage, SplitMessages

SHORTEST_LIMIT = 1 << 26
"""Bytes of a message that the server always accepts. So it can name a wrong shape instead of hanging."""
_MORE = "said more than it was asked"


class DialogueStopped(Exception):
    """The dialogue is over, since a silo or the server has stopped."""


class DialogueLead:
    """How the server leads a dialogue, and what it has counted.

    Args:
        talk: The function that leads the dialogue; it is given the `Dialogue`.
        widths: How many numbers a message of each silo has for each row.

    Attributes:
        longest: The most bytes that a message may have.
        homes: The rank of each silo.
        heard: Bytes received from each silo.
        said: Bytes of the answers to each silo.
        error: Why the dialogue did not reach its end; None if it did.
    """

    def __init__(self, talk: Callable[[Dialogue], None], widths: Mapping[int, int]) -> None:
        self.talk, self.widths = talk, dict(widths)
        self.longest = SHORTEST_LIMIT
        self.homes: Mapping[int, int] = {}
        self.heard: Counter[int] = Counter()
        self.said: Counter[int] = Counter()
        self.error: InputError | RoundLost | None = None

    def begin(self, rows: int) -> int:
        """Set and return the most bytes of a message, given the most rows it has."""
        self.longest = max(SHORTEST_LIMIT, LONGEST * rows * max(self.widths.values()))
        return self.longest


class Dialogue:
    """The messages between the server and the silos of one request.

    Args:
        lead: Leads the dialogue, and knows the rank of each silo.
        silos: The silos that take part.
        clients: The clients of the silos that this rank hosts.
        lines: Sends messages to the other silos and receives theirs.
        up: Encodes messages of silos.
        down: Encodes answers.
    """

    def __init__(
        self,
        lead: DialogueLead,
        silos: Sequence[int],
        clients: Mapping[int, SplitClient],
        lines: SplitMessages,
        up: Writing,
        down: Writing,
    ) -> None:
        self.silos = sorted(silos)
        self._lead, self._here, self._lines = lead, clients, lines
        self._up, self._down = up, down
        self._answers: dict[int, Tensor | None] = dict.fromkeys(clients)
        self._heard = dict.fromkeys(self.silos, 0)
        """How many messages were received from each silo."""
        self._answered = dict.fromkeys(self.silos, 0)
        """How many of these were answered."""
        self._over: set[int] = set()
        """Silos of other ranks that have sent STOP or END."""

    def hear(self, rows: int, silos: Sequence[int] | None = None) -> list[Tensor]:
        """Return the next message of each silo, float32 of shape [rows, width], in the order of the silos."""
        asked = self.silos if silos is None else list(silos)
        heard = {silo: self._own_line(silo, rows) for silo in asked if silo in self._here}
        heard |= {silo: self._line_of(silo, rows) for silo in asked if silo not in self._here}
        if any(line is None for line in heard.values()):
            raise DialogueStopped
        return [line for silo in asked if (line := heard[silo]) is not None]

    def say(self, answers: Sequence[Tensor] | None = None, silos: Sequence[int] | None = None) -> None:
        """Answer each silo by a tensor of its message's shape; without answers, let the silos continue."""
        asked = self.silos if silos is None else list(silos)
        given: Sequence[Tensor | None] = [None] * len(asked) if answers is None else answers
        for silo, answer in zip(asked, given, strict=True):
            if answer is not None:
                _check_finite(answer)
            try:
                self._say(silo, answer)
            except ValueError as wrong:
                raise RoundLost(f"to silo {silo}: {wrong}", in_vain=True) from None
            self._answered[silo] += 1

    def _say(self, silo: int, answer: Tensor | None) -> None:
        number = self._answered[silo]
        payload: bytes | memoryview = b""
        if silo in self._here:
            self._answers[silo] = None
            if answer is not None:
                self._answers[silo], nbytes = self._down.carried(answer, silo, number)
                self._lead.said[silo] += nbytes
            return
        if answer is not None:
            payload = self._down.write(answer, silo, number)
        self._lead.said[silo] += len(payload)
        self._lines.say(self._lead.homes[silo], silo, number, payload)

    def run(self) -> None:
        """Lead the dialogue to its end, or stop all silos."""
        try:
            self._lead.talk(self)
            for silo in self.silos:
                self._end_of(silo)
        except DialogueStopped:
            self._stop()
        except (InputError, RoundLost) as error:
            self._lead.error = error
            self._stop()
        self._lines.settle()

    def _own_line(self, silo: int, rows: int) -> Tensor | None:
        """Return the next message of a silo of this rank; None if the silo has ended or failed."""
        client = self._here[silo]
        if (line := client.speak(self._answers[silo])) is None:
            self._note_end(silo, ended=not client.failed)
        else:
            line = self._carried(silo, line, rows)
        self._heard[silo] += 1
        return line

    def _carried(self, silo: int, line: Tensor, rows: int) -> Tensor | None:
        """Return a message of this rank's silo as a receiver would decode it; a wrong one fails the silo."""
        try:
            if fault := self._fault_of(silo, line, rows):
                raise fault
            read, nbytes = self._up.carried(line, silo, self._heard[silo])
        except (ValueError, InputError) as wrong:
            self._here[silo].refuse(wrong)
            return None
        self._lead.heard[silo] += nbytes
        return read

    def _line_of(self, silo: int, rows: int) -> Tensor | None:
        """Return the next message of another rank's silo; None if the silo ended or the message is wrong."""
        width = self._lead.widths[silo]
        try:
            line = self._next(silo)
            if silo in self._over:
                self._note_end(silo, ended=line.number == MessageMark.END)
                return None
            found = self._up.read(line.payload, silo, rows, width)
            if fault := self._fault_of(silo, found, rows):
                raise fault
        except (ValueError, InputError) as wrong:
            self._refuse(silo, wrong)
            return None
        self._lead.heard[silo] += len(line.payload)
        return found

    def _next(self, silo: int) -> SplitMessage:
        """Receive the next message or mark of a silo of another rank. Raise ValueError if it is neither the
        message that is due nor a mark."""
        due = self._heard[silo]
        self._heard[silo] += 1
        line = self._lines.hear(self._lead.homes[silo], self._lead.longest)
        if line.silo != silo:
            raise ValueError(f"a line of silo {line.silo} came in place of its own")
        if line.number in (MessageMark.STOP, MessageMark.END):
            self._over.add(silo)
        elif line.number != due:
            raise ValueError(f"line {line.number} came in place of line {due}")
        return line

    def _fault_of(self, silo: int, line: Tensor, rows: int) -> InputError | None:
        """Return the error in a message's shape or numbers, if there is one."""
        wanted = [rows, self._lead.widths[silo]]
        if list(line.shape) != wanted:
            return InputError(f"a line has shape {list(line.shape)}, not {wanted}")
        if not is_finite(line):
            return InputError("a line is not finite; training diverged, use a lower [local] lr")
        return None

    def _end_of(self, silo: int) -> None:
        """Check that a silo's client method has ended; raise DialogueStopped if it has sent another message,
        or has failed."""
        if silo in self._here:
            if self._here[silo].speak(self._answers[silo]) is not None:
                self._here[silo].fail(InputError(_MORE))
            ended = not self._here[silo].failed
        else:
            ended = self._has_ended(silo)
        if not ended:
            raise DialogueStopped

    def _has_ended(self, silo: int) -> bool:
        """Return whether a silo of another rank sends END next."""
        try:
            line = self._next(silo)
            if silo not in self._over:
                raise ValueError(_MORE)
            return line.number == MessageMark.END
        except ValueError as wrong:
            self._refuse(silo, wrong)
            return False

    def _note_end(self, silo: int, *, ended: bool) -> None:
        if ended:
            self._lead.error = RoundLost(f"silo {silo} ended before the server did", in_vain=True)

    def _refuse(self, silo: int, wrong: Exception) -> None:
        """Note why another rank's message was refused. That rank reports only that its silo was stopped."""
        self._lead.error = RoundLost(f"silo {silo}: {wrong}")

    def _stop(self) -> None:
        """Stop all silos that have not ended, and receive the messages that they have still sent.

        Silos that wait for an answer come first. Their rank sends nothing for its other silos until all of
        these have an answer.
        """
        for client in self._here.values():
            client.stop()
        left = [silo for silo in self.silos if silo not in self._here and silo not in self._over]
        for silo in left:
            if self._heard[silo] > self._answered[silo]:
                self._lines.say(self._lead.homes[silo], silo, MessageMark.STOP)
        for silo in left:
            if self._heard[silo] > self._answered[silo]:
                continue
            with contextlib.suppress(ValueError):
                self._next(silo)
            if silo not in self._over:
                self._lines.say(self._lead.homes[silo], silo, MessageMark.STOP)


def _check_finite(answer: Tensor) -> None:
    """Raise RoundLost if an answer is not finite."""
    if not is_finite(answer):
        what = "a gradient of the label holder is not finite; training diverged, use a lower [local] lr"
        raise RoundLost(what, in_vain=True)
