"""The complete log of a run: what this process and its children print, whichever way they print it."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from harness.files import NamedFile, open_regular, write


@contextlib.contextmanager
def output_to(path: Path) -> Iterator[IO[str]]:
    """Append everything written to file descriptors 1 and 2, and to Python's own streams, to that file."""
    raw = io.BufferedWriter(NamedFile(path, "a"))
    with io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True) as log:
        _flush()
        saved = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
        for descriptor in saved:
            os.dup2(log.fileno(), descriptor)
        try:
            with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
                yield log
        finally:
            _flush()
            for descriptor, copy in saved.items():
                os.dup2(copy, descriptor)
                os.close(copy)


def drop_drawings(path: Path) -> None:
    """Remove from a finished log all text that was overwritten on its line: mostly progress bars."""
    with open_regular(path) as log:
        if b"\r" not in log.read():
            return
        log.seek(0)
        write(path, lambda file: file.writelines(_last_drawing(line) for line in log))


def _last_drawing(line: bytes) -> bytes:
    end = b"\n" if line.endswith(b"\n") else b""
    drawings = [drawing for drawing in line.removesuffix(b"\n").split(b"\r") if drawing.strip()]
    return (drawings[-1] if drawings else b"") + end


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a closed stream has nothing to flush
            stream.flush()
