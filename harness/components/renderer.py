"""Interface of a renderer: one format of `harness report`. Imports nothing heavy.

A renderer is a class in a component file, registered in `RENDERERS` under the name that `--format` takes. Whatever a
format shows, a report's parts are the same (`Section`); a simple format turns tables and grids into text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Protocol


class Grid(Protocol):
    """A plain table of text: verdicts, values next to the paper's, references."""

    @property
    def name(self) -> str:
        """For files and anchors; unique within a report."""

    @property
    def title(self) -> str: ...

    @property
    def scale(self) -> str:
        """What every caption must say: preset, data sets, seeds, epochs."""

    @property
    def headings(self) -> tuple[str, ...]: ...

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]: ...

    @property
    def notes(self) -> tuple[str, ...]: ...


class Section(Protocol):
    """One study's part of a report."""

    @property
    def table(self) -> Any:
        """The study's table: `study`, `title`, `scale`, `labels`, `columns` (each with `label` and `dataset`), `blocks`
        of rows (each with `labels` and `values`), `notes`. A value has `mean`, `deviation` and `count` as they are
        printed, `best`, `mark`, and its `measurements` (`seed`, `value`, `run_id`, `state`)."""

    @property
    def references(self) -> Sequence[Grid]:
        """The references with their intervals and seconds."""

    @property
    def anytime(self) -> Sequence[Grid]:
        """What rows cost until they reach a target τ."""

    @property
    def grids(self) -> Sequence[Grid]:
        """With `--compare`: the values next to the paper's, then the verdicts."""


class Report(Protocol):
    """What `harness report` shows."""

    @property
    def sections(self) -> Sequence[Any]:
        """One `Section` per study."""

    @property
    def store(self) -> Any:
        """The opened store that the runs are in."""

    @property
    def figures(self) -> bool:
        """Whether figures are shown."""

    @property
    def across_studies(self) -> Sequence[Any]:
        """With `--across`: grids that compare rows over data sets and spaces."""

    @property
    def across(self) -> Any:
        """The same with its figure; None without `--across`."""

    def with_sections(self, sections: Sequence[Any]) -> Report:
        """The same report with other sections."""

    def drawings(self) -> Iterator[tuple[str, bytes]]:
        """Names and contents of the files of all figures: SVG, PDF, and their values as CSV."""


class Renderer(ABC):
    """A format of reports. The first line of its docstring is its summary."""

    suffix: ClassVar[str]
    """Of its files, without the dot."""
    draws: ClassVar[bool] = False
    """Whether figures are in what is printed; otherwise they are files only."""
    warns: ClassVar[bool] = False
    """Whether the warnings of tables are in what is printed; otherwise they go to standard error."""
    finds_references: ClassVar[bool] = False
    """Whether references that are stored are shown unasked."""

    @abstractmethod
    def tables(self, tables: Sequence[Any]) -> str:
        """The tables of these sections, one after the other."""

    @abstractmethod
    def grids(self, grids: Sequence[Any]) -> str:
        """These grids, one after the other."""

    def check_printable(self, compares: bool) -> None:
        """Raise `UserError` if the format needs files; `compares` says that there are comparisons."""

    def printed(self, report: Report) -> str:
        """The report as one text, for a screen or a pipe."""
        text = self.tables([section.table for section in report.sections])
        grids = [grid for section in report.sections for grid in section.references]
        grids += [*(grid for section in report.sections for grid in section.grids), *report.across_studies]
        return f"{text}\n{self.grids(grids)}" if grids else text

    def files(self, report: Report) -> Iterator[tuple[str, bytes]]:
        """Names and contents of the report's files; each content is made when its turn comes."""
        for section in report.sections:
            yield f"{section.table.study}.{self.suffix}", self.tables([section.table]).encode()
            parts = {"references": section.references, "target": section.anytime, "compared": section.grids}
            for name, own in parts.items():
                if own:
                    yield f"{section.table.study}-{name}.{self.suffix}", self.grids(own).encode()
        for grid in report.across_studies:
            yield f"{grid.name}.{self.suffix}", self.grids([grid]).encode()
        yield from report.drawings()
