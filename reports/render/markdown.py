"""Tables and grids as Markdown, by tabulate."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.documents import table as text_table

from ..grid import Grid
from ..values import Table, TableRow, Value, label_text

TURNING = "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Characters that turn the direction of the text after them."""


def render(tables: Sequence[Table], width: int | None = None) -> str:
    """All tables, each with its title, scale and notes; those that are wider than `width` are folded."""
    return "\n".join(_table(table, width) for table in tables)


def render_grids(grids: Sequence[Grid], width: int | None = None) -> str:
    """All grids, each with its title, scale and notes; those that are wider than `width` are folded."""
    return "\n".join(_grid(grid.shown, width) for grid in grids)


def _table(table: Table, width: int | None) -> str:
    header = [
        *table.labels,
        *(f"{one.dataset}: {one.label}" if table.several and not one.once else one.label for one in table.columns),
    ]
    rows = [
        _cells(table, row, named=row is block[0] or not table.spanned(block)) for block in table.blocks for row in block
    ]
    alignment = ["left" if table.has_text(place) else "center" for place in range(len(table.labels))]
    alignment += ["right" for _ in table.columns]
    text = _text(header, rows, alignment, width, keep=len(table.labels))
    return _section(table.title, table.scale, text, table.notes)


def _grid(grid: Grid, width: int | None) -> str:
    rows = [[_escape(cell) for cell in row] for row in grid.rows]
    alignment = ["right" if numeric else "left" for numeric in grid.numeric]
    return _section(grid.title, grid.scale, _text(grid.headings, rows, alignment, width), grid.notes)


def _text(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    alignment: Sequence[str],
    width: int | None,
    keep: int = 1,
) -> str:
    headings = [_escape(heading) for heading in header]
    return text_table(rows, headings, width, keep, alignment, tablefmt="pipe", disable_numparse=True)


def _section(title: str, scale: str, text: str, notes: Sequence[str]) -> str:
    listed = "".join(f"- {_escape(note)}\n" for note in notes)
    return f"### {_escape(title)}\n\n{_escape(scale)}\n\n{text}\n" + (f"\n{listed}" if listed else "")


def _cells(table: Table, row: TableRow, named: bool) -> list[str]:
    labels = [
        "" if place == table.group and not named else _escape(label_text(label))
        for place, label in enumerate(row.labels)
    ]
    return [*labels, *map(_value, row.values)]


def _value(value: Value) -> str:
    if not value.mean:
        return f"— ({value.count})" if value.count else "—"
    text = f"**{value.mean}**" if value.best else value.mean
    text += f" ± {value.deviation}" if value.deviation else ""
    return text + value.mark + (f" ({value.count})" if value.count else "")


def _escape(text: str) -> str:
    """Escape Markdown's markup, links and images too, and join lines, because a row is one line."""
    for letter in "\\|*`<":
        text = text.replace(letter, f"\\{letter}")
    text = re.sub(r"\](?=[(\[:])", r"\\]", text)
    return " ".join("".join(one for one in text if one not in TURNING).split())
