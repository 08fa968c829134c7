"""The code of a user's component: the file that registers it, and what that file imports from the user's own folder.

A version is text: "code:" and the hash of the file's code, and where the file imports others of the user's, "+" and a
hash of their names and code. Imports are read from the text, also inside functions; names that are only known when the
code runs are not seen. Our own files and installed packages count by their version numbers and are left out.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.components.code import DIGITS, MARK, Code, Import, code_of, text_digest
from harness.components.discovery import FOLDERS, ROOT
from harness.components.registry import Entry
from harness.environment import ENGINE, PROJECT


@lru_cache(maxsize=1024)
def is_ours(file: Path) -> bool:
    """Whether a file ships with the harness: its components have version numbers."""
    return any(file.is_relative_to(folder) for folder in (ENGINE, PROJECT / "methods", PROJECT / "spaces"))


def code_version(entry: Entry[Any]) -> str:
    """The version of the code that an entry was registered by. Raises `OSError` without its file."""
    own, others = _collected(entry)
    version = MARK + _digest(own)
    if not others:
        return version
    listed = "".join(f"{name} {_digest(file)}\n" for name, file in sorted(others.items()))
    return f"{version}+{hashlib.sha256(listed.encode()).hexdigest()[:DIGITS]}"


def files_of(entry: Entry[Any]) -> dict[str, Path]:
    """The files of that code by their names in the user's folder: the one that registers first, then what it imports.

    Raises `OSError` without the first.
    """
    own, others = _collected(entry)
    return {_name(own, _root(entry)): own, **others}


def _collected(entry: Entry[Any]) -> tuple[Path, dict[str, Path]]:
    """The registering file, and the user's files that it imports, directly or not, by name."""
    own, root = entry.file, _root(entry)
    package = entry.module.partition(".")[0]
    installed = None if package in (ROOT, "__main__") else package
    own.stat()
    waiting = [own, *_target(entry, package)]
    found = set(waiting)
    while waiting:
        file = waiting.pop()
        code = _read(file)
        for one in () if code is None else code.imports:
            for other in _targets(one, file, root, installed):
                if other not in found and not is_ours(other):
                    found.add(other)
                    waiting.append(other)
    return own, {_name(file, root): file for file in found - {own}}


def _target(entry: Entry[Any], package: str) -> Iterator[Path]:
    """The file of a component that was registered by its module's name, to be imported later."""
    name = str(getattr(entry.thing, "__module__", None))
    file = getattr(sys.modules.get(name), "__file__", None)
    if file and name != entry.module and name.partition(".")[0] == package and not is_ours(Path(file)):
        yield Path(file)


def _root(entry: Entry[Any]) -> Path:
    """The folder that the user's absolute imports start from: the one that holds `methods`, or an installed package."""
    parts = entry.module.split(".")
    private = parts[0] == ROOT
    depth = len(parts) - (2 if private else 0) - (entry.file.name != "__init__.py")
    root = entry.file.parents[min(depth, len(entry.file.parents) - 1)]
    return root.parent if private and root.name in FOLDERS else root  # a second project: its folder is the package


def _targets(one: Import, file: Path, root: Path, installed: str | None) -> Iterator[Path]:
    """The files that an import may load, packages included; without those of other packages."""
    if one.level:
        if one.level > len(file.parents):
            return
        start = file.parents[one.level - 1]
    else:
        start = root
        if installed is not None and one.module.partition(".")[0] != installed:
            return
    parts = one.module.split(".") if one.module else []
    for count in range(len(parts) + 1):
        place = start.joinpath(*parts[:count])
        if count or (one.level and _is_package(place, root)):
            yield from _modules(place)
    for name in one.names:
        yield from _modules(start.joinpath(*parts, name))


def _is_package(place: Path, root: Path) -> bool:
    """Whether importing something in a folder runs its `__init__.py`: not so for component folders."""
    return place != root and not (place.parent == root and place.name in FOLDERS)


def _modules(place: Path) -> Iterator[Path]:
    """The file of the module at that place, if there is one."""
    if _is_file(place / "__init__.py"):
        yield place / "__init__.py"
    elif _is_file(file := place.with_name(f"{place.name}.py")):
        yield file


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _name(file: Path, root: Path) -> str:
    return file.relative_to(root).as_posix() if file.is_relative_to(root) else "/".join(file.parts[-2:])


def _read(file: Path) -> Code | None:
    status = os.stat(file)
    return _code(file, status.st_mtime_ns, status.st_size)[0]


def _digest(file: Path) -> str:
    """The hash of a file's code; of its text if it cannot be parsed."""
    status = os.stat(file)
    code, text = _code(file, status.st_mtime_ns, status.st_size)
    return text if code is None else code.digest


@lru_cache(maxsize=1024)
def _code(file: Path, changed: int, size: int) -> tuple[Code | None, str]:
    source = file.read_bytes()
    return code_of(source), text_digest(source)
