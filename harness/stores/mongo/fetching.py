"""Restores a mirrored run as a directory, byte for byte: to use its weights, or to add rankings to it."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from harness.documents import parsed
from harness.errors import DataError
from harness.files import make_durable, make_folder, sha256, write
from harness.schema import CompletionDocument, Versioned
from harness.stores.directory.reading import is_beside, read_small, summarise
from harness.stores.directory.run_directory import (
    ABSENT,
    COMPLETION,
    INVALID,
    PREDICTIONS,
    TRIAL,
    WEIGHTS,
    declare_absent,
)
from harness.stores.mongo.snapshot import COMPLETE, is_addition, look
from harness.stores.mongo.store import MongoStore, is_there

Entries = Mapping[str, Mapping[str, Any]]
"""What the database knows about a run's files, by name."""


def bring(store: MongoStore, run_id: str, folder: Path, entries: Entries, phase: int) -> Path:
    """Make or complete the run's directory; see `MongoStore.fetch`."""
    target = folder / run_id
    if target.is_dir() and look(target).phase >= phase:
        mend(store, run_id, target, entries)
        add(store, run_id, target, entries)
        return target
    make_folder(folder)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=folder, ignore_cleanup_errors=True) as fresh:
        inner = Path(fresh) / run_id
        _materialise(store, run_id, inner, entries)
        if target.is_dir():
            target.rename(Path(fresh) / "older")
        try:
            inner.rename(target)
        except OSError:
            if not (target / TRIAL).exists():
                raise  # otherwise another process restored it meanwhile
    make_durable(folder)
    return target


def is_whole(folder: Path) -> bool:
    """Whether a directory holds a complete run with every file unchanged, weights included."""
    try:
        summarise(folder, [])
        return not _wrong(folder, read_small(folder / COMPLETION, CompletionDocument)["files"])
    except DataError:
        return False


def mend(store: MongoStore, run_id: str, folder: Path, entries: Entries) -> None:
    """Restore the files of a complete run's directory that are damaged or were left out, above all weights.

    Files that the database does not have stay as they are. Raises `DataError` if the two are different runs.
    """
    record = _record(store, run_id, entries)
    if not record or look(folder).phase != COMPLETE:
        return
    wrong = _wrong(folder, {COMPLETION: entries[COMPLETION]["sha256"], **record})
    if COMPLETION in wrong and _is_readable(folder / COMPLETION):
        raise DataError(f"{folder / COMPLETION}: does not belong to the run in {store.name}")
    for name in wrong:
        entry = entries.get(name, {})
        if is_there(entry) and entry["sha256"] == record.get(name, entry["sha256"]):
            _write(store, run_id, entry, folder)
            make_durable((folder / name).parent)
    if (folder / ABSENT).exists() and not _wrong(folder, {WEIGHTS: record.get(WEIGHTS, "")}):
        (folder / ABSENT).unlink(missing_ok=True)


def add(store: MongoStore, run_id: str, folder: Path, entries: Entries) -> None:
    """Add the rankings and marks that the directory lacks. Files that a ranking refers to come before it."""
    further = [name for name in entries if is_addition(name) and not (folder / name).exists()]
    if look(folder).phase != COMPLETE:
        further = [name for name in further if name == INVALID]
    for name in sorted(further, key=lambda name: (not name.endswith(PREDICTIONS), name)):
        _write(store, run_id, entries[name], folder)
        make_durable((folder / name).parent)


def _materialise(store: MongoStore, run_id: str, folder: Path, entries: Entries) -> None:
    folder.mkdir()
    record = _record(store, run_id, entries)
    for name in sorted({*entries, *record}):
        entry = entries.get(name, {"name": name})
        mirrored = is_there(entry)
        if name == WEIGHTS and not mirrored:
            declare_absent(folder, {name: record.get(name, "")})
            continue
        if name not in entries and is_beside(name):
            continue
        if mirrored and record.get(name, entry["sha256"]) != entry["sha256"]:
            raise DataError(f"{store.name}/{run_id}/{name}: is not the file that the completion record lists")
        _write(store, run_id, entry, folder)
    for inner in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        make_durable(inner)
    summarise(folder, [])  # verifies it as a reader will


def _record(store: MongoStore, run_id: str, entries: Entries) -> dict[str, str]:
    """The checksums of the completion record, by name; empty for a run that is not complete."""
    if COMPLETION not in entries:
        return {}
    text = io.BytesIO()
    store.copy(run_id, entries[COMPLETION], text)
    try:
        files: dict[str, str] = parsed(text.getvalue(), CompletionDocument)["files"]
    except DataError as error:
        raise DataError(f"{store.name}/{run_id}/{COMPLETION}: {error}") from error
    return files


def _wrong(folder: Path, record: Mapping[str, str]) -> list[str]:
    """The files that are missing or have a different checksum."""
    wrong = []
    for name, expected in record.items():
        try:
            if sha256(folder / name) != expected:
                wrong.append(name)
        except OSError:
            wrong.append(name)
    return wrong


def _is_readable(path: Path) -> bool:
    try:
        return bool(read_small(path, Versioned))
    except DataError:
        return False


def _write(store: MongoStore, run_id: str, entry: Mapping[str, Any], folder: Path) -> None:
    """Write the file with its original time, so that the copy is as new as the original."""
    name = entry["name"]
    parts = PurePosixPath(name).parts
    if "/".join(parts) != name or any(part.startswith(".") for part in parts):
        raise DataError(f"{store.name}/{run_id}: names the file {name!r}, which could lead outside the run")
    place = folder / name
    make_folder(place.parent)
    write(place, lambda file: store.copy(run_id, entry, file))
    modified = entry["modified"] * 1000
    os.utime(place, ns=(modified, modified))
