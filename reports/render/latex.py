"""Tables as LaTeX, close to the paper's: booktabs, methods over several rows, ✓ columns, the best in bold.

A short caption stands above a table. Below it, in smaller print, stand its scale and its notes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from ..grid import Grid
from ..values import Label, Table, TableRow, Value, label_text
from .latex_sheet import COLUMN, PAGE, Cell, Heading, Sheet, lay_out
from .latex_text import escape
from .latex_widths import BOLD, LARGER, SMALLER, running, width, wrapped

HEAD = r"""% Needs \usepackage{booktabs,multirow,amssymb,graphicx} and \usepackage[table]{xcolor}.
% Made by `harness report`; do not edit. For other sizes, define these commands before.
\providecommand{\harnesstable}{\footnotesize\setlength{\tabcolsep}{3pt}}
\providecommand{\harnessnotes}{\scriptsize\raggedright}
\providecommand{\harnesswidth}[1]{\ifdim#1>\linewidth\linewidth\else#1\fi}
"""
SHADE = "\\cellcolor{gray!20}"
HEIGHT = 600.0
"""Points that a float may be high: a page's text, less some room for differences between styles."""
NOTE_LINE, CAPTION_LINE = 8.2, 11.5
"""Points: height of a line."""
COUNTED = "In parentheses: how many of the requested seeds have a value."


def render(tables: Sequence[Table]) -> str:
    """All tables as floats, to be input into a document."""
    return HEAD + "\n".join(_floats(table.study, table.title, _table(table), _table_notes(table)) for table in tables)


def render_grids(grids: Sequence[Grid]) -> str:
    """All grids as floats."""
    shown = [grid.shown for grid in grids]
    return HEAD + "\n".join(_floats(one.name, one.title, _grid(one), (one.scale, *one.notes)) for one in shown)


def label(kind: str, name: str) -> str:
    """A label: letters that mean something to LaTeX are written as numbers."""
    return f"{kind}:" + re.sub(r"[^\w+-]", lambda found: f".{ord(found[0]):x}.", name, flags=re.ASCII)


def notes(lines: Sequence[str], wide: bool) -> list[str]:
    """Notes below a float, as wide as the float; what does not fit on a page is left out, and that is said."""
    across, kept, used = PAGE if wide else COLUMN, list[str](), 0.0
    for number, line in enumerate(lines):
        used += _notes_height([line], across)
        if used > HEIGHT / 3 and number:
            kept.append(f"… and {len(lines) - number} more: the other formats list them all.")
            break
        kept.append(line)
    return [
        "  \\par\\smallskip",
        f"  \\begin{{minipage}}{{\\harnesswidth{{{across:.0f}pt}}}}\\harnessnotes",
        *(f"    {running(line)}\\par" for line in kept),
        "  \\end{minipage}",
    ]


def caption(title: str) -> str:
    return f"  \\caption{{{running(title)}.}}"


def room(title: str, lines: Sequence[str], wide: bool) -> float:
    """Points that caption and notes leave on a page."""
    across = PAGE if wide else COLUMN
    around = CAPTION_LINE * (2 + len(wrapped(title, across / LARGER)))
    return HEIGHT - around - min(_notes_height(lines, across), HEIGHT / 3)


def _notes_height(lines: Sequence[str], across: float) -> float:
    return NOTE_LINE * sum(len(wrapped(line, across / SMALLER)) for line in lines)


def _floats(name: str, title: str, sheet: Sheet, lines: Sequence[str]) -> str:
    """A sheet as floats: a long one is several. The scale, which is the first note, stands under each."""
    # Whether the float is wide is not known yet: notes are higher in one that is not.
    parts = lay_out(sheet, room(title, lines, wide=False))
    found = []
    for number, part in enumerate(parts):
        environment = "table*" if part.wide else "table"
        said = [
            f"\\begin{{{environment}}}",
            "  \\centering\\sloppy",
            caption(title + (" (continued)" if number else "")),
            f"  \\label{{{label('tab', name)}{f'.{number + 1}' if number else ''}}}",
            "  \\smallskip\\harnesstable",
            "\n  \\par\\medskip\n".join(part.tabulars),
            *notes(lines if number == len(parts) - 1 else lines[:1], part.wide),
            f"\\end{{{environment}}}",
        ]
        found.append("\n".join(said) + "\n")
    return "\n".join(found)


def _table(table: Table) -> Sheet:
    names = [
        Heading(name, "l" if table.has_text(place) else "c", flexible=True) for place, name in enumerate(table.labels)
    ]
    values = [
        Heading(one.label, "c", flexible=False, over=one.dataset if table.several and not one.once else "")
        for one in table.columns
    ]
    blocks = [block for block in table.blocks if block]
    return Sheet(
        [*names, *values],
        [[_row(row) for row in block] for block in blocks],
        _ruled([(len(block), block[0].name is not None) for block in blocks]),
        repeated=len(names),
        group=table.group,
    )


def _grid(grid: Grid) -> Sheet:
    """A grid's rows that begin with the same entry belong together."""
    blocks = [list(rows) for _, rows in groupby(grid.rows, lambda row: row[0])]
    return Sheet(
        [
            Heading(text, "r" if numeric else "l", flexible=not numeric)
            for text, numeric in zip(grid.headings, grid.numeric, strict=True)
        ],
        [[[Cell(_with_minus(text)) for text in row] for row in rows] for rows in blocks],
        _ruled([(len(rows), False) for rows in blocks]),
        repeated=1,
        group=0,
    )


def _ruled(blocks: Sequence[tuple[int, bool]]) -> list[bool]:
    """Rules separate blocks; but rows that are alone in their blocks look like one block.

    A block is given by its number of rows, and whether its rows are references or imported.
    """
    alone = [(count == 1, added) for count, added in blocks]
    return [number == 0 or one != alone[number - 1] or not one[0] for number, one in enumerate(alone)]


def _row(row: TableRow) -> list[Cell]:
    before = SHADE if row.shaded else ""
    return [*(_label(label, before) for label in row.labels), *(_value(value, before) for value in row.values)]


def _label(label: Label, before: str) -> Cell:
    text = label_text(label)
    return Cell(text, "\\checkmark", width(text), before) if label is True else Cell(text, before=before)


def _value(value: Value, before: str) -> Cell:
    """A value; the space around ± is thin, so that the paper's widest table fits a page."""
    count = f" ({escape(_count(value))})" if value.count else ""
    if not value.mean:
        return Cell("", f"---{count}", width(f"—{count}"), before)
    mean = escape(_with_minus(value.mean))
    deviation = f"\\,$\\pm$\\,{value.deviation}" if value.deviation else ""
    points = width(_with_minus(value.mean)) * (BOLD if value.best else 1) + width(value.mark + count)
    points += width(f"± {value.deviation}") if value.deviation else 0
    mark = "$^{\\approx}$" if value.tied else escape(value.mark)
    latex = (f"\\textbf{{{mean}}}" if value.best else mean) + deviation + mark + count
    return Cell("", latex, points, before)


def _count(value: Value) -> str:
    """How many seeds are behind a value, in short; see `COUNTED`."""
    return f"{len(value.numbers)}/{len(value.measurements)}" if _is_counted(value) else value.count


def _is_counted(value: Value) -> bool:
    return bool(value.count) and any(one.seed is not None for one in value.measurements)


def _table_notes(table: Table) -> list[str]:
    values = (value for block in table.blocks for row in block for value in row.values)
    return [table.scale, *([COUNTED] if any(map(_is_counted, values)) else []), *table.notes]


def _with_minus(text: str) -> str:
    """Negative numbers with a minus sign instead of a hyphen."""
    return re.sub(r"(?<!\S)-(?=[\d.])", "−", text)
