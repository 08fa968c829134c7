"""What the paper states about its results, as data that can be tested: `paper/statements.json`, and its types.

A statement names rows of a study by their labels and says how a metric of these rows should compare. What
the paper's own numbers say about it is computed here; what a store's runs say is computed in `verdicts`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from harness.errors import DataError

from .numbers import Number, checked, read_json, tables

KINDS = {
    "higher": "the first is higher than the second",
    "lower": "the first is lower than the second",
    "above": "the row is above the neutral value",
    "below": "the row is below the neutral value",
    "nearer": "the first is nearer to the neutral value than the second",
    "factor_at_most": "the first is at most so many times the second",
    "gain_at_most": "the first exceeds the second by at most so much",
    "more_spread": "the first varies more over seeds than the second",
}
"""How rows are compared. For every kind, an effect above 0 supports the statement."""

FIGURES = ("1(a)", "2(a)", "2(b)", "2(c)", "2(d)", "5(a)", "5(b)", "A", "B")
"""The figures of the paper that show measurements, as the paper numbers them."""

SECTIONS = ("Limitations",)
"""The sections of the paper that assert something without showing a measurement of it."""

_ALONE = ("above", "below")
_BOUNDED = ("factor_at_most", "gain_at_most")
_REFERRED = ("above", "below", "nearer")
_NUMBER = (int, float, type(None))
_FIELDS: dict[str, Any] = dict.fromkeys(("id", "where", "text", "kind", "metric", "reading"), str) | {
    "study": (str, type(None)),
    "each": dict,
    "pairs": list,
    "bound": _NUMBER,
    "reference": _NUMBER,
    "margin": _NUMBER,
    "premises": list,
}


FILE = Path(__file__).with_name("statements.json")


@dataclass(frozen=True)
class Term:
    """One value of a row."""

    labels: Mapping[str, str | bool]
    metric: str


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a row's value, or by how much it exceeds another row's."""

    term: Term
    less: Term | None = None

    @property
    def terms(self) -> tuple[Term, ...]:
        return (self.term,) if self.less is None else (self.term, self.less)


@dataclass(frozen=True)
class Pair:
    """Two sides; the second is None if the first is compared with the neutral value."""

    first: Side
    second: Side | None

    @property
    def sides(self) -> tuple[Side, ...]:
        return (self.first,) if self.second is None else (self.first, self.second)


@dataclass(frozen=True)
class Statement:
    """A statement, in our words, and its test: the kind of comparison and the pairs that it must hold for."""

    id: str
    where: str
    """The table or figure that shows it: "Table 3", "Figure 2(d)"; or the section that asserts it."""
    study: str | None
    text: str
    kind: str
    metric: str
    pairs: tuple[Pair, ...]
    bound: float | None
    """Upper limit of a factor or a gain."""
    reference: float | None
    """The paper's neutral value; the reference of a study's column takes precedence."""
    reading: str
    """Where the paper gives no number ("negligible"): what we take it to mean."""
    margin: float | None = None
    """Differences below this count as none: what lies within it is equivalent."""
    each: tuple[str, ...] = ()
    """The labels for whose every combination the statement is made."""
    premises: tuple[str, ...] = ()
    """What it takes for granted, by the names of `premises.PREMISES`."""
    patterns: int = 1
    """How many of the pairs belong to each of these combinations."""

    @property
    def everywhere(self) -> list[tuple[Pair, ...]]:
        """By pattern, its pairs of all combinations, where there are several: what is stated of all methods."""
        several = len(self.pairs) > self.patterns
        return [self.pairs[number :: self.patterns] for number in range(self.patterns)] if several else []


@lru_cache(maxsize=1)
def statements() -> tuple[Statement, ...]:
    """Every statement. Raises `DataError` if the file is malformed."""
    return load(FILE)


def load(file: Path) -> tuple[Statement, ...]:
    """The statements of a file. Raises `DataError`."""
    document = read_json(file)
    if not isinstance(document, list):
        raise DataError(f"{file}: expected a list of statements")
    found = tuple(_statement(f"{file}: statement {number}", one) for number, one in enumerate(document, 1))
    ids = [statement.id for statement in found]
    if len(set(ids)) < len(ids):
        raise DataError(f"{file}: two statements are named {next(one for one in ids if ids.count(one) > 1)!r}")
    return found


def effect_of(kind: str, first: float, second: float, bound: float, neutral: tuple[float, float]) -> float:
    """By how much the statement holds; `neutral` is the neutral value of each side. Not for kind "more_spread"."""
    effects = {
        "higher": first - second,
        "lower": second - first,
        "above": first - neutral[0],
        "below": neutral[0] - first,
        "nearer": abs(second - neutral[1]) - abs(first - neutral[0]),
        "factor_at_most": bound - first / second if second else -math.inf if first else bound,
        "gain_at_most": bound - (first - second),
    }
    # Rounded: 0.52 and 0.48 are equally far from 0.5, despite binary rounding.
    return round(effects[kind], 12)


def printed_effect(statement: Statement, pair: Pair, dataset: str) -> float | None:
    """The effect by the paper's own numbers on one of its data sets; None if it does not print all of them."""
    numbers = [[_printed(statement, term, dataset) for term in side.terms] for side in pair.sides]
    if any(number is None for side in numbers for number in side):
        return None
    if statement.kind == "more_spread":
        spreads = [float(number.deviation) for (number,) in numbers if number and number.deviation]
        return round(spreads[0] - spreads[1], 12) if len(spreads) == 2 else None
    values = [[float(number.mean) for number in side if number] for side in numbers]
    first, second = (side[0] - sum(side[1:]) for side in (values[0], values[-1]))
    neutral = 0.0 if statement.reference is None else statement.reference
    return effect_of(statement.kind, first, second, statement.bound or 0.0, (neutral, neutral))


def _printed(statement: Statement, term: Term, dataset: str) -> Number | None:
    for table in tables():
        # A figure prints no numbers; the tables of its study show the same runs.
        if table.name == statement.where or (statement.study and table.study == statement.study):
            for row in table.rows:
                if dict(row.labels) == dict(term.labels):
                    for column, value in zip(table.columns, row.values, strict=True):
                        if (column.metric, column.dataset) == (term.metric, dataset) and value:
                            return value
    return None


def _statement(place: str, document: Any) -> Statement:
    document = {"margin": None, "premises": [], **document} if isinstance(document, dict) else document
    checked(place, document, _FIELDS)
    place = f"{place} ({document['id']})"
    where, kind = document["where"], document["kind"]
    places = [*(table.name for table in tables()), *(f"Figure {figure}" for figure in FIGURES), *SECTIONS]
    if where not in places:
        raise DataError(f"{place}: the paper has no {where!r} with measurements or statements about them")
    if kind not in KINDS:
        raise DataError(f"{place}: the kind is {kind!r}; allowed: {', '.join(KINDS)}")
    if (document["bound"] is None) == (kind in _BOUNDED):
        raise DataError(f"{place}: kinds {' and '.join(_BOUNDED)}, and no others, need a bound")
    if (document["reference"] is None) == (kind in _REFERRED):
        raise DataError(f"{place}: kinds {', '.join(_REFERRED)}, and no others, need a reference")
    if document["bound"] is not None and not document["reading"]:
        raise DataError(f"{place}: a bound is our reading of the paper's words; explain it in `reading`")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", document["id"]):
        raise DataError(f"{place}: an id must be lower-case words joined by hyphens")
    pairs = tuple(_pairs(place, document))
    if not pairs:
        raise DataError(f"{place}: it has no pairs to compare")
    names = ("id", "where", "study", "text", "kind", "metric", "bound", "reference", "reading", "margin")
    given = {name: document[name] for name in names}
    each, premises = tuple(document["each"]), tuple(document["premises"])
    return Statement(pairs=pairs, each=each, patterns=len(document["pairs"]), premises=premises, **given)


def _pairs(place: str, document: Mapping[str, Any]) -> Iterator[Pair]:
    """The pairs for every combination of the labels under `each`."""
    each = document["each"]
    if not all(isinstance(labels, list) for labels in each.values()):
        raise DataError(f"{place}: `each` must hold lists of labels")
    for labels in product(*each.values()):
        common = dict(zip(each, labels, strict=True))
        for pair in document["pairs"]:
            if not isinstance(pair, list) or len(pair) != (1 if document["kind"] in _ALONE else 2):
                raise DataError(f"{place}: a pair is a list of two sides, or of one for {' and '.join(_ALONE)}")
            sides = [_side(place, side, common, document["metric"]) for side in pair]
            yield Pair(sides[0], sides[1] if len(sides) == 2 else None)


def _side(place: str, side: Any, common: Mapping[str, str | bool], metric: str) -> Side:
    if isinstance(side, list) and len(side) == 2:
        return Side(*(_term(place, term, common, metric) for term in side))
    return Side(_term(place, side, common, metric))


def _term(place: str, term: Any, common: Mapping[str, str | bool], metric: str) -> Term:
    if not isinstance(term, dict) or not all(isinstance(label, str | bool) for label in term.values()):
        raise DataError(f"{place}: {term!r} is neither the labels of a row nor a list of two such labels")
    # A row's own metric is given with its labels, under a name that no label has.
    own = {**common, **term}
    return Term({name: label for name, label in own.items() if name != "@metric"}, str(own.get("@metric", metric)))
