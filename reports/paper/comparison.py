"""A study's runs beside the paper's numbers, and notes on the paper's statements. Knows no particular study.

The result is grids of text with the scale above them, so that a small run cannot be mistaken for the
paper's.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.study.study import Study

from ..compared import Compared, column_of
from ..evidence import Findings
from ..grid import Grid
from ..values import TIED, Table, TableRow, Value, ValueColumn, label_text, shown, signed
from ..words import DASH
from .numbers import Number, beside, quoted, tables
from .premises import premise_notes
from .statements import Statement, statements

SCALES = ("paper", "official")
"""The presets whose numbers may be subtracted from the paper's: its own scale, and that of its released code."""


def is_in_the_paper(study: Study) -> bool:
    """Whether a table of the paper shows what the study rebuilds."""
    return any(one.study == study.name for one in tables())


def beside_the_paper(findings: Findings, table: Table) -> Grid:
    """One line for each row, data set and metric of the paper for which this store or the paper has a value.

    A table of which the paper prints no number has all its metrics. Differences are of values of one data set and one
    scale; without any there is no column of them.
    """
    study, rows = findings.study, []
    alike = [column for column in table.columns if is_alike(findings, column)]
    own = [row for block in table.blocks for row in block if row.name is None]
    known_there = {column.metric for row in own for column in table.columns if printed(study, row, column) is not None}
    for row in own:
        for column, value in zip(table.columns, row.values, strict=True):
            number = printed(study, row, column)
            if (value.measurements and (column.metric in known_there or not known_there)) or number is not None:
                labels = [label_text(label) for label in row.labels]
                cells = _beside(row, column, value, number, column in alike)
                rows.append((*labels, column.dataset, column.label, *(cells if alike else cells[:-1])))
    known = {name: beside(name, study.name) for name in dict.fromkeys(column.dataset for column in table.columns)}
    foreign = [name for name, other in known.items() if other != name]
    heading = "Paper"
    notes = []
    if foreign:
        theirs = known[foreign[0]]
        heading = f"Paper ({theirs})" if len(foreign) == len(table.datasets) else f"Paper (or its {theirs})"
        notes.append(f"The paper has no {', '.join(foreign)}: the values next to ours are those on {theirs}.")
    if not alike:
        notes.append("Differences are shown where data set and preset are the paper's.")
    return Grid(
        name=f"{study.name}-paper",
        title=f"{table.title}: this store compared with the paper",
        scale=table.scale,
        headings=(*table.labels, "Data set", "Metric", "Ours", "Seeds", heading, *(["Difference"] if alike else [])),
        rows=tuple(rows),
        numeric=(*(False for _ in table.labels), False, False, True, True, True, *([True] if alike else [])),
        notes=(*notes, *table_remarks(study), *(note for note in table.notes if not note.startswith(TIED))),
    )


def table_remarks(study: Study) -> list[str]:
    """What a reader of the paper's tables must know of them."""
    return [f"{one.name}: {one.remark}" for one in tables() if one.study == study.name and one.remark]


def printed(study: Study, row: TableRow, column: ValueColumn) -> Number | None:
    """The paper's number for a value of the study's table; of another data set where it does not have the column's."""
    return quoted(study.name, study.rows[row.number].labels, column.metric, beside(column.dataset, study.name))


def is_alike(findings: Findings, column: ValueColumn) -> bool:
    """Whether our values of the column and the paper's are of one data set and one scale."""
    own_scale = findings.preset.name in SCALES and not findings.overrides
    return own_scale and beside(column.dataset, findings.study.name) == column.dataset


def statement_notes(study: Study, judged: Sequence[Compared]) -> list[str]:
    """What a reader of the judged statements must know of them: bounds, readings, neutral values, other data sets."""
    names = {one.name for one in judged}
    asked = [one for one in statements() if one.study == study.name and one.text in names]
    bounded = any(one.bound is not None for one in asked)
    return [
        *(["Where a bound is stated, the effect is what is left up to it."] if bounded else []),
        *dict.fromkeys(one.reading for one in asked if one.reading),
        *_neutral(study, asked),
        *_other_data(study, judged),
        *premise_notes(judged),
    ]


def _neutral(study: Study, asked: Sequence[Statement]) -> list[str]:
    """A note for columns where our effects and the paper's have different neutral values."""
    lines = {}
    for statement in (one for one in asked if one.reference is not None):
        column = column_of(study, statement.metric)
        if column is not None and column.reference not in (None, statement.reference):
            lines[column.label] = (
                f"{column.label}: the paper takes {statement.reference} for neutral, and so does the paper's effect; "
                "ours takes the neutral value of each run."
            )
    return [*lines.values()]


def _other_data(study: Study, judged: Sequence[Compared]) -> list[str]:
    """Notes for data sets that the paper does not have."""
    foreign = [name for name in dict.fromkeys(one.dataset for one in judged) if beside(name, study.name) != name]
    if not foreign:
        return []
    theirs = beside(foreign[0], study.name)
    lines = [f"The paper has no {', '.join(foreign)}: the paper's effect is that on {theirs}."]
    if any(row.source == "paper" for row in study.rows):
        lines.append("Quoted rows are compared on data sets of the paper only: here there is no data of theirs.")
    return lines


def _beside(
    row: TableRow, column: ValueColumn, value: Value, number: Number | None, alike: bool
) -> tuple[str, str, str, str]:
    """Our value, the number of seeds behind it, the paper's value, and, if alike, our value minus the paper's."""
    paper = DASH if number is None else _with_deviation(number.mean, number.deviation or "")
    if row.source == "paper" or not value.numbers:
        asked = len(value.measurements) if row.source == "runs" else 0
        return DASH, f"0 of {asked}" if asked else DASH, paper, DASH
    seeds = f"{len(value.numbers)}" + (f" of {len(value.measurements)}" if value.count else "")
    mean = sum(value.numbers) / len(value.numbers)
    difference = DASH if number is None or not alike else signed(shown(mean - float(number.mean), column.digits))
    return (
        _with_deviation(value.mean, value.deviation),
        seeds if row.source == "runs" else DASH,
        paper,
        difference,
    )


def _with_deviation(mean: str, deviation: str) -> str:
    return f"{mean} ± {deviation}" if deviation else mean
