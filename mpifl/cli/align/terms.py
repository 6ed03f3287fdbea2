"""The terms of an alignment: one small TOML file that must be the same, byte by byte, at all parties."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from mpifl.common import InputError, by_weight, closed, did_you_mean, hint_of, sha256_of, tables

PartyName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 .+_-]{0,63}$")]


class AlignTerms(BaseModel):
    """The terms that the parties agree on.

    Attributes:
        name: The federation's name.
        parties: The parties' names, in the order of the ranks 1, 2, ... They become the silos 0, 1, ...
        labels: The party that holds the labels.
        seed: The seed that draws the rows of `valid` and `test`.
        valid: The share of the common rows that is kept for validation.
        test: The share kept for testing.
        columns: Whether all parties learn the names of all columns.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    parties: Annotated[list[PartyName], Field(max_length=1000)]
    labels: str
    seed: int = 0
    valid: float = Field(0.0, ge=0, lt=1)
    test: float = Field(0.0, ge=0, lt=1)
    columns: bool = False

    @model_validator(mode="after")
    def _two_or_more(self) -> AlignTerms:
        if len(self.parties) < 2:
            raise ValueError("parties: there must be two or more, as ['bank', 'shop']")
        if len(set(self.parties)) < len(self.parties):
            raise ValueError("parties: a name is there twice; each party has its own")
        if self.labels not in self.parties:
            to_do = f"{did_you_mean(self.labels, self.parties)}name the one that has them"
            raise ValueError(f"labels: '{self.labels}' is not one of the parties; {to_do}")
        if self.valid + self.test >= 1:
            raise ValueError("valid, test: together they leave nothing to train on; lower them")
        return self

    def told(self, party: int) -> str:
        """Return a party's name for messages."""
        return f"party '{self.parties[party]}' (rank {party + 1})" if party < len(self.parties) else "a party"


def check_ranks(path: Path, terms: AlignTerms, ranks: int) -> None:
    """Refuse any number of ranks except one for each party plus rank 0, which compares."""
    if ranks != (wanted := len(terms.parties) + 1):
        what = f"names {wanted - 1} parties, so {wanted} ranks are needed, rank 0 to compare"
        raise InputError(f"{path}: {what}; {ranks} {'was' if ranks == 1 else 'were'} started")


def read_terms(path: Path) -> AlignTerms:
    """Read the file of terms; raise InputError with the wrong key."""
    try:
        return AlignTerms.model_validate(tables(path))
    except OSError as error:
        raise _unreadable(path, error) from None
    except ValidationError as error:
        first = by_weight(error.errors(include_url=False))[0]
        where = "".join(f"{part}: " for part in first["loc"])
        said = first["msg"].removeprefix("Value error, ")
        raise InputError(f"{path}: {where}{said}{closed(hint_of(AlignTerms, first))}") from None
    except ValueError as error:
        raise InputError(f"{path}: not TOML: {error}") from None


def digest_of_terms(path: Path) -> str:
    """Return the sha256 of the file, which shows the parties that their files are the same."""
    try:
        return sha256_of(path)
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> InputError:
    what = f"cannot be read ({error.strerror}); name the file that all parties have agreed on"
    return InputError(f"{path}: {what}")
