"""Files that are whole or not there: JSON is written beside its place, made durable and moved."""

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
"""How `write` calls a file until it is whole."""


def write_json(path: Path, document: Any) -> None:
    """Write the document; numbers that are not finite become null."""
    text = json.dumps(without_nan(document), indent=1, ensure_ascii=False, allow_nan=False)
    write(path, lambda file: file.write(text.encode() + b"\n"))


def write(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Make the file by calling `fill` with it. Readers see the old one or the new one, never a part."""
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
    """Whether the file is called as one that is being written."""
    return bool(_UNFINISHED.fullmatch(path.name))


def living_writer(path: Path) -> int | None:
    """The number of the process that is writing this unfinished file; None when none that lives here is.

    When nothing was written for a day, it is another process of the same number. Raises FileNotFoundError.
    """
    changed = path.stat().st_mtime
    match = _UNFINISHED.fullmatch(path.name)
    if match is None or start_ticks(int(match["process"])) is None or time.time() - changed >= DAY:
        return None
    return int(match["process"])


def make_durable(folder: Path) -> None:
    """Survive a power failure: what was moved into the folder stays there."""
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
