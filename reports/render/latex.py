"""Tables as LaTeX, close to the paper's: booktabs, methods over several rows, ✓ columns, the best in bold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from ..grid import Grid
from ..values import Label, Table, TableRow, Value, label_text
from .latex_text import escape

SUFFIX = "tex"

HEAD = (
    "% Needs \\usepackage{booktabs,multirow,amssymb,graphicx} and \\usepackage[table]{xcolor}.\n"
    "% Made by `harness report`; do not edit.\n"
)
SHADE = "\\cellcolor{gray!20}"
COLUMN = 56
"""Characters that fit into one column of a two-column article; wider tables span both."""
PART = 38
"""Lines of a grid that fit on a page, with its caption and notes."""
NOTES = 16
"""Maximum number of notes under a float."""
PARAGRAPH = 32
"""Columns of a grid with more characters than this are broken into lines."""


def render(tables: Sequence[Table]) -> str:
    """All tables as floats, to be input into a document."""
    return HEAD + "\n".join(_table(table) for table in tables)


def render_grids(grids: Sequence[Grid]) -> str:
    """All grids as floats; long grids are split into several."""
    return HEAD + "\n".join(
        _grid(grid, part, number, last=number == len(parts) - 1)
        for grid in (one.shown for one in grids)
        for parts in [_parts(grid)]
        for number, part in enumerate(parts)
    )


def _table(table: Table) -> str:
    kinds = ["l" if table.has_text(place) else "c" for place in range(len(table.labels))]
    body = "\n    \\midrule\n".join(
        "\n".join(_row(table, block, number) for number in range(len(block))) for block in table.blocks if block
    )
    return _float(
        escape(table.caption),
        table.study,
        "".join(kinds) + "c" * len(table.columns),
        _header(table),
        [body] if body else [],
        table.notes,
        wide=_letters(table) > COLUMN,
    )


def _parts(grid: Grid) -> list[list[tuple[str, ...]]]:
    """The grid's rows by page. Within a part, a first entry that is repeated in the next row is shown once."""
    parts: list[list[tuple[str, ...]]] = [[]]
    lines, before = 0, None
    for row in grid.rows:
        shown = ("" if row[0] == before else row[0], *row[1:])
        if lines + _lines(shown) > PART and parts[-1]:
            parts.append([])
            lines, shown = 0, row
        before = row[0]
        parts[-1].append(shown)
        lines += _lines(shown)
    return parts


def _lines(row: Sequence[str]) -> int:
    """How many lines a row of a grid takes."""
    return max(1, *(-(-len(cell) // PARAGRAPH) for cell in row))


def _grid(grid: Grid, rows: Sequence[tuple[str, ...]], number: int, last: bool) -> str:
    lengths = [
        max([len(heading), *(len(row[place]) for row in grid.rows)]) for place, heading in enumerate(grid.headings)
    ]
    kinds = [
        "r" if numeric else f">{{\\raggedright\\arraybackslash}}p{{{PARAGRAPH // 2}em}}" if length > PARAGRAPH else "l"
        for numeric, length in zip(grid.numeric, lengths, strict=True)
    ]
    return _float(
        escape(grid.caption) + (" (continued)" if number else ""),
        grid.name + (f"-{number + 1}" if number else ""),
        "".join(kinds),
        [_line([escape(heading) for heading in grid.headings])],
        [_line([escape(_with_minus(cell)) for cell in row]) for row in rows],
        grid.notes if last else (),
        wide=sum(min(length, PARAGRAPH) + 2 for length in lengths) > COLUMN,
    )


def _with_minus(text: str) -> str:
    """Negative numbers with a minus sign instead of a hyphen."""
    return re.sub(r"(?<!\S)-(?=[\d.])", "−", text)


def _float(
    caption: str,
    name: str,
    kinds: str,
    header: Sequence[str],
    body: Sequence[str],
    notes: Sequence[str],
    wide: bool,
) -> str:
    environment = "table*" if wide else "table"
    lines = [
        f"\\begin{{{environment}}}[t]",
        "  \\centering",
        f"  \\caption{{{caption}}}\\smallskip",
        f"  \\label{{tab:{name}}}",
        # Shrunk to the line width if it is wider, never stretched.
        "  \\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%",
        f"  \\begin{{tabular}}{{{kinds}}}",
        "    \\toprule",
        *header,
        "    \\midrule",
        *body,
        "    \\bottomrule",
        "  \\end{tabular}}",
        *_notes(notes),
        f"\\end{{{environment}}}",
    ]
    return "\n".join(lines) + "\n"


def _header(table: Table) -> list[str]:
    names = [escape(text) for text in (*table.labels, *(column.label for column in table.columns))]
    if not table.several:
        return [_line(names)]
    above = [f"\\multirow{{2}}{{*}}{{{name}}}" for name in names[: len(table.labels)]]
    below = ["" for _ in table.labels]
    rules = []
    place = len(table.labels) + 1
    for (dataset, once), columns in groupby(table.columns, lambda column: (column.dataset, column.once)):
        own = names[place - 1 : place - 1 + len(list(columns))]
        if once:
            above += [f"\\multirow{{2}}{{*}}{{{name}}}" for name in own]
            below += ["" for _ in own]
        else:
            above.append(f"\\multicolumn{{{len(own)}}}{{c}}{{{escape(dataset)}}}")
            below += own
            rules.append(f"\\cmidrule(lr){{{place}-{place + len(own) - 1}}}")
        place += len(own)
    return [_line(above), f"    {' '.join(rules)}", _line(below)]


def _row(table: Table, block: Sequence[TableRow], number: int) -> str:
    row = block[number]
    cells = []
    for place, label in enumerate(row.labels):
        if place != table.group or not table.spanned(block):
            cells.append(_shaded(row, _label(label)))
        else:
            # Not shaded: a later row's colour would cover the text that spans the rows.
            cells.append(f"\\multirow{{{len(block)}}}{{*}}{{{_label(label)}}}" if number == 0 else "")
    return _line([*cells, *(_shaded(row, _value(value)) for value in row.values)])


def _shaded(row: TableRow, text: str) -> str:
    return f"{SHADE}{text}" if row.shaded else text


def _line(cells: Sequence[str]) -> str:
    return f"    {' & '.join(cells)} \\\\".replace("     &", "    &")


def _label(label: Label) -> str:
    return "\\checkmark" if label is True else escape(label_text(label))


def _value(value: Value) -> str:
    count = f" ({escape(value.count)})" if value.count else ""
    if not value.mean:
        return f"---{count}"
    mean = f"$-${value.mean[1:]}" if value.mean.startswith("-") else value.mean
    mean = f"\\textbf{{{mean}}}" if value.best else mean
    return mean + (f" $\\pm$ {value.deviation}" if value.deviation else "") + _mark(value) + count


def _mark(value: Value) -> str:
    return "$^{\\approx}$" if value.tied else escape(value.mark)


def _letters(table: Table) -> int:
    """The total number of characters of the widest cells of all columns."""
    rows = [row for block in table.blocks for row in block]
    labels = [
        max([len(name), *(len(label_text(row.labels[place])) for row in rows)])
        for place, name in enumerate(table.labels)
    ]
    values = [
        max([len(column.label), *(_width(row.values[place]) for row in rows)])
        for place, column in enumerate(table.columns)
    ]
    return sum(width + 2 for width in (*labels, *values))


def _width(value: Value) -> int:
    return sum(len(text) + 3 for text in (value.mean, value.deviation, value.count) if text) - 3


def _notes(notes: Sequence[str]) -> list[str]:
    if not notes:
        return []
    if len(notes) > NOTES:  # a float must fit on a page
        notes = [*notes[: NOTES - 1], f"… and {len(notes) - NOTES + 1} more: the other formats list them all."]
    return [
        "  \\par\\smallskip",
        "  \\begin{minipage}{\\linewidth}\\footnotesize\\raggedright",
        *(f"    {escape(note)}\\par" for note in notes),
        "  \\end{minipage}",
    ]
