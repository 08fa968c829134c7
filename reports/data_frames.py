"""A study's table and paired differences of its rows as pandas data frames, from the same runs as the report.

`harness.results.table` and `harness.results.pairs` return them.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from harness.errors import InvalidConfiguration, UnknownName
from harness.study.columns import number_names
from harness.study.comparisons import baseline
from harness.study.layout import label_column

from .evidence import Findings
from .references import reference_values
from .values import Table, Value, look_up

if TYPE_CHECKING:
    import pandas

    from harness.stores.store import Store


def table_frame(table: Table) -> pandas.DataFrame:
    """The table: one row per row, with its labels as the index; mean, std and n under every heading.

    `n` is the number of seeds behind a mean; 0 where the number was quoted or looked up, not measured. `attrs` holds
    the caption and the notes.
    """
    import pandas

    rows = [row for block in table.blocks for row in block]
    headings = [f"{one.label} ({one.dataset})" if table.several else one.label for one in table.columns]
    columns = pandas.MultiIndex.from_product([headings, ["mean", "std", "n"]], names=["column", None])
    names = [label_column(label) for label in table.labels]
    by_label = [[row.labels[place] for row in rows] for place in range(len(names))]
    index = pandas.MultiIndex.from_arrays(by_label, names=names)
    if len(names) == 1:
        index = index.get_level_values(0)
    values = [[number for value in row.values for number in _numbers(value)] for row in rows]
    frame = pandas.DataFrame(values, index, columns)
    frame = frame.astype({column: "int64" if column[1] == "n" else "float64" for column in columns})
    frame.attrs = {"title": table.title, "scale": table.scale, "notes": list(table.notes)}
    return frame


def pairs_frame(
    findings: Findings, metric: str, row: int | None, against: int | str | None, store: Store
) -> pandas.DataFrame:
    """Per row, data set and seed: the value, the baseline's value with the same seed, and their difference.

    The baseline of a row is the first of its group, or `against`: a row, or a reference of the store. What is missing
    on either side is missing in the difference. Raises `UnknownName` for a metric that no run has.
    """
    import pandas

    study = findings.study
    for number in (row, against):
        if isinstance(number, int) and not 0 <= number < len(study.rows):
            raise InvalidConfiguration(f"study {study.name} has rows 0 to {len(study.rows) - 1}, not {number}")
    # As columns of data frames name it, too.
    metric = {name.replace(".", "_"): name for name in number_names()}.get(metric, metric)
    values: dict[tuple[int, str, int], float | None] = {}
    for one in findings.counted:
        value = look_up(one.metrics, metric)
        values[one.request.row, one.request.dataset, one.request.seed] = None if value is None else float(value)
    known = {*number_names(), *(name for one in findings.counted for name in one.metrics)}
    if metric not in known and all(value is None for value in values.values()):
        raise UnknownName.among("metric", metric, known)
    referred = reference_values(findings, store, against, metric) if isinstance(against, str) else {}
    records = []
    for (number, dataset, seed), value in values.items():
        partner = baseline(study, number) if against is None else against
        if number == partner or row not in (None, number):
            continue
        other = referred.get((dataset, seed)) if isinstance(partner, str) else values.get((partner, dataset, seed))
        difference = None if value is None or other is None else value - other
        records.append((number, *study.rows[number].labels.values(), partner, dataset, seed, value, other, difference))
    labels = [label_column(label) for label in study.rows[0].labels]
    numbers = dict.fromkeys(("value", "baseline", "difference"), "float64")
    frame = pandas.DataFrame(records, columns=["row", *labels, "against", "dataset", "seed", *numbers])
    named = "str" if isinstance(against, str) else "int64"
    return frame.astype({"row": "int64", "against": named, "dataset": "str", "seed": "int64", **numbers})


def _numbers(value: Value) -> tuple[float | None, float | None, int]:
    """Mean, sample standard deviation and number of seeds of a value."""
    if value.quotation:
        return float(value.quotation.mean), float(value.quotation.deviation or "nan"), 0
    numbers = value.numbers
    measured = sum(one.seed is not None for one in value.measurements if one.value is not None)
    deviation = statistics.stdev(numbers) if len(numbers) > 1 else None
    return (statistics.fmean(numbers) if numbers else None), deviation, measured
