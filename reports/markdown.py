"""Tables as Markdown, by tabulate."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from .tables import Table, TableRow, Value, label_text

SUFFIX = "md"


def render(tables: Sequence[Table]) -> str:
    """All tables, each with its title, scale and notes."""
    return "\n".join(_section(table) for table in tables)


def _section(table: Table) -> str:
    several = len(table.datasets) > 1
    header = [
        *table.labels,
        *(f"{column.dataset}: {column.label}" if several else column.label for column in table.columns),
    ]
    rows = [_cells(table, row, first=row is block[0]) for block in table.blocks for row in block]
    alignment = ["left" if table.has_text(place) else "center" for place in range(len(table.labels))]
    text = tabulate(
        rows,
        [_escape(heading) for heading in header],
        tablefmt="pipe",
        disable_numparse=True,
        colalign=[*alignment, *("right" for _ in table.columns)] if rows else None,
    )
    notes = "".join(f"- {_escape(note)}\n" for note in table.notes)
    return f"### {_escape(table.title)}\n\n{_escape(table.scale)}\n\n{text}\n" + (f"\n{notes}" if notes else "")


def _cells(table: Table, row: TableRow, first: bool) -> list[str]:
    labels = [
        "" if place == table.group and not first and row.name is None else _escape(label_text(label))
        for place, label in enumerate(row.labels)
    ]
    return [*labels, *map(_value, row.values)]


def _value(value: Value) -> str:
    if not value.mean:
        return f"— ({value.count})" if value.count else "—"
    text = f"**{value.mean}**" if value.best else value.mean
    text += f" ± {value.deviation}" if value.deviation else ""
    return text + (f" ({value.count})" if value.count else "")


def _escape(text: str) -> str:
    """What Markdown would take for markup; a row is one line."""
    for letter in "\\|*`<":
        text = text.replace(letter, f"\\{letter}")
    return " ".join(text.split())
