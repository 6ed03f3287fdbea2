"""The server's end of a dialogue, against lines that are played to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from mpifl.common import Names, RoundLost
from mpifl.exchange import Telling
from mpifl.wings.compression.codecs import QSGD
from mpifl.wings.split import PLAIN_LINES, ActivationCodecs, MessageMark, SplitMessage
from mpifl.wings.split.dialogue import Dialogue, DialogueLead
from mpifl.wings.split.split_clients import SplitClient, follow
from mpifl.wire import Done

LINE = memoryview(bytearray(torch.ones(3, 2).numpy().tobytes()))


class Played:
    """What ranks say, in order; and what they do once they are told: a rank speaks for its silos in turns."""

    def __init__(self, lines: dict[int, list[SplitMessage]], hosted: dict[int, list[int]]) -> None:
        self.lines, self.hosted = lines, hosted
        self.told: list[tuple[int, int]] = []

    def hear(self, rank: int, limit: int) -> SplitMessage:
        if self.lines[rank]:
            return self.lines[rank].pop(0)
        waiting = [silo for silo in self.hosted[rank] if silo not in [one for one, _ in self.told]]
        assert not waiting, f"rank {rank} says nothing: silo {waiting[0]} waits for its answer"
        return SplitMessage(self.hosted[rank][0], 1, LINE)

    def say(self, rank: int, silo: int, number: int, payload: object = b"") -> None:
        self.told.append((silo, number))

    def settle(self) -> None:
        pass


def led(played: Played, talk: Callable[[Dialogue], None]) -> DialogueLead:
    """Lead a dialogue with silos 1 and 2."""
    lead = DialogueLead(talk, {1: 2, 2: 2})
    lead.begin(3)
    lead.homes = {silo: rank for rank, silos in played.hosted.items() for silo in silos}
    Dialogue(lead, [1, 2], {}, played, *PLAIN_LINES.writing("bottom", 0)).run()
    return lead


@pytest.mark.parametrize("bad", [torch.full((3, 2), torch.nan), None])
def test_of_a_rank_with_two_silos_the_one_that_waits_is_stopped_before_the_other_is_heard(bad) -> None:
    """Silo 1 has its answer, silo 2's cannot be said. Their rank says silo 1's next line after both came."""
    played = Played({1: [SplitMessage(1, 0, LINE), SplitMessage(2, 0, LINE)]}, {1: [1, 2]})

    def talk(dialogue: Dialogue) -> None:
        dialogue.hear(3)
        dialogue.say([torch.ones(3, 2)], [1])
        if bad is None:
            raise RoundLost("it cannot go on")
        dialogue.say([bad], [2])

    lead = led(played, talk)
    assert isinstance(lead.error, RoundLost)
    assert played.told == [(1, 0), (2, MessageMark.STOP), (1, MessageMark.STOP)]


@pytest.mark.parametrize("mark", [MessageMark.STOP, MessageMark.END])
def test_a_mark_in_anothers_name_ends_nobody_else(mark) -> None:
    played = Played(
        {1: [SplitMessage(2, mark, memoryview(b""))], 2: [SplitMessage(2, 0, LINE)]}, {1: [1], 2: [2]}
    )
    lead = led(played, lambda dialogue: dialogue.hear(3))
    assert "silo 1: a line of silo 2 came in place of its own" in str(lead.error)
    assert sorted(played.told) == [(1, MessageMark.STOP), (2, MessageMark.STOP)]


def said_of(line: torch.Tensor, kind: type[Telling] = Telling) -> tuple[SplitClient, Telling]:
    """Return a silo that says one line, and what is told of its faults."""

    def half():
        yield line

    telling = kind(Names())
    fault = lambda error: Done(silo=1, fault=telling.fault(1, error))  # noqa: E731
    return SplitClient(1, half, lambda update: Done(silo=1), fault), telling


@pytest.mark.parametrize("at_the_server", [True, False])
@pytest.mark.parametrize("value", [torch.nan, 3e38])
def test_a_line_that_no_codec_can_write_is_a_fault_in_one_line(value, at_the_server, capsys) -> None:
    """It is no surprise whose traceback would help: training diverged."""
    client, telling = said_of(torch.full((3, 2), value))
    written = ActivationCodecs(upload=QSGD(norm="l2")).writing("bottom", 0)
    played = Played({0: []}, {0: [1]})
    if at_the_server:
        lead = DialogueLead(lambda dialogue: dialogue.hear(3), {1: 2})
        Dialogue(lead, [1], {1: client}, played, *written).run()
    else:
        follow([client], played, 1 << 20, *written)
    assert client.reply is not None
    assert client.reply.fault is not None
    assert "line" in client.reply.fault
    assert "Error" not in client.reply.fault
    assert "Diverged" not in client.reply.fault
    telling.explain([1])
    assert capsys.readouterr().err == ""
