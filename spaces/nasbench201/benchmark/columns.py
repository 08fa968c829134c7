"""Accuracies from a table of columns: CSV, plain or compressed with gzip, or Parquet.

Columns: `arch`, the benchmark's string, and `cifar10`, `cifar100` and `imagenet16_120`, each with
`_valid` and `_test`, in percent after 200 epochs. Other columns are ignored; rows may be in any order.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.errors import DataError
from harness.truth.imported import Key
from harness.truth.listing import Listing

from .official import KEYS

ARCHITECTURE = "arch"


def column_name(key: Key) -> str:
    """The column of a data set and split."""
    dataset, split = key
    return f"{dataset.replace('-', '_')}_{split}"


def read_csv(path: Path) -> Listing:
    """The listing in a CSV file. Raises `DataError`."""
    rows: list[list[str]] = []
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, strict=True)
            header = next(lines, [])
            places = _places(path, header)
            for line in lines:
                if len(line) != len(header):
                    raise DataError(
                        f"{path}: line {lines.line_num} has {len(line)} values, the header {len(header)} names"
                    )
                rows.append(line)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: not a readable CSV file ({error})") from error
    names = [row[places[ARCHITECTURE]] for row in rows]
    columns: dict[Key, Sequence[float]] = {}
    for key in KEYS:
        place = places[column_name(key)]
        columns[key] = [number(path, f"line {line}", column_name(key), row[place]) for line, row in enumerate(rows, 2)]
    return _listing(path, "csv", names, columns, "line", 2)


def read_parquet(path: Path) -> Listing:
    """The listing in a Parquet file, read by pandas. Raises `DataError`, also when pandas lacks the package for it."""
    import pandas

    wanted = [ARCHITECTURE, *map(column_name, KEYS)]
    try:
        frame = pandas.read_parquet(path)
    except ImportError as error:
        raise DataError(
            f"{path}: pandas reads Parquet files with the package pyarrow, which is not installed: "
            "`pip install pyarrow`, or convert the file to CSV"
        ) from error
    except Exception as error:  # pyarrow's own exceptions, of many kinds
        raise DataError(f"{path}: not a readable Parquet file ({' '.join(str(error).split())})") from error
    _places(path, [str(name) for name in frame.columns])
    columns: dict[Key, Sequence[float]] = {}
    for key, name in zip(KEYS, wanted[1:], strict=True):
        columns[key] = [number(path, f"row {row}", name, value) for row, value in enumerate(frame[name].tolist())]
    return _listing(path, "parquet", [str(name) for name in frame[ARCHITECTURE].tolist()], columns, "row", 0)


def _listing(
    path: Path, kind: str, names: list[str], columns: dict[Key, Sequence[float]], row_name: str, first: int
) -> Listing:
    if not names:
        raise DataError(f"{path}: has no rows")
    meanings = {key: f"column {column_name(key)}, as the file gives it" for key in columns}
    return Listing(path, kind, names, columns, first_row=first, row_name=row_name, meanings=meanings)


def _places(path: Path, header: list[str]) -> dict[str, int]:
    wanted = [ARCHITECTURE, *map(column_name, KEYS)]
    check_columns(path, header, wanted)
    return {name: header.index(name) for name in wanted}


def check_columns(path: Path, header: list[str], wanted: list[str]) -> None:
    """Raise `DataError` unless every wanted column is there once."""
    missing = [name for name in wanted if name not in header]
    if missing:
        raise DataError(f"{path}: has no column {', '.join(missing)}; required: {', '.join(wanted)}")
    doubled = [name for name in wanted if header.count(name) > 1]
    if doubled:
        raise DataError(f"{path}: has the column {doubled[0]} twice")


def number(path: Path, row: str, column: str, value: Any) -> float:
    """A value of a column. Raises `DataError`."""
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: {row}, column {column}: {value!r} is not a number") from error
