"""Atomic file writes: a temporary file beside the target is written, synced to disk and renamed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from harness.documents import without_nan
from harness.owner import start_ticks

DAY = 86400.0

_UNFINISHED = re.compile(r"\..+\.(?P<process>\d+)\.\d+")
"""The name of a file while `write` is writing it."""


def write_json(path: Path, document: Any) -> None:
    """Write the document; numbers that are not finite become null."""
    text = json.dumps(without_nan(document), indent=1, ensure_ascii=False, allow_nan=False)
    write(path, lambda file: file.write(text.encode() + b"\n"))


def write(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write a file atomically; `fill` gets the open file. Readers see the old file or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with temporary.open("wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def is_unfinished(path: Path) -> bool:
    """Whether the name is the name of a file that is being written."""
    return bool(_UNFINISHED.fullmatch(path.name))


def living_writer(path: Path) -> int | None:
    """PID of the process that is writing this unfinished file; None if no live process on this machine is.

    After a day without a write, the PID is assumed to belong to another process. Raises FileNotFoundError.
    """
    changed = path.stat().st_mtime
    match = _UNFINISHED.fullmatch(path.name)
    if match is None or start_ticks(int(match["process"])) is None or time.time() - changed >= DAY:
        return None
    return int(match["process"])


def make_durable(folder: Path) -> None:
    """Sync the folder, so that files moved into it survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
