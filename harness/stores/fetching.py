"""A mirrored run as a directory again, byte for byte: for whoever needs its weights, or goes on with its rankings."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from harness.errors import DataError
from harness.stores.files import make_durable, write
from harness.stores.reading import summarise
from harness.stores.run_directory import CELL, COMPLETION, INVALID, PREDICTIONS, WEIGHTS, declare_absent
from harness.stores.snapshot import COMPLETE, is_addition, look

if TYPE_CHECKING:
    from harness.stores.mongo_store import MongoStore

Entries = Mapping[str, Mapping[str, Any]]
"""What the database knows of a run's files, by name."""


def bring(store: MongoStore, run_id: str, folder: Path, entries: Entries, phase: int) -> Path:
    """Make or complete the run's directory; see `MongoStore.fetch`."""
    target = folder / run_id
    if target.is_dir() and look(target).phase >= phase:
        add(store, run_id, target, entries)
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=folder, ignore_cleanup_errors=True) as fresh:
        inner = Path(fresh) / run_id
        _materialise(store, run_id, inner, entries)
        if target.is_dir():
            target.rename(Path(fresh) / "older")
        try:
            inner.rename(target)
        except OSError:
            if not (target / CELL).exists():
                raise  # else another brought it meanwhile
    make_durable(folder)
    return target


def add(store: MongoStore, run_id: str, folder: Path, entries: Entries) -> None:
    """The rankings and marks that the directory lacks. What a ranking refers to comes before the ranking."""
    further = [name for name in entries if is_addition(name) and not (folder / name).exists()]
    if look(folder).phase != COMPLETE:
        further = [name for name in further if name == INVALID]
    for name in sorted(further, key=lambda name: (not name.endswith(PREDICTIONS), name)):
        _write(store, run_id, entries[name], folder)


def _materialise(store: MongoStore, run_id: str, folder: Path, entries: Entries) -> None:
    folder.mkdir()
    record: dict[str, str] = {}
    if COMPLETION in entries:
        text = io.BytesIO()
        store.copy(run_id, entries[COMPLETION], text)
        record = json.loads(text.getvalue())["files"]
    for name in sorted({*entries, *record}):
        entry = entries.get(name, {"name": name})
        mirrored = entry.get("id") is not None or "text" in entry
        if name == WEIGHTS and not mirrored:
            declare_absent(folder, {name: record.get(name, "")})
            continue
        if mirrored and record.get(name, entry["sha256"]) != entry["sha256"]:
            raise DataError(f"{store.name}/{run_id}/{name}: is not the file that the completion record is about")
        _write(store, run_id, entry, folder)
    for inner in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        make_durable(inner)
    summarise(folder, [])  # as whoever reads it will


def _write(store: MongoStore, run_id: str, entry: Mapping[str, Any], folder: Path) -> None:
    """With the time it had, so that the copy is as new as the original."""
    name = entry["name"]
    parts = PurePosixPath(name).parts
    if "/".join(parts) != name or any(part.startswith(".") for part in parts):
        raise DataError(f"{store.name}/{run_id}: names the file {name!r}, which could lead anywhere")
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    write(place, lambda file: store.copy(run_id, entry, file))
    modified = entry["modified"] * 1000
    os.utime(place, ns=(modified, modified))
