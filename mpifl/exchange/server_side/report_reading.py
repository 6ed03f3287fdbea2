"""Reading of reports at the server, within size limits that follow from its request.

A record of 23 MB may hold a million replies. Parsing them takes half a minute, and no deadline can end it.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from mpifl.wire import MOST_SCALARS, RECORD_LIMIT, Header, Report, Request, ScoreBatches

MOST_SILOS = 1 << 20
UPDATE_BYTES, REPLY_BYTES, REST_BYTES = 1 << 21, 1 << 14, 1 << 19
"""The most bytes in a report: for each update, for each other reply, and for everything else."""
SHORT_BYTES, SHORT_REPLY_BYTES = 1 << 16, 1 << 9
"""Bytes of a short report: a fixed number, and more for each silo. It is parsed without counting first."""
FEW = 32
"""More fields than any record has. So many extra replies or sums may pass here; later checks name them."""


class Refused(Exception):
    """A report breaks a rule; the message says which."""


def longest_report(request: Request, silos: int) -> int:
    """Return the most bytes that a report may have in which `silos` silos answer a request."""
    if isinstance(request, ScoreBatches):  # the length of its figures depends on the task
        return RECORD_LIMIT
    each = UPDATE_BYTES if request.reply is Header else REPLY_BYTES
    return min(RECORD_LIMIT, REST_BYTES + silos * each)


def read(record: bytes, silos: int = MOST_SILOS) -> Report | Refused:
    """Return the report in a record, of at most `silos` silos, or why it cannot be read."""
    if not record:
        return Refused("it cannot be read: it is empty, or longer than a record may be")
    try:
        if len(record) > SHORT_BYTES + silos * SHORT_REPLY_BYTES:
            _check_counts(from_json(record), silos)
        return Report.model_validate_json(record)
    except Refused as refused:
        return refused
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "JSON"
        return Refused(f"it cannot be read ({where[:100]}: {first['msg'][:100]})")
    except ValueError as error:
        return Refused(f"it cannot be read (JSON: {str(error)[:100]})")
    except RecursionError:
        return Refused("it cannot be read")


def _check_counts(raw: Any, silos: int) -> None:
    """Check that parsed JSON holds no more than a report of `silos` silos may; raise Refused if it holds
    more."""
    _check_count("keys", raw, FEW)
    content = raw if isinstance(raw, dict) else {}
    headers = _of(list, content.get("headers"))
    _check_count("replies of silos", headers, 2 * silos + FEW)
    vectors = 0
    for header in headers:
        _check_count("keys of a reply", header, FEW)
        of_one = _of(dict, header)
        for name in ("scalars", "sealed", "vectors", "losses"):
            _check_count(name, of_one.get(name), MOST_SCALARS)
        told = _of(dict, of_one.get("vectors"))
        vectors += len(told)
        for vector in told.values():
            _check_count("keys of a vector", vector, FEW)
    _check_count(f"parts of {vectors} vectors", content.get("parts"), 2 * vectors + FEW)
    for name in ("about", "hanging"):
        _check_count(name, content.get(name), 1 << 16)


def _of(kind: type[Any], value: Any) -> Any:
    return value if isinstance(value, kind) else kind()


def _check_count(what: str, value: Any, most: int) -> None:
    if isinstance(value, list | dict) and len(value) > most:
        raise Refused(f"it cannot be read ({what}: {len(value)}, at most {most})")
