"""Tables of text, folded where they are wider than the terminal. Imports nothing heavy."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Any


def screen_width() -> int | None:
    """The columns of the terminal; None where the output goes to a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(
    rows: Sequence[Sequence[object]],
    headings: Sequence[str],
    width: int | None = None,
    keep: int = 1,
    align: Sequence[str] | None = None,
    **style: Any,
) -> str:
    """A table; where it is wider than `width`, several tables, each with the first `keep` columns.

    `style` are further arguments of tabulate.
    """
    from tabulate import tabulate

    def text(columns: Sequence[int]) -> str:
        chosen = [[row[column] for column in columns] for row in rows]
        own = [align[column] for column in columns] if align and rows else None
        return tabulate(chosen, [headings[column] for column in columns], colalign=own, **style)

    whole = text(range(len(headings)))
    if width is None or _width(whole) <= width:
        return whole
    widths = [_width(text([column])) for column in range(len(headings))]
    first = list(range(keep))
    parts = [[*first]]
    for column in range(keep, len(headings)):
        if len(parts[-1]) > keep and sum(widths[one] for one in [*parts[-1], column]) > width:
            parts.append([*first])
        parts[-1].append(column)
    return "\n\n".join(map(text, parts))


def _width(text: str) -> int:
    return max(map(len, text.splitlines()), default=0)
