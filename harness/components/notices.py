"""What a user may have meant otherwise: files that are left out or register nothing, folders that are not read.

`harness.components.discovery` finds them. Each is reported once, by a `ComponentWarning`, and is remembered as a reason
why a name may be missing.
"""

from __future__ import annotations

import ast
import difflib
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from harness.errors import BrokenComponent, ComponentWarning, NameCollision

INTERFACES: Mapping[str, str] = {
    "harness.components.method:Method": "METHODS",
    "harness.components.schedule:Schedule": "SCHEDULES",
    "harness.components.clustering:ClusterRule": "CLUSTER_RULES",
    "harness.components.sampler:Sampler": "SAMPLERS",
    "harness.components.optimiser:Optimiser": "OPTIMISERS",
    "harness.components.search:Search": "SEARCHES",
    "harness.components.augmentation:Augmentation": "AUGMENTATIONS",
    "harness.components.augmentation:Order": "ORDERS",
    "harness.components.space:Space": "SPACES",
    "harness.components.benchmark:Benchmark": "BENCHMARKS",
    "harness.components.renderer:Renderer": "RENDERERS",
}
"""Base classes of components, and the registry of each."""

ELSEWHERE = {"importers": "benchmarks"}
"""Kinds of components that have no folder of their own, with their folder; all others are in `methods`."""


class Notices:
    """What has been noticed and reported since discovery began."""

    def __init__(self, read: Sequence[str]) -> None:
        self.read = read
        """The names of the user's folders."""
        self._problems: dict[Path, str] = {}
        """Files that bring nothing, and why."""
        self._broken: dict[Path, dict[Path, int]] = {}
        """Files that could not be imported: the files behind the error, and when each was changed."""
        self._told: set[str] = set()
        self._looked_at: set[Path] = set()

    def broken(self, file: Path, error: BrokenComponent | NameCollision) -> None:
        """A file could not be imported, or registers a name of another."""
        if isinstance(error, NameCollision):
            self._broken[file] = {file: _changed(file)}
            self.leave_out(file, f"{error} {file} is left out")
            return
        self._broken[file] = {one: _changed(one) for one in {file, error.place or file}}
        self.leave_out(file, f"{error}. It is left out: fix it, or start its name with an underscore")

    def imported(self, file: Path) -> None:
        """A file that may have been broken before could be imported."""
        self._broken.pop(file, None)
        self._problems.pop(file, None)

    def repaired(self) -> bool:
        """Whether a file that could not be imported has changed since this was last checked."""
        if not self._broken:
            return False
        now = {file: {one: _changed(one) for one in files} for file, files in self._broken.items()}
        changed = now != self._broken
        self._broken = now
        return changed

    def slow(self, file: Path) -> None:
        """Loading a file has imported torch."""
        self._tell(f"{file} imports torch, so every command takes seconds longer: import it inside functions")

    def leave_out(self, file: Path, why: str) -> None:
        """A file brings nothing."""
        self._problems[file] = why
        self._tell(why)

    def left_out(self) -> dict[Path, str]:
        """The files that bring nothing, and why."""
        return {file: text for file, text in self._problems.items() if file.exists()}

    def why_missing(self, name: str) -> list[str]:
        """The problems of the files that are named like `name`, or have it in their text."""
        return [text for file, text in self.left_out().items() if _is_about(file, name)]

    def look_at(self, here: Path, kinds: Iterable[str]) -> None:
        """Report the folders of a directory that look like component folders and are not read, once."""
        if here in self._looked_at:
            return
        self._looked_at.add(here)
        also = ", ".join(f"./{one}" for one in self.read)
        try:
            found = [*lookalikes(here, self.read, kinds)]
        except OSError:  # a folder that may not be read
            return
        for folder, name in found:
            self._tell(f"./{folder.name} is not read: should it be ./{name}? The folders that are read are {also}")

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            warnings.warn(text, ComponentWarning, stacklevel=2)


def unregistered(file: Path, module: ModuleType) -> str:
    """What to report of a file that was imported and has registered nothing."""
    for name, thing in vars(module).items():
        if not isinstance(thing, type) or thing.__module__ != module.__name__:
            continue
        for base in thing.__mro__[1:]:
            if (registry := INTERFACES.get(f"{base.__module__}:{base.__name__}")) is not None:
                return (
                    f"{file}:{_line_of(file, name)} registers nothing: the class {name} is a {base.__name__} without "
                    f'its decorator; put @{registry}.register("NAME") above it'
                )
    return (
        f'{file} registers nothing: put a decorator such as @METHODS.register("NAME") above each component, or start '
        "the file's name with an underscore if other files import it"
    )


def _line_of(file: Path, name: str) -> int:
    tree = ast.parse(file.read_text(errors="replace"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name]
    return found[0].lineno if found else 1


def lookalikes(here: Path, read: Iterable[str], kinds: Iterable[str]) -> Iterator[tuple[Path, str]]:
    """Folders with Python files whose names are near those that are read, with the name that each should have.

    `read` are the folders that are read, `kinds` the words for all kinds of components.
    """
    read = list(read)
    folders = [path for path in sorted(here.iterdir()) if path.is_dir() and not path.name.startswith((".", "_"))]
    taken = {path.name for path in folders if path.name in read}
    for folder in folders:
        if folder.name in read or any((here / name).samefile(folder) for name in taken):
            continue
        word = _plain(folder.name)
        meant = {_plain(form): name for name in read for form in (name, _singular(name))}
        if word in meant:
            if _holds_python(folder, ""):
                yield folder, meant[word]
            continue
        others = {_plain(kind): ELSEWHERE.get(kind, "methods") for kind in kinds if kind not in read}
        known = meant | others
        near = difflib.get_close_matches(word, known, n=1, cutoff=0.8)
        if near and _holds_python(folder, "harness"):
            yield folder, known[near[0]]


def _is_about(file: Path, name: str) -> bool:
    package = file.name == "__init__.py"
    if _plain(file.parent.name if package else file.stem) == _plain(name):
        return True
    files = file.parent.rglob("*.py") if package else [file]
    word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
    return any(word.search(one.read_text(errors="replace")) for one in files if one.is_file())


def _holds_python(folder: Path, word: str) -> bool:
    """Whether one of the folder's Python files, or of its packages, has the word in its text."""
    files = [*folder.glob("*.py"), *folder.glob("*/__init__.py")]
    return any(word in file.read_text(errors="replace") for file in files)


def _changed(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def _plain(name: str) -> str:
    return re.sub(r"[-_ .]", "", name.casefold())


def _singular(name: str) -> str:
    return f"{name[:-3]}y" if name.endswith("ies") else name.removesuffix("s")
