"""Tables as tidy CSV or Parquet: one line for each row, column and seed, with the run behind it, or why there is none.

Values are in the unit that the column's heading names. Figures have their values in files of their own.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from harness.documents import not_computed
from harness.errors import UserError

from ..comparison import more_seeds
from ..figure_values import BarPanel, FigureValue, ForestPanel, LinePanel, PointPanel, RankPanel, SearchPanel
from ..grid import Grid
from ..paper.comparison import printed
from ..paper.numbers import beside
from ..values import Label, Table

if TYPE_CHECKING:
    from harness.study.study import Study

    from ..evidence import Findings
    from ..verdicts import Judgement

Cell = str | int | float | None

_KINDS = {"row": "int64", "seed": "int64", "value": "float64", "deviation": "float64", "passes": "int64"}


def render(tables: Sequence[Table]) -> str:
    """All tables in one file; label columns that a table does not have are empty."""
    header, rows = records(tables)
    return _written(header, ([_text(cell) for cell in row] for row in rows))


def render_grids(grids: Sequence[Grid]) -> str:
    """All grids in one file; columns that a grid does not have are empty."""
    headings = list(dict.fromkeys(heading for grid in grids for heading in grid.headings))
    rows = []
    for grid in grids:
        for row in grid.rows:
            cells = [cell if numeric else not_computed(cell) for cell, numeric in zip(row, grid.numeric, strict=True)]
            own = dict(zip(grid.headings, cells, strict=True))
            rows.append([not_computed(grid.name), *(own.get(heading, "") for heading in headings)])
    return _written(["grid", *headings], rows)


def render_judgements(findings: Findings, judgements: Sequence[Judgement]) -> str:
    """One line per comparison, with the numbers that its verdict rests on, and the seeds that would decide it."""
    header = ["study", "kind", "comparison", "rows", "column", "metric", "dataset", "seeds", "effect", "low", "high"]
    header += ["p", "p_adjusted", "e_value", "sign_flip_p", "detectable", "verdict", "leans", "level", "anytime"]
    header += ["effect_to_find", "more_seeds"]
    rows: list[list[Cell]] = []
    for one in judgements:
        own, (low, high) = one.compared, one.interval or (None, None)
        about: list[Cell] = [
            own.study,
            own.kind,
            own.name,
            own.rows,
            own.column,
            own.metric,
            own.dataset,
            len(own.seeds),
        ]
        numbers: list[Cell] = [one.effect, low, high, one.p, one.adjusted, one.e_value, one.flips, one.detectable]
        found = more_seeds(findings, one) or (None, None)
        rows.append([*about, *numbers, one.verdict, one.leans, one.level, str(one.anytime).lower(), *found])
    return _written(header, ([_text(cell) for cell in row] for row in rows))


def render_beside(study: Study, table: Table) -> str:
    """One line per value that this store or the paper has: both as numbers, in the unit of the column's heading."""
    rows: list[list[Cell]] = []
    for row in (row for block in table.blocks for row in block if row.name is None):
        for column, value in zip(table.columns, row.values, strict=True):
            number = printed(study, row, column)
            if number is None and not value.numbers:
                continue
            own: list[Cell] = [None, None, None]
            if row.source == "runs" and value.numbers:
                mean = fmean(value.numbers)
                own = [mean, stdev(value.numbers) if len(value.numbers) > 1 else None, len(value.numbers)]
            theirs: list[Cell] = [None, None, None]
            if number is not None:
                spread = float(number.deviation) if number.deviation else None
                theirs = [float(number.mean), spread, beside(column.dataset, study.name)]
            labels: list[Cell] = [_label(label) for label in row.labels]
            rows.append([study.name, row.number, *labels, column.dataset, column.label, column.metric, *own, *theirs])
    header = ["study", "row", *table.labels, "dataset", "column", "metric", "mean", "deviation", "seeds"]
    header += ["paper_mean", "paper_deviation", "paper_dataset"]
    return _written(header, ([_text(cell) for cell in row] for row in rows))


def render_figure(figure: FigureValue) -> str:
    """The values of a figure: one line per point, bar, comparison or scored architecture; drawings have none."""
    rows: list[list[Cell]] = []
    for panel in figure.panels:
        match panel:
            case LinePanel():
                for one in panel.curves:
                    spans = zip(one.low, one.high, strict=True) if one.low else [(None, None)] * len(one.x)
                    places = zip(one.x, one.y, spans, strict=True)
                    rows += [[panel.title, one.label, x, y, low, high] for x, y, (low, high) in places]
            case PointPanel():
                rows += [
                    [panel.title, one.label, one.x, one.y, None, None, one.x_deviation, one.y_deviation]
                    for one in panel.points
                ]
            case BarPanel():
                rows += [
                    [panel.title, f"{bar.group} {bar.member}".strip(), None, bar.value, None, None, None, bar.deviation]
                    for bar in panel.bars
                ]
            case SearchPanel():
                blank = [None] * 4
                rows += [[panel.title, one.architecture, one.x, one.y, *blank, one.generation] for one in panel.points]
            case ForestPanel():
                rows += [[panel.title, one.label, one.effect, None, one.low, one.high] for one in panel.lines]
            case RankPanel():
                rows += [[panel.title, label, rank] for label, rank in zip(panel.labels, panel.ranks, strict=True)]
    header = ["panel", "label", "x", "y", "low", "high", "x_deviation", "y_deviation", "generation"]
    return _written(header, ([_text(cell) for cell in [*row, *[None] * (len(header) - len(row))]] for row in rows))


def records(tables: Sequence[Table]) -> tuple[list[str], list[list[Cell]]]:
    """The headings, and one record per measurement of every table."""
    labels = list(dict.fromkeys(label for table in tables for label in table.labels))
    fixed = ["dataset", "column", "metric", "seed", "value", "deviation", "state", "run_id", "passes", "standing"]
    rows: list[list[Cell]] = []
    for table in tables:
        for row in (row for block in table.blocks for row in block):
            own = dict(zip(table.labels, row.labels, strict=True))
            start: list[Cell] = [table.study, table.preset, row.number, row.source, row.name or ""]
            start += [_label(own.get(name)) for name in labels]
            for column, value in zip(table.columns, row.values, strict=True):
                # Quoted values only: the deviation of measurements follows from them.
                quoted = value.quotation.deviation if value.quotation else ""
                standing = "best" if value.best else "not distinguishable from the best" if value.tied else ""
                for one in value.measurements:
                    place: list[Cell] = [column.dataset, column.label, column.metric, one.seed, one.value]
                    behind: list[Cell] = [
                        float(quoted) if quoted else None,
                        one.state,
                        one.run_id,
                        one.passes,
                        standing,
                    ]
                    rows.append([*start, *place, *behind])
    return ["study", "preset", "row", "source", "reference", *labels, *fixed], rows


def parquet(tables: Sequence[Table]) -> bytes:
    """All tables in one Parquet file: the same columns with types. Raises `UserError` without pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UserError("Parquet needs pyarrow: pip install 'nas-harness[parquet]', or use --format csv") from error
    header, rows = records(tables)
    schema = pyarrow.schema([(name, pyarrow.type_for_alias(_KINDS.get(name, "string"))) for name in header])
    columns = [
        pyarrow.array([row[place] for row in rows], type=field.type, from_pandas=False)
        for place, field in enumerate(schema)
    ]
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, schema=schema), file)
    return file.getvalue()


def _written(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(not_computed, header))
    writer.writerows(rows)
    return text.getvalue()


def _text(cell: Cell) -> str:
    return "" if cell is None else repr(cell) if isinstance(cell, float) else not_computed(str(cell))


def _label(label: Label) -> str:
    return "" if label is None else label if isinstance(label, str) else str(label).lower()
