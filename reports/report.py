"""The contents of a report: each study's table, figures and comparisons. Knows no format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from harness.components.preset import Preset
from harness.errors import HarnessError
from harness.statistics import ALPHA
from harness.study.study import Study

from .anytime import anytime_figures, anytime_grid
from .evidence import Findings, find
from .figure_values import FigureValue
from .figures import build as build_figures
from .grid import Grid
from .references import reference_grid, stored_references
from .tables import lay_out
from .values import Table

if TYPE_CHECKING:
    from harness.stores.store import Store

    from .across import Across
    from .compared import Compared
    from .comparison import Sentence
    from .verdicts import Judgement

RATE = f"At most {100 * ALPHA:g} % of studies have any false verdict: the rate holds per study."
LISTED = 40
"""Maximum number of missing items that a message lists."""


class Incomplete(HarnessError):
    """The store does not hold everything that the report should show. The request is valid: exit 1."""


@dataclass(frozen=True)
class Asked:
    """Options of a report: which runs count, and what is built from them."""

    preset: Preset
    seeds: int | None = None
    overrides: Mapping[str, Any] | None = None
    where: str | None = None
    references: bool | None = False
    """Whether tables have rows of references; None for those that are stored, without a word of the others."""
    figures: bool = False
    compare: bool = False
    verdicts: bool = False
    """Whether lines below the table say what was found; see `summary`."""
    margins: Mapping[str, float] = field(default_factory=dict)
    """By metric, the difference below which values count as equal; see `compared.Margins`."""


@dataclass(frozen=True)
class Section:
    """One study's part of a report."""

    table: Table
    figures: tuple[FigureValue, ...]
    findings: Findings
    references: tuple[Grid, ...] = ()
    """The references with their intervals and seconds."""
    anytime: tuple[Grid, ...] = ()
    """What rows cost until they reach a target τ, beside the figure of any-time curves."""
    beside: tuple[Grid, ...] = ()
    """The table's values beside those of the paper, line by line."""
    verdicts: tuple[Grid, ...] = ()
    compared: tuple[Compared, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    compares: bool = False
    """Whether the comparisons are shown."""
    summarises: bool = False
    """Whether lines below the table say what the verdicts rest on."""
    sentences: tuple[Sentence, ...] = ()
    """What the study found, in words; also the first notes of the table."""

    @property
    def grids(self) -> tuple[Grid, ...]:
        """All grids of text, for formats that show them one below the other."""
        return (*self.beside, *self.verdicts)

    @property
    def missing(self) -> list[str]:
        """What the table and the figures should show but cannot."""
        drawn = [f"figure {one.name}: {text}" for one in self.figures for text in one.missing]
        return [*self.table.missing, *drawn]


@dataclass(frozen=True)
class Report:
    """What a renderer shows (`harness.components.renderer`)."""

    sections: Sequence[Section]
    store: Store
    figures: bool
    across: Across | None = None

    @property
    def across_studies(self) -> tuple[Grid, ...]:
        """With `--across`: the comparison of rows over data sets and spaces."""
        return tuple(self.across.grids) if self.across else ()

    def with_sections(self, sections: Sequence[Section]) -> Report:
        return replace(self, sections=sections)

    def drawings(self) -> Iterator[tuple[str, bytes]]:
        """Names and contents of the files of all figures: SVG, PDF, and their values as CSV."""
        from .render import csv, drawing

        shared = [self.across.figure] if self.across and self.across.figure else []
        for figure in (*(figure for section in self.sections for figure in section.figures), *shared):
            for kind in drawing.FORMATS:
                yield f"{figure.file}.{kind}", drawing.draw(figure, kind)
            yield f"{figure.file}.csv", csv.render_figure(figure).encode()


def section(study: Study, store: Store, asked: Asked) -> Section:
    """Build the section of a study. Raises `InvalidConfiguration`."""
    findings = find(study, asked.preset, store, asked.seeds, asked.overrides, asked.where)
    references = None
    if asked.references is not False or study.references:
        references = stored_references(findings, store)
        references = references if asked.references else replace(references, lacking=None)
    table = lay_out(findings, references)
    listed = tuple(reference_grid(references, table, findings)) if references else ()
    own = (*build_figures(findings, store), *anytime_figures(findings, table)) if asked.figures else ()
    figures: tuple[FigureValue, ...] = own
    anytime = tuple(anytime_grid(findings, table)) if asked.figures else ()
    if not (asked.compare or asked.verdicts):
        return Section(table, figures, findings, listed, anytime)
    from .comparison import compare
    from .paper.comparison import beside_the_paper, is_in_the_paper
    from .paper.premises import with_premises

    beside = (beside_the_paper(findings, table),) if asked.compare and is_in_the_paper(study) else ()
    compared = compare(study, asked.preset, findings.counted, asked.margins)
    if primary := "; ".join(f"{one.name} ({one.column})" for one in compared if one.kind == "primary"):
        # Before any number is shown.
        table = replace(table, scale=f"{table.scale} Primary contrasts: {primary}. {RATE}")
    checked = with_premises(findings, store, compared)
    return Section(table, figures, findings, listed, anytime, beside, (), checked, (), asked.compare, asked.verdicts)


def judged(sections: Sequence[Section], figures: bool = False) -> list[Section]:
    """The same sections with verdicts. The comparisons of a study are judged together.

    With `figures`, a figure shows all comparisons of a study.
    """
    from .comparison import sentences, verdict_grids
    from .forest import forest
    from .summary import summary
    from .verdicts import judge

    judgements = iter(judge([one for section in sections for one in section.compared]))
    found = []
    for one in sections:
        own = tuple(islice(judgements, len(one.compared)))
        verdicts = tuple(verdict_grids(one.findings, one.table, own)) if one.compares else ()
        drawn = (*one.figures, *(forest(one.findings, one.table, own) if figures and one.compares else ()))
        said = tuple(sentences(one.findings, own))
        lines = tuple(summary(one.findings, own)) if one.summarises else ()
        table = replace(one.table, notes=(*(sentence.text for sentence in said), *one.table.notes, *lines))
        found.append(replace(one, table=table, verdicts=verdicts, judgements=own, figures=drawn, sentences=said))
    return found


def require_complete(sections: Sequence[Section], store: str) -> None:
    """Raise `Incomplete`, with a list of what is missing, if anything is."""
    missing = [f"{one.table.study}: {text}" for one in sections for text in one.missing]
    if missing:
        listed = "".join(f"\n  {text}" for text in missing[:LISTED])
        more = f"\n  and {len(missing) - LISTED} more" if len(missing) > LISTED else ""
        raise Incomplete(f"nothing was reported: {store} does not hold everything that the report needs:{listed}{more}")
