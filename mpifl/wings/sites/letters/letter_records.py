"""The records of letters: one class for each kind, small, bounded, and strict.

A record is the part of a letter that is JSON. Vectors follow it as bytes. The class of a record is the
letter's kind. `LetterRecord.most` bounds its JSON in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field
from torch import Tensor

from mpifl.wings.site import PublicKey, SiloName, digest, has_signed
from mpifl.wire import MOST_SCALARS, AnyRequest, Count, Digest, Message, Name, Report, Text, WindowNumber

MOST_RECORD, MOST_WELCOME = 1 << 20, 32 << 20
"""Bytes of a record's JSON."""
MOST_SITES, MOST_SILOS = 4096, 1 << 16
WITHDRAW = "withdraw"
"""The purpose of a signature."""
LAST_NUMBER = 999_999
"""The largest number of a letter."""
_NOT_ASKED = {"serial", "attempt", "direct", "resting"}
"""Fields of a request that say how it travels."""

Number: TypeAlias = Annotated[int, Field(ge=0, le=LAST_NUMBER)]
"""The number of a letter. All letters of one beat have the same."""
RunId: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Life: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
"""16 bytes in hexadecimal, drawn at each start of a program."""
StateDigest: TypeAlias = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
"""The digest of a silo's sealed state; "" without a state."""
Mark: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]*$", max_length=8192)]
"""What a site seals for itself: the lengths and last digests of its ledgers, in hexadecimal."""
Silos: TypeAlias = Annotated[list[Count], Field(max_length=MOST_SILOS, fail_fast=True)]
Weight: TypeAlias = Annotated[float, Field(ge=0, le=2.0**900)]


class LetterRecord(Message):
    """The record of a letter.

    Attributes:
        kind: The kind of the letter.
        life: The life of the program that wrote the letter.
    """

    most: ClassVar[int] = MOST_RECORD

    kind: str
    life: Life


class HelloSilo(Message):
    """A silo of a site: its name, a keyed digest of its shard, and the sizes of its splits."""

    name: SiloName
    shard: Digest
    sizes: dict[Name, Count] = Field(default={}, max_length=16)


class HelloRecord(LetterRecord):
    """The first letter of a site, with number 0. The header has the site's run key.

    Attributes:
        name: The site's name.
        mpifl, torch: Versions.
        last: The number of the last letter that the site answered; 0 if there is none.
        about: What the site says of its ranks.
    """

    kind: Literal["hello"] = "hello"
    name: Name
    silos: list[HelloSilo] = Field(min_length=1, max_length=MOST_SILOS, fail_fast=True)
    mpifl: Name
    torch: Name
    last: Number = 0
    about: dict[Name, Text] = Field(default={}, max_length=16)


class Member(Message):
    """A site of the roster: its name, its identity's public key, and its silos."""

    name: Name
    key: PublicKey
    silos: list[SiloName] = Field(min_length=1, max_length=MOST_SILOS, fail_fast=True)


class WelcomeRecord(LetterRecord):
    """The coordinator's answer to a hello.

    Attributes:
        hello: The sha256 of the hello's header.
        told: The texts that rank 0 tells all ranks, by name: `job`, `spec`, `wings` and more.
        roster: All sites of the run, sorted by key.
    """

    most: ClassVar[int] = MOST_WELCOME

    kind: Literal["welcome"] = "welcome"
    hello: Digest
    told: dict[Name, str] = Field(max_length=16)
    roster: list[Member] = Field(min_length=1, max_length=MOST_SITES, fail_fast=True)


class Settled(Message):
    """The outcome of a question: its number, and the site's own silos whose updates counted."""

    n: Number
    silos: Silos


class AskRecord(LetterRecord):
    """A question to a site; the request's vectors follow.

    Attributes:
        request: The request to the ranks.
        job: The digest of the job (`job_digest`).
        settled: The outcome of each question that this site was asked since its last letter, in order.
        base: The digest of the state from which each silo begins.
        keep_from: The oldest number whose states and answers the site keeps.
        mark: The newest mark of this site that the coordinator has.
    """

    kind: Literal["ask"] = "ask"
    request: AnyRequest
    job: Digest
    settled: list[Settled] = Field(default=[], max_length=MOST_SITES, fail_fast=True)
    base: dict[SiloName, StateDigest] = Field(default={}, max_length=MOST_SILOS)
    keep_from: Number = 0
    mark: Mark = ""

    def question(self, vectors: Mapping[str, Tensor]) -> str:
        """Return the digest of the question, without number, life and attempt. See `Answer.asked`."""
        asked = self.request.model_dump_json(exclude=_NOT_ASKED)
        base = sorted(self.base.items())
        return digest(["mpifl question", self.job, asked, repr(base)], vectors)


class SumHeader(Message):
    """Describes a vector of an answer: the sum of a window, or the update of one silo.

    Attributes:
        name: The update's vector.
        window: The window of the exact sum; None for the update of one silo.
        silo: The silo of a single update; None for a sum.
    """

    name: Name
    window: WindowNumber | None = None
    silo: Count | None = None


class AnswerRecord(LetterRecord):
    """A site's answer to the question of the same number; the sums follow as vectors.

    Attributes:
        asked: The digest of the question (`Ask.question`).
        report: The report, as a rank's.
        sums: A header for each vector of sums, in their order. Under masks it is empty.
        part: Under masks, the part of the plan that the aggregator reads.
        states: For each silo the digests of the state that it keeps and of the pending one.
        place: The number of the letter to which this answer was given first; 0: to this one.
        last: The number of the last letter that the site answered before.
        mark: See `Mark`.
    """

    kind: Literal["answer"] = "answer"
    asked: Digest
    report: Report
    sums: list[SumHeader] = Field(default=[], max_length=MOST_SCALARS, fail_fast=True)
    part: Any = None
    states: dict[SiloName, tuple[StateDigest, StateDigest]] = Field(default={}, max_length=MOST_SILOS)
    place: Number = 0
    last: Number = 0
    mark: Mark = ""


class SignedHeader(Message):
    """A letter's header as it was signed, which its reader passes on.

    Attributes:
        header: The header's JSON.
        signature: The signature, 128 hexadecimal digits.
    """

    header: str = Field(max_length=1 << 16)
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]


class WithdrawRecord(LetterRecord):
    """A site's word that it leaves the run for good. Other sites get it in a `Sum`.

    Attributes:
        run: The run.
        round, work, of: Under masks, the question that the site has answered, and for which it hands over no
            sum, ever; `of` is its number. `work` is "" if there is none.
        site: The site's public key.
        signature: The site's signature of all this, 128 hexadecimal digits.
    """

    kind: Literal["withdraw"] = "withdraw"
    run: RunId
    round: Count = 0
    work: Text = ""
    of: Number = 0
    site: PublicKey
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]

    @property
    def said(self) -> bytes:
        """The bytes that the site signs for the purpose `WITHDRAW`."""
        return repr([self.run, self.round, self.work, self.of, self.site]).encode()

    @property
    def is_signed(self) -> bool:
        """Whether the site has signed it."""
        return has_signed(self.site, WITHDRAW, self.signature, self.said)


class SumRecord(LetterRecord):
    """Under masks, asks for the masked sum of accepted silos.

    Attributes:
        of: The number of the question.
        plan: The plan of the sum, which the aggregator reads.
        accepted: The silos whose updates are in the sum.
        answers: The signed headers of all parties' answers to the question.
        withdrawn: The words of the sites that have left the run.
    """

    kind: Literal["sum"] = "sum"
    of: Number
    plan: Any = None
    accepted: Silos
    answers: list[SignedHeader] = Field(default=[], max_length=MOST_SITES, fail_fast=True)
    withdrawn: list[WithdrawRecord] = Field(default=[], max_length=MOST_SITES, fail_fast=True)


class ShareRecord(LetterRecord):
    """A site's masked sum; int64 vectors follow.

    Attributes:
        of: The number of the question.
        context: The digest of the context from which masks follow; None if the site refuses.
        refused: Why the site refuses; None if it does not.
        mark: See `Mark`.
    """

    kind: Literal["share"] = "share"
    of: Number
    context: Digest | None
    refused: Text | None = None
    mark: Mark = ""


class NoRecord(LetterRecord):
    """Says why a site answers nothing any more. `of` is the number of the letter that it refuses."""

    kind: Literal["no"] = "no"
    of: Number
    why: Text


class EndRecord(LetterRecord):
    """The last letter to a site; the final model follows as vectors.

    Attributes:
        sha256: The digest of the model's file; "" if the training ends without a model.
        kept: The round that the model is of, if it is the best one; else 0.
        why: Why there is no model.
    """

    kind: Literal["end"] = "end"
    sha256: StateDigest = ""
    kept: Count = 0
    why: Text = ""


_Down = WelcomeRecord | AskRecord | SumRecord | EndRecord
_Up = HelloRecord | AnswerRecord | ShareRecord | NoRecord | WithdrawRecord
AnyRecord = Annotated[_Down | _Up, Field(discriminator="kind")]
LetterKind: TypeAlias = Literal["hello", "welcome", "ask", "answer", "sum", "share", "no", "withdraw", "end"]
MOST_OF: dict[str, int] = {
    str(cls.model_fields["kind"].default): cls.most for cls in LetterRecord.__subclasses__()
}
"""Bytes of a record's JSON, by kind."""
