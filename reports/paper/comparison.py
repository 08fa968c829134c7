"""Compares a study's runs with the paper: both values and their difference, and verdicts on the paper's statements.

The result is grids of text with the scale above them, so that a small run cannot be mistaken for the
paper's. Knows no particular study.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.components.preset import Preset
from harness.study.study import Study

from ..evidence import find
from ..grid import Grid
from ..tables import lay_out
from ..values import Table, TableRow, Value, ValueColumn, label_text, shown
from .numbers import Number, beside, quoted, tables
from .statements import Pair, Side, Term
from .verdicts import VERDICTS, Judgement, column_of, judge

if TYPE_CHECKING:
    from harness.stores.store import Store

DASH = "–"
METRIC = "metric"


def build(
    study: Study,
    preset: Preset,
    store: Store,
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    where: str | None = None,
) -> list[Grid]:
    """Numbers beside the paper's, and judged statements; an empty list for a study that is not in the paper.

    See `evidence.find` for what the arguments mean. Raises `InvalidConfiguration`.
    """
    findings = find(study, preset, store, seeds, overrides, where)
    table = lay_out(findings)
    grids = []
    if any(one.study == study.name for one in tables()):
        grids.append(beside_the_paper(study, table))
    judgements = judge(study, preset, findings.counted)
    if judgements:
        grids.append(statements_judged(study, table, judgements))
    return grids


def beside_the_paper(study: Study, table: Table) -> Grid:
    """One line for each row, metric and data set for which this store or the paper has a value."""
    rows = []
    for row in (row for block in table.blocks for row in block if row.name is None):
        for column, value in zip(table.columns, row.values, strict=True):
            theirs = beside(column.dataset, study.name)
            number = quoted(study.name, study.rows[row.number].labels, column.metric, theirs)
            if number is not None or value.measurements:
                labels = [label_text(label) for label in row.labels]
                rows.append((*labels, column.dataset, column.label, *_beside(row, column, value, number)))
    known = {name: beside(name, study.name) for name in dict.fromkeys(column.dataset for column in table.columns)}
    foreign = [name for name, other in known.items() if other != name]
    heading = "Paper"
    notes = []
    if foreign:
        theirs = known[foreign[0]]
        heading = f"Paper ({theirs})" if len(foreign) == len(table.datasets) else f"Paper (or its {theirs})"
        notes.append(
            f"The paper has no {', '.join(foreign)}: its {theirs} values stand beside, and the difference is "
            "between two data sets."
        )
    notes += [f"{one.name}: {one.remark}" for one in tables() if one.study == study.name and one.remark]
    return Grid(
        name=f"{study.name}-paper",
        title=f"{table.title}: this store beside the paper",
        scale=table.scale,
        headings=(*table.labels, "Data set", "Metric", "Ours", "Seeds", heading, "Difference"),
        rows=tuple(rows),
        numeric=(*(False for _ in table.labels), False, False, True, True, True, True),
        notes=(*notes, *table.notes),
    )


def statements_judged(study: Study, table: Table, judgements: Sequence[Judgement]) -> Grid:
    """One line for each statement, pair of rows and data set."""
    counts = Counter(one.verdict for one in judgements)
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    readings = dict.fromkeys(one.statement.reading for one in judgements if one.statement.reading)
    bounded = any(one.statement.bound is not None for one in judgements)
    return Grid(
        name=f"{study.name}-statements",
        title=f"{table.title}: the paper's statements",
        scale=table.scale,
        headings=(
            "Statement",
            "Where",
            "Rows",
            "Data set",
            "Effect",
            "95 % interval",
            "Paper's effect",
            "Seeds",
            "Verdict",
        ),
        rows=tuple(_judged(study, one) for one in judgements),
        numeric=(False, False, False, False, True, False, True, True, False),
        notes=(
            f"Of {len(judgements)} comparisons: {summary}.",
            "Paired over seeds. An effect above 0 speaks for the statement; the interval is that of a bootstrap over "
            "seeds, and decides where it lies wholly on one side of 0. One seed decides nothing.",
            *_chance(judgements),
            *(["Where a bound is stated, the effect is what is left up to it."] if bounded else []),
            *readings,
            *_neutral(study, judgements),
            *_other_data(study, judgements),
        ),
    )


def _chance(judgements: Sequence[Judgement]) -> list[str]:
    """A note on few seeds: their interval spans all of them, so it decides whenever their signs agree."""
    decided = [len(one.seeds) for one in judgements if one.interval is not None]
    if not decided or min(decided) > 3:
        return ["Each line stands for itself: among many, some are decided by chance."]
    seeds = min(decided)
    return [
        f"Each line stands for itself. With {seeds} seeds, 1 in {2 ** (seeds - 1)} comparisons is decided by chance "
        "where nothing is there to be found; more seeds make that rare."
    ]


def _neutral(study: Study, judgements: Sequence[Judgement]) -> list[str]:
    """A note for columns where our effects and the paper's have different neutral values."""
    lines = {}
    for statement in (one.statement for one in judgements if one.statement.reference is not None):
        column = column_of(study, statement.metric)
        if column is not None and column.reference not in (None, statement.reference):
            lines[column.label] = (
                f"{column.label}: the paper takes {statement.reference} for neutral, and so does the paper's effect; "
                "ours takes the neutral value of each run."
            )
    return [*lines.values()]


def _other_data(study: Study, judgements: Sequence[Judgement]) -> list[str]:
    """Notes for data sets that the paper does not have."""
    foreign = [name for name in dict.fromkeys(one.dataset for one in judgements) if beside(name, study.name) != name]
    if not foreign:
        return []
    theirs = beside(foreign[0], study.name)
    lines = [f"The paper has no {', '.join(foreign)}: the paper's effect is that on {theirs}."]
    if any(row.source == "paper" for row in study.rows):
        lines.append("Quoted rows are compared on data sets of the paper only: here there is no data of theirs.")
    return lines


def _beside(row: TableRow, column: ValueColumn, value: Value, number: Number | None) -> tuple[str, str, str, str]:
    """Our value, the number of seeds behind it, the paper's value, and our value minus the paper's."""
    paper = DASH if number is None else _with_deviation(number.mean, number.deviation or "")
    if row.source == "paper" or not value.numbers:
        asked = len(value.measurements) if row.source == "runs" else 0
        return DASH, f"0 of {asked}" if asked else DASH, paper, DASH
    seeds = f"{len(value.numbers)}" + (f" of {len(value.measurements)}" if value.count else "")
    mean = sum(value.numbers) / len(value.numbers)
    difference = DASH if number is None else _signed(shown(mean - float(number.mean), column.digits))
    return (
        _with_deviation(value.mean, value.deviation),
        seeds if row.source == "runs" else DASH,
        paper,
        difference,
    )


def _with_deviation(mean: str, deviation: str) -> str:
    return f"{mean} ± {deviation}" if deviation else mean


def _signed(text: str) -> str:
    return text if text.startswith("-") or float(text) == 0 else f"+{text}"


def _judged(study: Study, one: Judgement) -> tuple[str, ...]:
    column = column_of(study, one.statement.metric)
    digits = 3 if one.statement.kind == "factor_at_most" else column.digits if column else None
    own = [] if one.effect is None else [one.effect, *(one.interval or ())]
    texts = [*_numbers(own, digits), DASH, DASH, DASH][:3]
    return (
        one.statement.text,
        one.statement.where,
        _compared(one.pair),
        one.dataset,
        texts[0],
        DASH if one.interval is None else f"{texts[1]} to {texts[2]}",
        DASH if one.printed is None else _numbers([one.printed], digits)[0],
        str(len(one.seeds)),
        one.verdict,
    )


def _numbers(numbers: Sequence[float], digits: int | None) -> list[str]:
    """Signed, with the same number of digits: the column's, or more until no nonzero number reads as 0."""
    if digits is None:
        return [_signed(f"{number:.3g}") for number in numbers]
    enough = next((more for more in range(6) if all(round(n, digits + more) or not n for n in numbers)), 6)
    return [_signed(shown(number, digits + enough)) for number in numbers]


def _compared(pair: Pair) -> str:
    """The rows in words: first the shared labels, then the different ones."""
    every = [_named(term) for side in pair.sides for term in side.terms]
    shared = [name for name in every[0] if all(labels[name] == every[0][name] for labels in every)]
    common = ", ".join(_words(every[0], [name for name in shared if name != METRIC]))
    against = " against ".join(_side(side, shared) for side in pair.sides)
    return ": ".join(filter(None, [common, against]))


def _named(term: Term) -> dict[str, str | bool]:
    """A row's labels and its metric, since two sides may differ only in the metric."""
    return {**term.labels, METRIC: term.metric}


def _side(side: Side, shared: Sequence[str]) -> str:
    texts = [", ".join(_words(_named(one), [name for name in _named(one) if name not in shared])) for one in side.terms]
    return texts[0] if len(texts) == 1 else f"({texts[0]} less {texts[1]})"


def _words(labels: Mapping[str, str | bool], names: Sequence[str]) -> Iterator[str]:
    for name in names:
        label = labels[name]
        if isinstance(label, bool):
            yield name if label else f"no {name}"
        elif label != DASH:
            # A bare number says nothing without its name.
            yield f"{name} = {label}" if label[:1].isdigit() else label
