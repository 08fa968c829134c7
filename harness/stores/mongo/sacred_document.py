"""A run in the form that Sacred's own tools expect: what Omniboard shows, in the types that it needs.

For display only: keys have no dots, numbers fit, long values are cut. What the harness itself reads is kept
exactly, elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import bson

from harness.files import open_regular
from harness.schema import ASKED, Naming
from harness.stores.directory.reading import read_small
from harness.stores.directory.run_directory import CONFIG, INFO, LOG
from harness.stores.mongo.listing import ended_with, listed
from harness.stores.mongo.snapshot import Snapshot

Document = dict[str, Any]

LONGEST_OUTPUT = 1 << 20
"""Maximum bytes of output in the document: the end of it."""
LONGEST_VALUE = 1 << 20
"""Maximum bytes of any other value."""
MOST_POINTS = 100_000
"""Maximum points of a curve in its document, which is limited to 16 MB. Longer curves are thinned evenly."""

FORMAT = "MongoObserver-0.7.0"
"""The version of Sacred's schema."""


def sacred_document(snapshot: Snapshot, naming: Naming) -> Document:
    """All fields except `_id`, `artifacts`, `omniboard` and those that refer to other documents."""
    run, summary = snapshot.run, snapshot.summary
    experiment = dict(run.get("experiment") or {"base_dir": "", "dependencies": [], "repositories": []})
    experiment["sources"] = []
    document: Document = {
        "experiment": experiment,
        "command": run.get("command") or "",
        "host": run.get("host") or {"hostname": summary["owner"]["host"]},
        "meta": run.get("meta") or {},
        "status": run.get("status") or "RUNNING",
        "config": _read(snapshot, CONFIG) or summary["cell"]["config"],
        "info": _read(snapshot, INFO),
        "resources": [],
        "format": FORMAT,
    }
    if summary["fail_trace"] is not None:
        document["fail_trace"] = summary["fail_trace"]
    document |= listed(document, summary, naming)
    document = {key: fitting(value) for key, value in document.items()}
    document["captured_out"] = _output(snapshot)
    stop = _date(summary["stop_time"])
    document["start_time"], document["stop_time"] = _date(summary["start_time"]), stop
    # Omniboard computes the duration from the heartbeat; a run of a few seconds never had one.
    document["heartbeat"] = stop or _date(summary["heartbeat"])
    return document


def asked(snapshot: Snapshot) -> Any:
    """What the run's directory says about the studies that asked for it; anything if it is damaged."""
    return _read(snapshot, INFO).get(ASKED)


def final_documents(summary: Mapping[str, Any], naming: Naming) -> dict[str, Document]:
    """What a done run ended with, as curves of one point by their names."""
    times = [summary["stop_time"] or summary["start_time"]]
    return {
        name: metric_document({"steps": [0], "values": [value], "timestamps": times})
        for name, value in ended_with(summary, naming).items()
    }


def metric_document(columns: Mapping[str, list[Any]]) -> Document:
    """Steps, values and timestamps of one curve; thinned if there are too many, keeping the first and the last."""
    points = len(columns["values"])
    chosen: list[int] | range = range(points)
    if points > MOST_POINTS:
        chosen = [round(number * (points - 1) / (MOST_POINTS - 1)) for number in range(MOST_POINTS)]
    document = {
        "steps": [displayable(columns["steps"][at]) for at in chosen],
        "values": [displayable(columns["values"][at]) for at in chosen],
        "timestamps": [_date(columns["timestamps"][at]) for at in chosen],
        "points": points,
    }
    return document | ({"thinned": True} if points > MOST_POINTS else {})


def displayable(value: Any) -> Any:
    """The same value with keys and numbers that every tool accepts."""
    if isinstance(value, Mapping):
        return {_key(str(key)): displayable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [displayable(item) for item in value]
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _key(name: str) -> str:
    name = displayable(name).replace(".", "_").replace("\0", "_")
    return f"_{name[1:]}" if name.startswith("$") else name


def fitting(value: Any) -> Any:
    """The value as it is displayed, or a note in its place if it is too long."""
    value = displayable(value)
    if len(bson.encode({"": value})) <= LONGEST_VALUE:
        return value
    note = "too long to be shown; see the artifacts"
    if isinstance(value, list):
        return [note]
    return {"note": note} if isinstance(value, dict) else note


def _output(snapshot: Snapshot) -> str:
    try:
        with open_regular(snapshot.path / LOG) as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - LONGEST_OUTPUT))
            end = log.read(LONGEST_OUTPUT)
    except FileNotFoundError:
        return ""
    if size <= LONGEST_OUTPUT:
        return end.decode(errors="replace")
    _, _, whole_lines = end.partition(b"\n")
    return f"[… the whole output is in {LOG}]\n" + (whole_lines or end).decode(errors="replace")


def _date(text: str | None) -> datetime | None:
    """A time in UTC without a time zone, as in Sacred and in the database."""
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=None)


def _read(snapshot: Snapshot, name: str) -> dict[str, Any]:
    return read_small(snapshot.path / name) if name in snapshot.pieces else {}
