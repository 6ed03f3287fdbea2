"""The silos' side of a dialogue: client methods that send a message and wait for the answer.

All silos send at once, one message each. What a silo keeps counts only if the whole dialogue reaches its end;
a dialogue that stops early changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from mpifl.algorithms import Algorithm
from mpifl.common import InputError
from mpifl.exchange.worker_side import as_update, header_of_end
from mpifl.silo import Silo
from mpifl.wings.split.activation_codecs import LONGEST, Writing
from mpifl.wings.split.split_messages import MessageMark, SplitMessages
from mpifl.wire import STOPPED, AnyReply, Converse, Done, Update

ClientMethod: TypeAlias = Generator[Tensor, "Tensor | None", Update]
"""A client method: it yields messages of shape [rows, width], is sent the answers, and returns an update."""


class SplitClient:
    """A silo's client method in a dialogue, at the rank that hosts the silo.

    Args:
        id: The silo.
        begin: Starts its client method.
        end: Makes a reply from the update that the method returned.
        fault: Makes a reply from the error that the method raised.

    Attributes:
        reply: The silo's reply; None while the dialogue goes on.
        said: The message that waits for an answer.
    """

    def __init__(
        self,
        id: int,
        begin: Callable[[], ClientMethod],
        end: Callable[[Update], AnyReply],
        fault: Callable[[Exception], AnyReply],
    ) -> None:
        self.id = id
        self.reply: AnyReply | None = None
        self.said: Tensor | None = None
        self._begin, self._end, self._fault = begin, end, fault
        self._method: ClientMethod | None = None

    def speak(self, heard: Tensor | None = None) -> Tensor | None:
        """Return its next message, given the answer to the last one; None if it has ended or failed."""
        try:
            if self._method is None:
                self._method = self._begin()
            self.said = _line(self._method.send(heard))
            return self.said
        except StopIteration as end:
            self._ended(end.value)
        except Exception as error:
            self.fail(error)
        return None

    def _ended(self, update: Update) -> None:
        try:
            self.reply = self._end(update)
        except Exception as error:
            self.fail(error)

    @property
    def failed(self) -> bool:
        """Whether its reply is a fault."""
        return self.reply is not None and self.reply.fault is not None

    def fail(self, error: Exception) -> None:
        """End it with a fault."""
        try:
            raise error
        except Exception as raised:  # raising gives the error a traceback, which the fault may name
            self.reply = self._fault(raised)
        self._close()

    def refuse(self, wrong: ValueError | InputError) -> None:
        """End it with an error that says what is wrong with its message, or with the answer."""
        self.fail(wrong if isinstance(wrong, InputError) else InputError(str(wrong)))

    def stop(self) -> None:
        """End it, since another silo or the server has stopped."""
        if not self.failed:
            self.reply = Done(silo=self.id, fault=STOPPED, passing=True)
        self._close()

    def _close(self) -> None:
        if self._method is not None:
            self._method.close()


def follow(
    clients: Sequence[SplitClient], lines: SplitMessages, longest: int, up: Writing, down: Writing
) -> None:
    """Run the dialogue on a rank other than the server's, to its end. `longest` limits a message's bytes."""
    talking, number = {client.id: client for client in clients}, 0
    heard: dict[int, Tensor | None] = dict.fromkeys(talking)
    while talking:
        for silo, client in talking.items():
            said = client.speak(heard[silo])
            payload = None if said is None else _written(client, said, number, longest, up)
            if payload is not None:
                lines.say(0, silo, number, payload)
            else:
                lines.say(0, silo, MessageMark.STOP if client.failed else MessageMark.END)
        talking = {silo: client for silo, client in talking.items() if client.reply is None}
        for silo, client in talking.items():
            heard[silo] = _answer(client, lines, number, down)
        talking = {silo: client for silo, client in talking.items() if client.reply is None}
        number += 1
    lines.settle()


def _written(client: SplitClient, said: Tensor, number: int, longest: int, up: Writing) -> memoryview | None:
    """Return a silo's message as bytes; if it cannot be encoded, fail the silo and return None."""
    try:
        payload = up.write(said, client.id, number)
        if len(payload) <= longest:
            return payload
        raise InputError(f"a line has shape {list(said.shape)}: {len(payload)} bytes, and at most {longest}")
    except (ValueError, InputError) as wrong:
        client.refuse(wrong)
        return None


def _answer(client: SplitClient, lines: SplitMessages, number: int, down: Writing) -> Tensor | None:
    """Return the server's answer to a silo; None if it is empty or STOP. A wrong answer fails the silo."""
    assert client.said is not None
    rows, width = client.said.shape
    try:
        line = lines.hear(0, LONGEST * rows * width)
        if line.number == MessageMark.STOP:
            client.stop()
            return None
        if (line.silo, line.number) != (client.id, number):
            raise InputError(f"the server answered line {line.number} of silo {line.silo}, not line {number}")
        if not line.payload:
            return None
        return down.read(line.payload, client.id, rows, width).to(client.said.device)
    except (ValueError, InputError) as wrong:
        client.refuse(wrong)
        lines.say(0, client.id, MessageMark.STOP)
        return None


def client_of(
    id: int,
    lend: Callable[[], Silo],
    algorithm: Algorithm,
    request: Converse,
    vectors: Mapping[str, Tensor],
    keep: Callable[[dict[str, Any]], None],
    fault: Callable[[Exception], AnyReply],
) -> SplitClient:
    """Return a client that runs the client method named in the request.

    Args:
        id: The silo.
        lend: Makes the silo.
        algorithm: The job's algorithm.
        vectors: The vectors of the request's message.
        keep: Called with what the silo keeps, when its client method has ended.
        fault: Makes a reply from an error.
    """
    lent: list[Silo] = []

    def begin() -> ClientMethod:
        lent.append(lend())
        method: Any = algorithm.work(request.work)(*lent, **request.scalars, **vectors)
        if isinstance(method, Generator):
            return method
        what = "write it as a generator that yields lines"
        raise InputError(f"{request.work} returned a {type(method).__name__}; {what}")

    def end(returned: Update) -> AnyReply:
        header = header_of_end(lent[0], as_update(returned, algorithm, request.work))
        keep(lent[0].kept)
        return header

    return SplitClient(id, begin, end, fault)


def _line(said: Any) -> Tensor:
    """Return what a client method has yielded, if it is a valid message; raise InputError if it is not."""
    if isinstance(said, Tensor) and said.dim() == 2 and said.dtype == torch.float32 and len(said):
        return said.detach().contiguous()
    what = f"{said.dtype} of shape {list(said.shape)}" if isinstance(said, Tensor) else type(said).__name__
    raise InputError(f"a line is {what}; yield float32 tensors of shape [rows, width]")
