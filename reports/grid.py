"""A plain text table: headings and cells as they are printed. Knows no study, no run and no format.

Comparisons and verdicts are returned as grids, so that every renderer can show them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Grid:
    """Cells of text under headings. `name` is for files and anchors and unique within a report."""

    name: str
    title: str
    scale: str
    """What every caption must say: preset, data sets, seeds, epochs."""
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    """For each column, whether it holds numbers, which are aligned right and sorted as numbers."""
    notes: tuple[str, ...] = ()
    details: int = 0
    """How many of the last columns are shown on demand: in an opened row of the page, and as columns of CSV."""

    def __post_init__(self) -> None:
        # A programmer's mistake: a renderer would otherwise shift cells under the wrong heading.
        widths = {len(self.headings), len(self.numeric), *(len(row) for row in self.rows)}
        if len(widths) != 1:
            raise ValueError(f"grid {self.name}: headings, alignment and rows differ in width: {sorted(widths)}")

    @property
    def shown(self) -> Grid:
        """The grid without the details."""
        count = len(self.headings) - self.details
        rows = tuple(row[:count] for row in self.rows)
        return replace(self, headings=self.headings[:count], rows=rows, numeric=self.numeric[:count], details=0)

    @property
    def caption(self) -> str:
        return f"{self.title}. {self.scale}"
