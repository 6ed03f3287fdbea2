"""The schemes that cut a data set into silos."""

from __future__ import annotations

from typing import Any

from data_prep.schemes.given_sizes import Stated, counts, sizes
from data_prep.schemes.iid import iid
from data_prep.schemes.mix import Mix
from data_prep.schemes.natural import Natural, natural
from data_prep.schemes.own_scheme import own_scheme
from data_prep.schemes.scheme import EffectPlace, Options, Scheme
from data_prep.schemes.scheme_registry import PLAIN
from data_prep.schemes.vertical import Vertical, deal_columns
from mpifl.common import InputError, choices, did_you_mean

__all__ = ["SCHEMES", "EffectPlace", "Options", "Scheme", "find_scheme", "flag", "resolve"]

SCHEMES: dict[str, Scheme] = {
    **PLAIN,
    "natural": Natural(natural, column="silo"),
    "sizes": Stated(sizes),
    "counts": Stated(counts, by_class=True),
    "mix": Mix(iid),
    "vertical": Vertical(deal_columns, layout="vertical"),
}


def find_scheme(name: str) -> Scheme:
    """Return a scheme, or that of the user's `module:function`; raise InputError with the names there are."""
    if ":" in name:
        return own_scheme(name, [*SCHEMES])
    if name not in SCHEMES:
        own = "or your own 'module:function'"
        raise InputError(f"--scheme: '{name}' is unknown; {choices(name, SCHEMES)}, {own}")
    return SCHEMES[name]


def resolve(name: str, scheme: Scheme, given: Options) -> dict[str, Any]:
    """Fill in a scheme's defaults for the options that were not given (None);
    refuse those it does not take."""
    chosen = {option: value for option, value in given.items() if value is not None}
    for option in chosen:
        if option not in scheme.options:
            takes, hint = ", ".join(map(flag, scheme.options)), did_you_mean(option, scheme.options)
            raise InputError(f"{flag(option)}: --scheme {name} does not take it; {hint}it takes {takes}")
    options = scheme.options | chosen
    if options["min_examples"] < 1:
        raise InputError(f"--min-examples: {options['min_examples']} given; a silo needs at least 1")
    return options


def flag(option: str) -> str:
    """Return an option as it is typed."""
    return f"--{option.replace('_', '-')}"
