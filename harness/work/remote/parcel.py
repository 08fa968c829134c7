"""What travels to other machines: the user's study files and components, as one folder that is checked by its hash.

The engine itself does not travel: each machine has it installed, and its hash is checked, too. Imports no torch.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.components.discovery import folders_of_user
from harness.environment import ENGINE, PROJECT
from harness.errors import UserError
from harness.files import sha256
from harness.study.catalogue import file_of
from harness.work.plan import Asked

MOST = 100 * 2**20
"""The most bytes of a parcel: data belongs into HARNESS_DATA."""

NOTE = "parcel.txt"
ELSEWHERE = "elsewhere"
"""Folder of studies that are not in the user's folders."""

_SHIPPED = ("methods", "spaces", "studies")


@dataclass(frozen=True)
class Parcel:
    """A folder with all files of the user's that trials need."""

    folder: Path
    digest: str
    studies: tuple[str, ...]
    """The studies as they are named in there: by name, or by file."""


def pack(asked: Asked, folder: Path) -> Parcel:
    """Copy what is needed into an empty folder. Raises `UserError` for a study without a file, or too many bytes."""
    (folder / NOTE).write_text("Studies and components that were sent by `harness run`.\n")
    own = folders_of_user()
    for place in own:
        _copy(place, folder / place.name)
    names = []
    for study in asked.studies:
        file = file_of(study)
        if file is None:
            raise UserError(f"study {study.name} is not in a file: other machines cannot load it")
        file = file.resolve()
        if file.is_relative_to(PROJECT) or any(map(file.is_relative_to, own)):
            names.append(study.name)
            continue
        target = folder / ELSEWHERE / file.parent.name
        if not target.exists():
            target.mkdir(parents=True)
            for sibling in file.parent.glob("*.py"):  # the file may import them
                shutil.copy(sibling, target)
        names.append((target / file.name).relative_to(folder).as_posix())
    size = sum(file.stat().st_size for file in _files(folder))
    if size > MOST:
        raise UserError(
            f"studies and components of this folder have {size / 2**20:.0f} MiB, at most {MOST / 2**20:.0f} are sent: "
            "move data to the folder that HARNESS_DATA names"
        )
    return Parcel(folder, digest_of(folder), tuple(dict.fromkeys(names)))


def digest_of(folder: Path) -> str:
    """Hash of the names and contents of all files of a folder."""
    lines = [f"{file.relative_to(folder).as_posix()} {sha256(file)}" for file in _files(folder)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def engine_digest() -> str:
    """Hash of the installed engine with the components that it ships."""
    folders = [ENGINE, *(PROJECT / name for name in _SHIPPED)]
    return hashlib.sha256("".join(_code(folder) for folder in folders).encode()).hexdigest()


def _code(folder: Path) -> str:
    return "".join(sha256(file) for file in _files(folder) if file.suffix == ".py")


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder in order, without what is hidden or made by Python."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name[0] != "." and name not in ("__pycache__", "_shipped"))
        yield from (Path(place, name) for name in sorted(names) if name[0] != ".")


def _copy(source: Path, target: Path) -> None:
    for file in _files(source):
        place = target / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)
