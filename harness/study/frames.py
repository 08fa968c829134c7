"""Stored runs as flat records, and records as a typed data frame. Imports neither torch nor pandas."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from harness.schema import OBSERVED, PANEL, Cost, Judgement, Measured, Result
from harness.study.columns import RUN, configured, defaults, document_columns, flat
from harness.study.configuration import with_names

if TYPE_CHECKING:
    import pandas

    from harness.stores.stored import StoredRun


def record(run: StoredRun, ranking_key: str | None = None, names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """One run as flat columns, with the metrics of the given ranking, or of the run's own; `names` as `with_names`."""
    result = run.result or {}
    if ranking_key is not None:
        trained = {key: result[key] for key in ("diverged", OBSERVED) if key in result}
        judged = dict.fromkeys(key for key in result if key not in trained and key != PANEL)
        result = {**judged, **trained, **run.rankings.get(ranking_key, {})}
    columns = {
        "run_id": run.id,
        "key": run.key,
        "attempt": run.attempt,
        "status": run.status.value,
        "superseded": run.superseded,
        "invalid": run.invalid,
        "preset": run.preset,
        "overridden": bool(run.overrides),
        "source": run.source,
        "host": run.owner.get("host"),
        "commit": run.commit,
        "started": _time(run.start_time),
        "stopped": _time(run.stop_time),
    }
    _add_columns(columns, with_names(run.trial["config"], names))
    _add_columns(columns, flat(Result, {"diverged": None, **result}))
    _add_columns(columns, run.cost or {})
    return columns


def _time(text: str | None) -> datetime | None:
    """A stored time, which is in UTC."""
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=UTC)


def columns_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document as flat columns: nested keys are joined by underscores."""
    columns: dict[str, Any] = {}
    _add_columns(columns, document)
    return columns


def _add_columns(columns: dict[str, Any], document: Mapping[str, Any], prefix: str = "") -> None:
    names = _NAMES.setdefault(prefix, {})
    for key, value in document.items():
        if type(value) is dict:
            _add_columns(columns, value, f"{prefix}{key}_")
        else:
            # One string object per name: ten thousand runs share it, and each is looked up by it.
            columns[names.get(key) or names.setdefault(key, f"{prefix}{key}")] = value


_NAMES: dict[str, dict[str, str]] = {}
"""Names of columns, by prefix and key."""


def details(records: Sequence[Mapping[str, Any]]) -> set[str]:
    """The columns that a reader of these records rarely needs.

    They are the panel of measures, and the settings and measures that all records have at their default or lack. What
    names a run, and what decides how its ranking is judged, is none of them.
    """
    known = defaults()
    met = set().union(*dict.fromkeys(map(tuple, records)))
    columns = {*configured(), *document_columns(Result), *document_columns(Cost), *met}
    panel = {name for name in columns if name.startswith(f"{PANEL}_")}
    names = [name for name in columns - panel - ALWAYS if not name.endswith("_name")]
    same = [name for name in names if name in met]
    last: list[Any] = []
    for one in records:  # row by row: reading column by column would fetch every run from memory each time
        if (values := list(map(one.get, same))) != last:
            pairs = zip(same, values, strict=True)
            same = [name for name, value in pairs if value is None or value == known.get(name)]
            last = list(map(one.get, same))
    return {*panel, *same, *(name for name in names if name not in met)}


ALWAYS = {
    *(*RUN, "study", "row", "made_for", "space", "dataset", "benchmark", "seed"),
    *("train_epochs", "optimiser_learning_rate"),
    *("rank_images", "rank_batch_size", "rank_calibration", "rank_truth", "rank_selection", "rank_selection_on"),
    *("rank_bins", "rank_truth_split", *document_columns(Judgement), *document_columns(Measured)),
}
"""Columns that no data frame of runs lacks."""


def frame(
    records: Sequence[Mapping[str, Any]],
    extra: Mapping[str, type] | None = None,
    without: Collection[str] = (),
) -> pandas.DataFrame:
    """Flat records as typed columns: first the columns that every run has, then the others."""
    import pandas

    run = {name: kind for name, (kind, _) in RUN.items()}
    kinds = {**run, **(extra or {}), **configured(), **document_columns(Result), **document_columns(Cost)}
    met = dict.fromkeys(map(tuple, records))
    columns = list(dict.fromkeys([*kinds, *(column for shape in met for column in shape)]))
    columns = [column for column in columns if column not in without]
    # Read row by row, then transpose: reading column by column would fetch every run from memory each time.
    turned = zip(*([*map(one.get, columns)] for one in records), strict=True) if records else ((),) * len(columns)
    typed = {}
    for column, values in zip(columns, turned, strict=True):
        try:
            typed[column] = pandas.Series(values, dtype=dtype(values, kinds.get(column)))
        except (ValueError, TypeError, OverflowError):
            typed[column] = pandas.Series(values, dtype="object")
    return pandas.DataFrame(typed, columns=columns)


def misfits(records: Sequence[Mapping[str, Any]], table: pandas.DataFrame) -> dict[str, str]:
    """By run id, why a record does not fit the columns of its table: a value that is not of the column's type.

    Configurations are not checked key by key when they are read, so those of unfinished runs may hold anything.
    """
    kinds = {name: kind for name, (kind, _) in RUN.items()} | configured()
    found: dict[str, str] = {}
    for column, kind in kinds.items():
        if kind in _FITTING and column in table and str(table[column].dtype) == "object":
            for one in records:
                if not _fits(value := one.get(column), kind):
                    found[one["run_id"]] = f"its configuration: {column} is {value!r}"[:100]
    return found


_FITTING = {bool: (bool,), int: (int,), float: (int, float), str: (str,)}


def _fits(value: Any, kind: type) -> bool:
    return value is None or (type(value) in _FITTING[kind] and (type(value) is not int or abs(value) < 2**63))


def dtype(values: Sequence[Any], kind: type | None) -> str:
    """The pandas dtype of a column: nullable only if a value is missing."""
    missing = None in values
    if kind is None:
        kinds = {type(value) for value in values if value is not None}
        kind = kinds.pop() if len(kinds) == 1 else float if kinds == {int, float} else object
    names = {bool: "boolean" if missing else "bool", int: "Int64" if missing else "int64", float: "float64", str: "str"}
    names[datetime] = "datetime64[us, UTC]"
    return names.get(kind or object, "object")
