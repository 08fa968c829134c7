"""Looks for everything that can be wrong with stored runs, down to the last byte. Imports no torch.

Reading a store verifies small files and trusts the size of large ones; here every file is read.
"""

from __future__ import annotations

from pathlib import Path

from harness.stores.files import sha256
from harness.stores.reading import Damaged, absent_files, read_small, summarise
from harness.stores.run_directory import COMPLETION, POINTS, read_points
from harness.stores.stored import Problem


def examine(path: Path) -> list[Problem]:
    """All that is wrong in a run's directory; nothing for one that is whole, whether done or not."""
    found: list[Problem] = []
    try:
        summarise(path, found)
    except Damaged as error:
        found.append(Problem(str(error.path), error.reason))
    found += _wrong_checksums(path)
    try:
        read_points(path / POINTS)
    except (ValueError, OSError) as error:
        found.append(Problem(str(path / POINTS), f"is no list of points: {error}"))
    return list({problem.place: problem for problem in reversed(found)}.values())[::-1]


def _wrong_checksums(path: Path) -> list[Problem]:
    """Of all files that the completion record names, weights included."""
    found = []
    try:
        if not (path / COMPLETION).exists():
            return []
        record = read_small(path / COMPLETION, schema=True)
        for name, checksum in record["files"].items():
            file = path / name
            if not file.exists():
                if name not in absent_files(path, record):
                    found.append(Problem(str(file), "is missing"))
            elif sha256(file) != checksum:
                found.append(Problem(str(file), "has another checksum than the completion record says"))
    except Damaged as error:
        found.append(Problem(str(error.path), error.reason))
    except (KeyError, TypeError, AttributeError) as error:
        reason = f"not a completion record as it should be ({type(error).__name__}: {error})"
        found.append(Problem(str(path / COMPLETION), reason))
    except OSError as error:
        found.append(Problem(str(path), f"cannot be read: {error.strerror or error}"))
    return found
