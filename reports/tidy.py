"""Tables as tidy CSV: one line for each row, column and seed, with the run behind it, or why there is none."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from .tables import Label, Table

SUFFIX = "csv"


def render(tables: Sequence[Table]) -> str:
    """All tables in one; label columns that a table does not have are empty."""
    labels = list(dict.fromkeys(label for table in tables for label in table.labels))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    fixed = ["dataset", "column", "metric", "seed", "value", "state", "run_id"]
    writer.writerow(["study", "preset", "row", "reference", *labels, *fixed])
    for table in tables:
        for row in (row for block in table.blocks for row in block):
            own = dict(zip(table.labels, row.labels, strict=True))
            start = [table.study, table.preset, row.number, row.name or "", *(_label(own.get(name)) for name in labels)]
            for column, value in zip(table.columns, row.values, strict=True):
                for one in value.measurements:
                    number = "" if one.value is None else repr(one.value)
                    end = [column.dataset, column.label, column.metric, one.seed, number, one.state, one.run_id]
                    writer.writerow([*start, *end])
    return text.getvalue()


def _label(label: Label) -> str:
    return "" if label is None else label if isinstance(label, str) else str(label).lower()
