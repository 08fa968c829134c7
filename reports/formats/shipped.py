"""The formats that ship with the project: what `harness report --format` can write. Each is in `render/`.

What a format needs is imported when it is used: every command loads this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from harness.components.registries import RENDERERS
from harness.components.renderer import Renderer, Report
from harness.documents import screen_width
from harness.errors import UserError

if TYPE_CHECKING:
    from ..grid import Grid
    from ..report import Section
    from ..values import Table


@RENDERERS.register("markdown")
class Markdown(Renderer):
    """Tables for a page or an issue on the web."""

    suffix: ClassVar[str] = "md"
    warns: ClassVar[bool] = True
    width: int | None = None
    """What is wider is folded."""

    def tables(self, tables: Sequence[Table]) -> str:
        from ..render import markdown

        return markdown.render(tables, self.width)

    def grids(self, grids: Sequence[Grid]) -> str:
        from ..render import markdown

        return markdown.render_grids(grids, self.width)

    def printed(self, report: Report) -> str:
        self.width = screen_width()
        return super().printed(report)


@RENDERERS.register("latex")
class Latex(Renderer):
    """Booktabs tables, and as files a document with all of them and the figures."""

    suffix: ClassVar[str] = "tex"
    warns: ClassVar[bool] = True

    def tables(self, tables: Sequence[Table]) -> str:
        from ..render import latex

        return latex.render(tables)

    def grids(self, grids: Sequence[Grid]) -> str:
        from ..render import latex

        return latex.render_grids(grids)

    def files(self, report: Report) -> Iterator[tuple[str, bytes]]:
        from ..render import latex_document

        fitting = report.with_sections(latex_document.fitting(report.sections))
        yield from super().files(fitting)
        yield from ((name, text.encode()) for name, text in latex_document.files(fitting.sections, report.across))


@RENDERERS.register("csv")
class Csv(Renderer):
    """Tidy lines: one per row, column and seed, with the run behind it."""

    suffix: ClassVar[str] = "csv"

    def tables(self, tables: Sequence[Table]) -> str:
        from ..render import csv

        return csv.render(tables)

    def grids(self, grids: Sequence[Grid]) -> str:
        from ..render import csv

        return csv.render_grids(grids)

    def check_printable(self, compares: bool) -> None:
        if compares:
            raise UserError("tables and their comparison have different columns and need two files: give --out DIR")

    def printed(self, report: Report) -> str:
        return self.tables([section.table for section in report.sections])

    def files(self, report: Report) -> Iterator[tuple[str, bytes]]:
        for section in report.sections:
            yield f"{section.table.study}.{self.suffix}", self.encoded(section.table)
            yield from self._beside(section)
        yield from ((f"{grid.name}.csv", self.grids([grid]).encode()) for grid in report.across_studies)
        yield from report.drawings()

    def encoded(self, table: Table) -> bytes:
        return self.tables([table]).encode()

    def _beside(self, section: Section) -> Iterator[tuple[str, bytes]]:
        """What is shown beside a table. Verdicts, and values next to the paper's, are numbers and not text."""
        from ..render import csv

        name = section.table.study
        for part, grids in {"references": section.references, "target": section.anytime}.items():
            if grids:
                yield f"{name}-{part}.csv", csv.render_grids(grids).encode()
        if section.judgements:
            yield f"{name}-compared.csv", csv.render_judgements(section.findings, section.judgements).encode()
        if section.beside:
            yield f"{name}-paper.csv", csv.render_beside(section.findings.study, section.table).encode()


@RENDERERS.register("parquet")
class Parquet(Csv):
    """The lines of csv with types; needs pyarrow. What is beside a table stays csv."""

    suffix: ClassVar[str] = "parquet"

    def check_printable(self, compares: bool) -> None:
        raise UserError("a Parquet file cannot be printed: give --out DIR")

    def encoded(self, table: Table) -> bytes:
        from ..render import csv

        return csv.parquet([table])


@RENDERERS.register("html")
class Html(Renderer):
    """One page with tables, figures, and the runs behind every value."""

    suffix: ClassVar[str] = "html"
    draws: ClassVar[bool] = True
    finds_references: ClassVar[bool] = True

    def tables(self, tables: Sequence[Table]) -> str:
        from ..render import html

        return html.render_tables(tables)

    def grids(self, grids: Sequence[Grid]) -> str:
        from ..render import html

        return html.render_grids(grids)

    def printed(self, report: Report) -> str:
        return self._page(report, files=False)

    def files(self, report: Report) -> Iterator[tuple[str, bytes]]:
        yield f"index.{self.suffix}", self._page(report, files=True).encode()
        yield from report.drawings()

    def _page(self, report: Report, files: bool) -> str:
        from ..render import html

        return html.page(report.sections, report.store, files=files, figures=report.figures, across=report.across)
