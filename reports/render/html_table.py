"""Tables as the page's templates expect them: our values, the paper's beside them, and the difference where it means
something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..paper.comparison import is_alike, printed, table_remarks
from ..paper.numbers import Number, beside
from ..tables import neutral_values
from ..units import fitted, unit
from ..values import MARK, Quotation, Table, TableRow, Value, label_text, shown, signed

if TYPE_CHECKING:
    from ..report import Section

MISSING = "—"
MEASURED, PAPER, DIFFERENCE = "measured", "paper", "difference"
NEAREST = "nearest"
ASCENDING, DESCENDING = "ascending", "descending"
FIRST = {"max": DESCENDING, "min": ASCENDING, NEAREST: ASCENDING, None: ASCENDING}
"""By a column's rule, the order that has the best first. What no rule judges is cost or size: the least first."""


@dataclass(frozen=True)
class Leaf:
    """A column of the page: our values of a table's column, the paper's, or our values minus the paper's."""

    kind: str
    place: int
    """The index of the table's column."""


@dataclass(frozen=True)
class PageTable:
    """A table with what the page adds to it."""

    table: Table
    """In units that fit its numbers."""
    units: tuple[str, ...] = ()
    """By column, the unit of the paper where it is another."""
    factors: tuple[float, ...] = ()
    """By column, how many of our units make one of the paper's."""
    paper: Mapping[tuple[int, int], Quotation | Number] = field(default_factory=dict)
    """The paper's values, by index of row and column; empty unless they were asked for."""
    theirs: Mapping[int, str] = field(default_factory=dict)
    """By column, the paper's data set where it is another."""
    alike: frozenset[int] = frozenset()
    """The columns in which ours and the paper's are of one data set and one scale."""
    neutral: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """By row of the study and column, the value that "nearest" compares with."""
    remarks: tuple[str, ...] = ()
    """What a reader of the paper's values must know of them."""

    @property
    def rows(self) -> list[TableRow]:
        return [row for block in self.table.blocks for row in block]

    @property
    def leaves(self) -> list[Leaf]:
        """The columns from left to right."""
        known = {place for _, place in self.paper}
        leaves = []
        for place in range(len(self.table.columns)):
            leaves.append(Leaf(MEASURED, place))
            if place in known:
                leaves.append(Leaf(PAPER, place))
            if place in known & self.alike:
                leaves.append(Leaf(DIFFERENCE, place))
        return leaves


def page_table(section: Section) -> PageTable:
    """The section's table in fitting units; with the paper's values if the report is to compare."""
    study, findings, table = section.findings.study, section.findings, section.table
    said = {sentence.text for sentence in section.sentences}  # the page has them before the notes
    table = replace(table, notes=tuple(note for note in table.notes if note not in said))
    fitting = fitted(table)
    paper: dict[tuple[int, int], Quotation | Number] = {}
    for number, row in enumerate(row for block in table.blocks for row in block):
        if not section.beside or row.name is not None:
            continue
        for place, (column, value) in enumerate(zip(table.columns, row.values, strict=True)):
            if found := value.quotation or printed(study, row, column):
                paper[number, place] = found
    theirs = {place: beside(column.dataset, study.name) for place, column in enumerate(table.columns)}
    units = [(unit(before.label), unit(now.label)) for before, now in zip(table.columns, fitting.columns, strict=True)]
    return PageTable(
        fitting,
        tuple("" if before == now else before for before, now in units),
        tuple(now.scale / before.scale for before, now in zip(table.columns, fitting.columns, strict=True)),
        paper,
        {place: name for place, name in theirs.items() if name != table.columns[place].dataset},
        frozenset(place for place, column in enumerate(table.columns) if is_alike(findings, column)),
        neutral_values(findings.counted, table.columns),
        tuple(table_remarks(study)) if paper else (),
    )


def shown_table(made: PageTable, places: list[dict[str, Any]]) -> dict[str, Any]:
    """The table as the template expects it; adds what its values rest on to the page's places."""
    table, numbers = made.table, iter(range(len(made.rows)))
    return {
        "name": table.study,
        "latex": "",
        "title": table.title,
        "scale": " ".join(filter(None, [table.scale, _paper_scale(made)])),
        "heads": _heads(made),
        "blocks": [
            [_row(made, row, next(numbers), row is not block[0] and table.spanned(block), places) for row in block]
            for block in table.blocks
        ],
        "warnings": table.warnings,
        "notes": [
            *made.remarks,
            *(note for note in table.notes if note not in table.warnings and _is_needed(note, made)),
        ],
    }


def _is_needed(note: str, made: PageTable) -> bool:
    """Whether the page needs the note: where the paper's values have a column, no mark is to be explained."""
    return not (made.paper and note.startswith(MARK))


def _heads(made: PageTable) -> list[list[dict[str, Any]]]:
    """The rows of headings: data sets if there are several, columns, and below them whose values they are."""
    table, leaves = made.table, made.leaves
    grouped = any(leaf.kind == PAPER for leaf in leaves)
    depth = 1 + table.several + grouped
    labels = [
        _head(text, down=depth, sort=place, kind=f"{_kind(table, place)}{' first' if not place else ''}")
        | {"order": ASCENDING if table.has_text(place) else DESCENDING}  # what has a tick first
        for place, text in enumerate(table.labels)
    ]
    rows: list[list[dict[str, Any]]] = [[] for _ in range(depth)]
    rows[0] += labels
    if table.several:
        for (dataset, once), own in groupby(leaves, lambda leaf: _under(table, leaf)):
            rows[0].append(_head("" if once else dataset, across=len(list(own)), kind="over"))
    for place, group in groupby(enumerate(leaves, len(labels)), lambda item: item[1].place):
        members = list(group)
        column = table.columns[place]
        order = {"order": FIRST[column.best], "hint": "nearest to its neutral value first" * (column.best == NEAREST)}
        if len(members) == 1:
            rows[table.several].append(_head(column.label, down=1 + grouped, sort=members[0][0], kind="number") | order)
            continue
        rows[table.several].append(_head(column.label, across=len(members), kind="over"))
        for number, leaf in members:
            text = {MEASURED: "Measured", PAPER: _paper_heading(made, place), DIFFERENCE: "Difference"}[leaf.kind]
            if leaf.kind != MEASURED:
                order = {"order": ASCENDING if column.best in ("min", None) else DESCENDING}
            rows[-1].append(_head(text, sort=number, kind=f"number {leaf.kind}") | order)
    return rows


def _head(text: str, across: int = 1, down: int = 1, sort: int | None = None, kind: str = "") -> dict[str, Any]:
    """A heading; `sort` is the column that it sorts by, `order` the one at the first click."""
    head = {"text": text, "across": across, "down": down, "sort": sort, "kind": kind}
    return head | {"order": ASCENDING, "hint": ""}


def _paper_scale(made: PageTable) -> str:
    """Which data set the paper's values are of, if it is one for all and not ours."""
    known = {made.theirs.get(place, "") for _, place in made.paper}
    return f"The paper: {known.pop()}." if len(known) == 1 and any(known) else ""


def _paper_heading(made: PageTable, place: int) -> str:
    told = ["" if _paper_scale(made) else made.theirs.get(place, ""), made.units[place]]
    return f"Paper ({', '.join(filter(None, told))})" if any(told) else "Paper"


def _under(table: Table, leaf: Leaf) -> tuple[str, bool]:
    column = table.columns[leaf.place]
    return column.dataset, column.once


def _kind(table: Table, place: int) -> str:
    return "words" if table.has_text(place) else "tick"


def _row(made: PageTable, row: TableRow, number: int, again: bool, places: list[dict[str, Any]]) -> dict[str, Any]:
    table = made.table
    name = ", ".join(
        f"{heading}: {label_text(label)}"
        for heading, label in zip(table.labels, row.labels, strict=True)
        if label not in (None, "")
    )
    return {
        "shaded": row.shaded,
        "source": row.source,
        "labels": [
            {"text": label_text(label), "again": again and place == table.group, "kind": _kind(table, place)}
            for place, label in enumerate(row.labels)
        ],
        "cells": [_cell(made, row, number, leaf, name, places) for leaf in made.leaves],
    }


def _cell(
    made: PageTable, row: TableRow, number: int, leaf: Leaf, name: str, places: list[dict[str, Any]]
) -> dict[str, Any]:
    value = row.values[leaf.place]
    theirs = made.paper.get((number, leaf.place))
    if leaf.kind == MEASURED:
        if theirs and value.quotation:  # stands in the paper's column
            return _plain("", leaf.kind)
        return _value(made, row, leaf.place, name, value, places)
    if theirs is None:
        return _plain("", leaf.kind)
    if leaf.kind == PAPER:
        return _plain(theirs.mean, leaf.kind) | {"deviation": theirs.deviation or ""}
    if value.quotation or not value.numbers:
        return _plain("", leaf.kind)
    difference = fmean(value.numbers) - float(theirs.mean) * made.factors[leaf.place]
    return _plain(signed(shown(difference, value.digits)), leaf.kind)


def _plain(text: str, kind: str) -> dict[str, Any]:
    return {
        "kind": kind,
        "mean": text,
        "deviation": "",
        "mark": "",
        "count": "",
        "best": False,
        "sort": text,
        "place": None,
    }


def _value(
    made: PageTable, row: TableRow, place: int, name: str, value: Value, places: list[dict[str, Any]]
) -> dict[str, Any]:
    column = made.table.columns[place]
    neutral = made.neutral.get((row.number, place)) if column.best == NEAREST and row.name is None else None
    near = f"{abs(float(value.mean) - neutral):.6f}" if neutral is not None and value.mean else ""
    cell = _plain(value.mean or MISSING, MEASURED) | {
        "deviation": value.deviation,
        "mark": value.mark,
        "count": value.count,
        "best": value.best,
        "sort": near if column.best == NEAREST else value.mean,
    }
    if value.measurements:
        cell["place"] = len(places)
        measured = [[one.seed, one.value, one.state, one.run_id] for one in value.measurements]
        where = f"{column.label}, {column.dataset}"
        places.append({"title": made.table.title, "where": where, "row": name, "measured": measured})
    return cell
