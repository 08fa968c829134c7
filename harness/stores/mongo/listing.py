"""What lists of runs in other tools show of one: its name, tags, one number, flat columns, and final values.

For display only: the harness reads none of it. Omniboard has a column per first-level key of `config`, and columns of
the last values of metrics; it shows `omniboard.tags` as tags, and `meta.comment` as notes. Knows nothing of databases.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from typing import Any

from harness.documents import flatten, parsed, problem
from harness.errors import DataError
from harness.schema import NOBODY, PANEL, Naming, title
from harness.stores.stored import final_values, newest_result, without_curves

Document = dict[str, Any]

VERSION = 1
"""Increased when lists shall show something else of the same run; `store sync` then writes it."""

FLAT = ("method", "schedule", "clusters")
"""The sections of a configuration whose keys are columns of their own, named as those of `harness.results`."""


def merged(*known: Any) -> Naming:
    """One naming with the rows of all these that are usable; the first that has a row decides the name."""
    usable: list[Naming] = [one for one in known if problem(Naming, one) is None and one["rows"]]
    first = usable[0] if usable else NOBODY
    rows: dict[str, str] = {}
    for one in usable:
        rows = {**rows, **one["rows"], **rows}
    return {"rows": rows, "metrics": first["metrics"], "ranking": first["ranking"]}


def shown(naming: Naming) -> str:
    """The text that shows whether a run's entry in lists is up to date."""
    return json.dumps({"version": VERSION, **naming})


def read_shown(text: Any) -> Any:
    """The naming in such a text; None if it is none."""
    with contextlib.suppress(DataError):
        return parsed(text, Naming) if isinstance(text, str) else None
    return None


def listed(document: Mapping[str, Any], summary: Mapping[str, Any], naming: Naming) -> Document:
    """The fields that lists show, made from what the document has in them; its other fields stay as they are."""
    experiment, meta, config, info = (mapping(document.get(key)) for key in ("experiment", "meta", "config", "info"))
    config = config or dict(summary["cell"]["config"])
    experiment["name"] = title(naming, experiment.get("name") or summary["cell"]["config"]["method"]["name"])
    metric, number = _number(summary, naming)
    also = ", ".join([f"{study}: {row}" for study, row in naming["rows"].items()][1:])
    notes = {"result: ": metric, "also ": also}
    meta["comment"] = "; ".join(f"{word}{text}" for word, text in notes.items() if text)
    if (result := newest_result(summary)) is not None:
        info["result"] = result
    return {"experiment": experiment, "meta": meta, "config": _flat(config) | config, "info": info, "result": number}


def tags(summary: Mapping[str, Any], naming: Naming) -> list[str]:
    """The studies that ask for a run, its preset and its seed."""
    return [*naming["rows"], summary["preset"], f"seed {summary['cell']['config']['seed']}"]


def tagging(omniboard: Any, wanted: list[str]) -> Document:
    """The update that adds tags to a document whose field `omniboard` is this. Tags and notes of users stay."""
    there = mapping(omniboard)
    if omniboard is None or (omniboard == there and isinstance(there.get("tags", []), list)):
        return {"$addToSet": {"omniboard.tags": {"$each": wanted}}}
    return {"$set": {"omniboard": there | {"tags": wanted}}}


def ended_with(summary: Mapping[str, Any], naming: Naming) -> dict[str, float]:
    """The numbers of a done run's result, without its panel, and those of its cost that its row shows."""
    result = without_curves(newest_result(summary) or {})
    found = {f"result.{name}": value for name, value in result.items() if name != PANEL}
    costs = flatten(summary["cost"] or {})
    found |= {f"cost.{name}": costs[name] for name in naming["metrics"] if name in costs}
    return {name: value for name, value in found.items() if _is_number(value)}


def mapping(value: Any) -> Document:
    """A copy of a value that should be a mapping; empty if it is none."""
    return dict(value) if isinstance(value, Mapping) else {}


def _number(summary: Mapping[str, Any], naming: Naming) -> tuple[str | None, float | None]:
    """The first metric of its row that the run has a number of, else Kendall's τ; and that number."""
    result = newest_result(summary)
    if result is None:
        return None, None
    judged = summary["rankings"].get(naming["ranking"], {})
    values = final_values({**result, **judged}, summary["cost"] or {})
    for metric in (*naming["metrics"], "kendall_tau"):
        if _is_number(value := values.get(metric)):
            return metric, value
    return None, None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _flat(config: Mapping[str, Any]) -> Document:
    sections = {key: config[key] for key in FLAT if isinstance(config.get(key), Mapping)}
    return {name.replace(".", "_"): value for name, value in flatten(sections).items()}
