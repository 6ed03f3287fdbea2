"""What a column of a table seems to be, by its values: a line of a spec, and why it is left out."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from data_prep.dataset import codes_among, negative_first, paired
from data_prep.tables.values import (
    CENTURY,
    FEW,
    ISO,
    MOST_NUMBERS,
    MOST_TEXTS,
    SHORT,
    Notation,
    Tally,
    forms_of,
    is_category,
    is_index,
    is_named_id,
    likeliest,
    likely,
    listed,
    looks_like_id,
    ordered,
    spelled,
)
from mpifl.common import visible

SINCE = "2000-01-01"
"""The day that is 0 of dates: the same at all sites."""


@dataclass(frozen=True)
class Guess:
    """What a column is taken for.

    Attributes:
        line: That of the spec.
        told: What its owner should hear: why it is left out, or why it may have to be, with the first value.
        repeats: Whether it is an id that several rows share, or has texts that repeat and are many.
        lines: That of the spec of each table, where tables write its dates in different orders.
    """

    line: str
    told: str = ""
    repeats: bool = False
    lines: tuple[str, ...] = ()

    def of_table(self, at: int) -> str:
        """Return the line of the spec of a table, by its place."""
        return self.lines[at] if self.lines else self.line

    def in_orders(self, tally: Tally) -> Guess:
        """Return a column of dates with the order of each table, where each has one and they are not all as
        ISO 8601 has it."""
        forms = [likeliest(of) for of in tally.forms_of_tables]
        if 'kind = "date"' not in self.line or any(len(of) != 1 for of in forms) or {*forms} == {(ISO,)}:
            return self
        orders = [f', format = "{form}"' if form != ISO else "" for (form,) in forms]
        return replace(self, lines=tuple(f"{self.line.removesuffix(' }')}{order} }}" for order in orders))


MOST_UNLIKE_LEVELS = 20
"""The most levels of a column of which spellings are compared between tables."""


def guessed(name: str, tally: Tally, *, stated: bool = False) -> Guess:
    """Return what a column is taken for; levels are `stated` where silos are to understand each other."""
    if tally.first is None:
        return _left_out(name, "it has no value")
    dated = tally.dates or forms_of([tally.first.value])
    is_id = is_named_id(name) and (tally.odd or tally.whole) and not dated
    if is_index(name) or (is_id and not is_category(name, tally)):
        counted = f"{tally.different:,} values in {tally.looked:,} rows, " * bool(tally.looked)
        why = "its name says that it is an id" if name.strip() else "which is an index"
        out = _left_out(name, f"{why}: {counted}first {tally.first}")
        return replace(out, repeats=tally.repeats)
    if tally.code:
        return _code(name, tally)
    if tally.notation in {*tally.ways.all} - {*tally.ways.certain}:
        return _doubted(name, tally, tally.notation)
    if not tally.odd:
        if tally.known > 2 and tally.steps:
            return _left_out(name, f"it numbers the rows, first {tally.first}")
        kind = '{ kind = "numeric", missing = "mean" }' if tally.gaps else '"numeric"'
        why = looks_like_id(tally)
        said = f"kept: {name}, {why}, first {tally.first}; remove it if it is an id"
        return Guess(f"{key_of(name)} = {kind}", said if why else "")
    date = Guess(f'{key_of(name)} = {{ kind = "date", since = "{SINCE}"{_filled(tally)} }}')
    if len({*tally.forms_of_tables}) > 1 and (ordered_apart := date.in_orders(tally)).lines:
        return ordered_apart
    if tally.dates and tally.undated:
        remedy = "write dates as 2000-12-31, or list it in 'missing'"
        wrong = f"all values are dates but for {tally.undated.total():,}, first {tally.first_undated}"
        return _left_out(name, f"{wrong}; {remedy}")
    if tally.dates:
        return date
    if tally.forms:
        return _dates(name, tally)
    return _texts(name, tally, stated)


def _dates(name: str, tally: Tally) -> Guess:
    """Return a column of dates in another order than that of ISO 8601; left out where two are possible."""
    form, *others = likeliest(tally.forms)
    told = f'kind = "date", since = "{SINCE}", format = "{form}"'
    if others:
        remedy = f"say {{ {told} }}, or {' or '.join(map(quoted, others))}"
        return _left_out(name, f"{tally.first} may be a date in two orders; {remedy}")
    return Guess(f"{key_of(name)} = {{ {told}{_filled(tally)} }}")


def _filled(tally: Tally) -> str:
    """Return what a column of dates says of missing values, if there are some."""
    return ', missing = "mean"' * bool(tally.gaps)


def _code(name: str, tally: Tally) -> Guess:
    """Return a column of codes: categories by their texts, or left out where these are many."""
    said = f"{tally.code} begins with 0"
    if len(tally.texts) > MOST_TEXTS:
        found = max(tally.different, len(tally.texts))
        out = _left_out(name, f"{said}, as codes do, and there are {found:,} different ones")
        return replace(out, repeats=tally.shared)
    levels = listed([text] for text in ordered(set(tally.texts)))
    value = f'categorical", levels = {levels}{", missing = " + quoted("level") if tally.gaps else ""}'
    remedy = 'so texts are categories; say "numeric" if not'
    return Guess(f'{key_of(name)} = {{ kind = "{value} }}', f"code: {name}, {said}, {remedy}")


def _doubted(name: str, tally: Tally, way: Notation) -> Guess:
    """Leave out a column whose mark of thousands may be one of a fraction."""
    means = f"may mean two things, of which one is {' and '.join(way.written())}"
    return _left_out(name, f"{tally.ways.marked[way]} {means}; write all numbers alike, and say it")


def _texts(name: str, tally: Tally, stated: bool) -> Guess:
    """Return what a column is taken for of which some values are no numbers."""
    if tally.notation in tally.ways.all:
        return _left_out(name, f"{tally.first_odd} is too large a number; correct it, or use another unit")
    if tally.ways.all and not tally.ways.certain:
        return _doubted(name, tally, tally.ways.all[0])
    if ways := _ways(tally):
        said = f"{tally.first_odd} is a number by {' or '.join(ways)}; write all numbers alike, and say it"
        return _left_out(name, said)
    if tally.odd <= FEW * tally.known and len(tally.numbers) > MOST_NUMBERS:
        remedy = "correct it, or list it in 'missing'"
        what = f"all values are numbers but for {tally.odd:,}, first {tally.first_odd}"
        return _left_out(name, f"{what}; {remedy}")
    if tally.first and (forms := forms_of([tally.first.value])):
        odd = tally.first_undated if forms[0] == ISO else tally.first_unformed
        what = f'{tally.first} is a date by format = "{forms[0]}", and {odd} is none'
        is_date = odd is not None and (forms_of([odd.value]) or SHORT.fullmatch(odd.value))
        others = "" if is_date else ", or list others in 'missing'"
        return _left_out(name, f"{what}; write all dates alike{others}")
    if tally.first and SHORT.fullmatch(tally.first.value):
        return _left_out(name, f"{tally.first} is {CENTURY}")
    if len(tally.texts) > MOST_TEXTS:
        found = max(tally.different, len(tally.texts))
        out = _left_out(name, f"{found:,} different texts, first {tally.first_odd}")
        return replace(out, repeats=tally.shared)
    return _levels(name, tally, stated)


def _levels(name: str, tally: Tally, every: bool) -> Guess:
    """Return a column of categories, its levels stated where some are spelled in several ways."""
    levels = sorted(tally.texts)
    shown = ", ".join(itertools.islice(levels, 6)) + (", ..." if len(levels) > 6 else "")
    gaps, (stated, told) = ', missing = "level"' * bool(tally.gaps), _spelled(name, "levels", tally, every)
    more = f"{f', levels = {stated}' if stated else ''}{gaps}"
    value = f'{{ kind = "categorical"{more} }}' if more else '"categorical"'
    return Guess(f"{key_of(name)} = {value}  # {_one_line(shown)}", told)


def classes_of(name: str, tally: Tally, *, stated: bool = False) -> Guess:
    """Return the classes of a label, if some are spelled in several ways or all are to be `stated`; else an
    empty line."""
    if len(tally.texts) > MOST_TEXTS:
        remedy = "see whether it is a category" if tally.odd else "--kind numeric learns it as a number"
        return Guess(
            "", f"label: {name} has over {MOST_TEXTS} different values, first {tally.first}; {remedy}"
        )
    inverted = (first := ordered({*_by_spelling(tally)})) != negative_first(first)
    listing, told = _spelled(name, "classes", tally, stated or inverted)
    return Guess(f"classes = {listing}" if listing else "", told)


def counted_classes(tally: Tally, stated: Sequence[Sequence[str]] = ()) -> dict[str, int]:
    """Return how many rows a label has of each class, in the order of the classes; those that are stated, or
    those that occur."""
    if stated:
        return {one[0]: sum(tally.texts[text] for text in one) for one in stated}
    found = _by_spelling(tally)
    return {first: sum(tally.texts[text] for text in found[first]) for first in _in_order(found)}


def coded_apart(name: str, tally: Tally, tables: Sequence[Path]) -> list[Guess]:
    """Return what to say of a label of which each table has two classes at most, and all have more, and the
    line of the spec that mends it, as a comment."""
    each = tally.texts_of_tables if len(tally.texts) <= MOST_TEXTS else []
    first = {text: one for one, spellings in _by_spelling(tally).items() for text in spellings}
    codes = [tuple(ordered({first[text] for text in own})) for own in each]
    if not codes or max(map(len, codes)) > 2 or len({*first.values()}) < 3:
        return []
    tables_of: dict[tuple[str, ...], list[str]] = {}
    for code, table in zip(codes, tables, strict=True):
        tables_of.setdefault(code, []).append(visible(table.name))
    there = (f"{', '.join(map(visible, code))} in {', '.join(of)}" for code, of in tables_of.items())
    what = f"label: {name} is {'; '.join(there)}"
    if {len(code) for code in tables_of} != {2} or 2 * len(tables_of) != len({*first.values()}):
        return [Guess("", f"{what}; code it alike in all tables")]
    rows = {one: sum(tally.texts[text] for text in texts) for one, texts in _by_spelling(tally).items()}
    pairs = paired([*tables_of], rows)
    shown = zip(tables_of, pairs[-1] if pairs else [code[-1] for code in tables_of], strict=True)
    shares = [f"{visible(one)} {rows[one] / sum(rows[each] for each in code):.1%}" for code, one in shown]
    if not pairs:
        remedy = f"{' and '.join(shares)} of rows do not tell which are one"
        return [
            Guess("", f"{what}; {remedy}: see how tables code it, and write in one [ ] what means the same")
        ]
    mend, means = f"classes = {listed(pairs)}", f"if that is what they mean ({', '.join(shares)} of rows)"
    return [
        Guess(
            f"# {mend}  # in place of that, {_one_line(means)}", f"{what}; write {mend} in the spec, {means}"
        )
    ]


def _by_spelling(tally: Tally) -> dict[str, tuple[str, ...]]:
    """Return all spellings of each value, the more frequent first, by the first."""
    often = sorted(tally.texts, key=lambda text: (-tally.texts[text], text))
    return {one[0]: (*one,) for one in spelled(often, lambda text: likely(text, tally.notation))}


def _in_order(values: Iterable[str]) -> list[str]:
    """Return values in the order of their numbers: sorted, and no before yes."""
    return negative_first(ordered({*values}))


def _spelled(name: str, key: str, tally: Tally, every: bool) -> tuple[str, str]:
    """Return values by their spellings, and what to say of it; where each has one, nothing or `every` one."""
    found = _by_spelling(tally)
    if len(found) == len(tally.texts):
        return (listed(found[first] for first in _in_order(found)) if every else ""), ""
    one = next(one for one in found.values() if len(one) > 1)
    counted = " and ".join(f"'{text}' ({tally.texts[text]:,} times)" for text in one)
    said = f"spelled: {name} {counted}, taken for one; list them apart in '{key}' if they are not"
    return listed(found[first] for first in _in_order(found)), said


def _ways(tally: Tally) -> list[str]:
    """Return the keys by which all values are numbers, of those by which they are the same one alone."""
    found: list[Notation] = []
    for way in tally.ways.all:
        if all((way, other) in tally.ways.apart for other in found):
            found.append(way)
    return [" and ".join(way.written() or ['decimal = "."']) for way in found]


def codes_told(guesses: Mapping[str, Guess], label: Sequence[str], tallies: Mapping[str, Tally]) -> list[str]:
    """Say in which columns of categories, or label, a value is probably a code for a missing one."""
    said = []
    for name in (*(name for name, guess in guesses.items() if "categorical" in guess.line), *label):
        texts = tallies[name].texts
        if len(texts) <= MOST_TEXTS and (codes := codes_among([*texts])):
            named, stated = " and ".join(map(repr, codes)), ", ".join(map(repr, codes))
            what = f"code: {name} has {named} among its values; is it a missing value?"
            said.append(f"{what} Then write the spec's missing = [..., {stated}]")
    return said


def key_of(name: str) -> str:
    """Return a column's name as a key of TOML."""
    return name if name.isascii() and name.replace("_", "").replace("-", "").isalnum() else quoted(name)


def quoted(text: str) -> str:
    """Return a text as TOML has it in quotes."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML takes it escaped alone


def _left_out(name: str, why: str) -> Guess:
    called = name if name.strip() else "the column without a name"
    return Guess(f"# {key_of(name)} is left out: {_one_line(why)}", f"left out: {called}, {why}")


def _one_line(text: str) -> str:
    return " ".join(visible(text).split())


def unlike_levels(
    guesses: Mapping[str, Guess], label: Sequence[str], tallies: Mapping[str, Tally], tables: Sequence[Path]
) -> list[str]:
    """Say in which columns of levels or classes a table has no value in common with the others: sites may
    spell the same ones in their own way."""
    said = []
    of_levels = (name for name, guess in guesses.items() if "categorical" in guess.line)
    for name in (*of_levels, *label):
        found = tallies[name]
        each = found.texts_of_tables if len(found.texts) <= MOST_UNLIKE_LEVELS else []
        others = [set().union(*each[:at], *each[at + 1 :]) for at in range(len(each))]
        apart = [at for at, own in enumerate(each) if own and others[at] and not own & others[at]]
        one = {text: first for first, spellings in _by_spelling(found).items() for text in spellings}
        for at in apart[:1]:
            own, rest = ({one[text] for text in of} for of in (each[at], others[at]))
            if own - rest and rest - own:  # what is one value already is none to write together
                there, elsewhere = (", ".join(map(visible, sorted(of))) for of in (own - rest, rest - own))
                what = f"spellings: {name} has {there} in {tables[at].name}, and {elsewhere} in the others"
                said.append(f"{what}; write together what means the same, in one [ ]")
    return said
