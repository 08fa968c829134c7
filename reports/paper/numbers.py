"""The paper's own numbers, digit for digit: each of its tables as a data file in `paper/tables/`, and their look-up.

Numbers are kept as printed text: "0.81" is not "0.810". Nothing here is measured or computed. Labels, metrics
and data sets have the same names as in the studies, so that each row of a study finds the paper's row. Errors
in the paper's tables are kept, with a remark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.errors import DataError

FOLDER = Path(__file__).with_name("tables")
FALLBACK = "cifar10"
"""The paper's data set that is shown beside one that the paper does not have, where a study's tables name none."""

_Place = tuple[str, frozenset[tuple[str, str | bool]], str, str | None]
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_FIELDS: dict[str, dict[str, Any]] = {
    "table": {"table": str, "label": str, "study": (str, type(None)), "remark": str, "columns": list, "rows": list},
    "column": {"metric": str, "dataset": (str, type(None)), "heading": str, "unit": str},
    "row": {"labels": dict, "values": list},
    "value": {"mean": str, "deviation": (str, type(None)), "bold": bool},
}


@dataclass(frozen=True)
class Number:
    """A number as the paper prints it. The deviation is over three runs; None if none is printed."""

    mean: str
    deviation: str | None
    bold: bool
    table: str
    """Where it is printed: "Table 2"."""


@dataclass(frozen=True)
class PaperColumn:
    """One metric on one data set, and its printed heading. `unit` is the unit of the numbers."""

    metric: str
    dataset: str | None
    heading: str
    unit: str


@dataclass(frozen=True)
class PaperRow:
    """The labels, as in the study's row, and one number per column; None where the paper prints a dash."""

    labels: Mapping[str, str | bool]
    values: tuple[Number | None, ...]


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper. `label` is its LaTeX label, `study` the study that reproduces it, if any."""

    name: str
    label: str
    study: str | None
    remark: str
    columns: tuple[PaperColumn, ...]
    rows: tuple[PaperRow, ...]


@lru_cache(maxsize=1)
def tables() -> tuple[PaperTable, ...]:
    """Every table of the paper, in order. Raises `DataError` if a file is malformed."""
    return load(FOLDER)


def quoted(study: str, labels: Mapping[str, str | bool], metric: str, dataset: str | None) -> Number | None:
    """The paper's number for a row of the study; None if it prints none.

    The data set must be one of the paper's (`beside` gives it for other data sets). If two tables of the
    paper print the same row, the first is quoted.
    """
    return _index().get((study, frozenset(labels.items()), metric, dataset))


def beside(dataset: str, study: str | None = None) -> str:
    """The paper's data set that is shown beside `dataset`: the same one, or else the first of the study's tables."""
    known = datasets(study)
    return dataset if dataset in known else known[0] if known else FALLBACK


@lru_cache(maxsize=64)
def datasets(study: str | None = None) -> tuple[str, ...]:
    """The data sets of the tables that the study reproduces, in their order; for None of all tables with a study."""
    chosen = [one for one in tables() if one.study and study in (None, one.study)]
    found = dict.fromkeys(column.dataset for table in chosen for column in table.columns if column.dataset)
    return tuple(sorted(found, key=lambda name: name != FALLBACK) if study is None else found)


def load(folder: Path) -> tuple[PaperTable, ...]:
    """The tables of a folder, in the order of their names. Raises `DataError`."""
    files = sorted(folder.glob("table_*.json"))
    if not files:
        raise DataError(f"no tables of the paper in {folder}; they are part of the package: reinstall it")
    found = tuple(_table(file) for file in files)
    _by_place(found)
    return found


@lru_cache(maxsize=1)
def _index() -> dict[_Place, Number]:
    return _by_place(tables())


def read_json(file: Path) -> Any:
    """A data file of the paper. Raises `DataError`."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read as JSON: {error}") from error


def checked(place: str, value: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The value as an object with exactly these fields of these types. Raises `DataError` that names the place."""
    if not isinstance(value, dict) or set(value) != set(fields):
        got = sorted(value) if isinstance(value, dict) else type(value).__name__
        raise DataError(f"{place}: expected an object with {', '.join(fields)}, got {got}")
    for name, kind in fields.items():
        if not isinstance(value[name], kind):
            raise DataError(f"{place}: {name} is {value[name]!r}, which is of the wrong type")
    return value


def _table(file: Path) -> PaperTable:
    document = checked(f"{file}", read_json(file), _FIELDS["table"])
    name = document["table"]
    if file.stem != name.replace("Table ", "table_"):
        raise DataError(f"{file}: the file name does not match its table {name!r}")
    columns = tuple(
        PaperColumn(**checked(f"{file}: column {number}", column, _FIELDS["column"]))
        for number, column in enumerate(document["columns"], 1)
    )
    if len({(column.metric, column.dataset) for column in columns}) < len(columns):
        raise DataError(f"{file}: two columns have the same metric and data set")
    rows = tuple(_row(f"{file}: row {number}", row, name, columns) for number, row in enumerate(document["rows"], 1))
    if len({tuple(row.labels) for row in rows}) != 1:
        raise DataError(f"{file}: there must be at least one row, and every row needs the same labels")
    if len({frozenset(row.labels.items()) for row in rows}) < len(rows):
        raise DataError(f"{file}: two rows have the same labels")
    return PaperTable(name, document["label"], document["study"], document["remark"], columns, rows)


def _row(place: str, row: Any, table: str, columns: tuple[PaperColumn, ...]) -> PaperRow:
    checked(place, row, _FIELDS["row"])
    if not all(isinstance(label, str | bool) for label in row["labels"].values()):
        raise DataError(f"{place}: labels must be text, true or false, not {row['labels']}")
    if len(row["values"]) != len(columns):
        raise DataError(f"{place}: {len(row['values'])} values for {len(columns)} columns")
    values = [None if value is None else _number(f"{place}: {value}", value, table) for value in row["values"]]
    return PaperRow(row["labels"], tuple(values))


def _number(place: str, value: Any, table: str) -> Number:
    checked(place, value, _FIELDS["value"])
    for text in (value["mean"], value["deviation"]):
        if text is not None and not _NUMBER.fullmatch(text):
            raise DataError(f"{place}: {text!r} is not a number in print, such as 0.81")
    return Number(**value, table=table)


def _by_place(found: tuple[PaperTable, ...]) -> dict[_Place, Number]:
    """The numbers of the tables that studies reproduce.

    Two tables of one study must agree on every row, since a quotation would otherwise depend on their order.
    """
    places: dict[_Place, Number] = {}
    for table in found:
        for row in table.rows if table.study else ():
            for column, value in zip(table.columns, row.values, strict=True):
                if value is None:
                    continue
                place = (str(table.study), frozenset(row.labels.items()), column.metric, column.dataset)
                first = places.setdefault(place, value)
                if (first.mean, first.deviation) != (value.mean, value.deviation):
                    raise DataError(
                        f"{first.table} and {table.name} disagree on {column.metric} of {dict(row.labels)}: "
                        f"{first.mean} and {value.mean}"
                    )
    return places
