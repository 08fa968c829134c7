"""Studies by name or by file. A study file binds `study`, or `studies` if it holds several. Imports no torch."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

from harness.components.discovery import ROOT, leave_out, load_file, study_files, why_missing
from harness.errors import InvalidConfiguration, NameCollision, UnknownName, UserError
from harness.study.metrics import check_metrics
from harness.study.study import Study

Located = tuple[Study, Path]
"""A study, and the file that holds it."""


def find_studies(name: str) -> list[Study]:
    """The studies of a file (`studies/mine.py`, or a known file's name without `.py`), or the one of that name.

    Raises `UnknownName`, `BrokenComponent`, `UserError` for a file that holds no study, and `NameCollision` for a name
    that means two things.
    """
    return [study for study, _ in locate(name)]


def locate(name: str) -> list[Located]:
    """The same with the files that hold them."""
    if name.endswith(".py") or Path(name).name != name:
        return [(study, Path(name)) for study in studies_in(Path(name))]
    # By the file's name first, so that another, broken file does no harm.
    named = [file for file in study_files() if _stem(file) == name]
    if len(named) > 1:
        raise NameCollision(
            f"two study files are both named {name!r}: {named[0]} and {named[1]}. Give the path of one."
        )
    if named:
        found = [(study, named[0]) for study in studies_in(named[0])]
        others = [file for study, file in _mentioning([name]) if study.name == name and file != named[0]]
        if others:
            raise NameCollision(
                f"{name!r} is both the study file {named[0]} and a study in {others[0]}. Give the path of one, or "
                "rename one."
            )
        return found
    located = [(study, file) for study, file in _mentioning([name]) if study.name == name]
    if len(located) > 1:
        raise NameCollision(f"two studies are both named {name!r}: {located[0][1]} and {located[1][1]}. Rename one.")
    if not located:
        known = {study.name: study for study in all_studies()}
        located = [(study, file) for study, file in _loadable() if study is known.get(name)]
    if not located:
        folders = list(dict.fromkeys(f"{file.parent}" for file in study_files()))
        own = Path.cwd() / "studies"
        searched = f"Searched: {', '.join(folders)}" + ("" if str(own) in folders else f"; there is no {own}")
        raise UnknownName.among("study", name, known).because([*why_missing(name), searched])
    return located


def studies_named(name: str) -> list[Located]:
    """The studies of that name in files of that name, or none; nothing else is loaded."""
    found = [(study, file) for file in study_files() if _stem(file) == name for study in studies_in(file)]
    return [(study, file) for study, file in found if study.name == name]


def file_of(study: Study) -> Path | None:
    """The loaded file that holds the study; None for one that was made by hand."""
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{ROOT}.") and any(one is study for one in _bound(module)) and module.__file__:
            return Path(module.__file__)
    return None


def _bound(module: ModuleType) -> Sequence[object]:
    """What a study file binds where studies are expected."""
    bound = [module.study] if hasattr(module, "study") else getattr(module, "studies", None)
    return bound if isinstance(bound, list | tuple) else ()


def namesakes(found: Sequence[Located]) -> list[str]:
    """A line for each of these studies whose name another file's study has, too: which one counts."""
    everything = list(_mentioning({study.name for study, _ in found}))
    return [
        f"warning: study {study.name!r} is that of {file}; {other} holds another one of that name, which is not used. "
        "Rename one"
        for study, file in found
        for rival, other in everything
        if rival.name == study.name and other.resolve() != file.resolve()
    ]


def _loadable(files: Iterable[Path] | None = None) -> Iterator[Located]:
    """The studies of these files, or of all, without those that cannot be loaded."""
    for file in study_files() if files is None else files:
        with contextlib.suppress(UserError):
            yield from ((study, file) for study in studies_in(file))


def _mentioning(names: Collection[str]) -> Iterator[Located]:
    """The studies of the files whose text has one of these names: no other file is loaded."""
    return _loadable(file for file in study_files() if any(name in _text(file) for name in names))


def _text(file: Path) -> str:
    """The text of a study file, and of all files of a package."""
    files = file.parent.rglob("*.py") if file.name == "__init__.py" else [file]
    return "\n".join(one.read_text(errors="replace") for one in files)


def all_studies() -> list[Study]:
    """Every known study, ours first; a file that holds none, or cannot be imported, is left out with a warning.

    So are studies that share a name: which of them is meant is not known.
    """
    places: dict[str, list[Located]] = {}
    for file in study_files():
        for study in _usable(file):
            places.setdefault(study.name, []).append((study, file))
    for name, (first, *others) in places.items():
        if others:
            text = f"two studies are both named {name!r}: {first[1]} and {others[0][1]}"
            leave_out(others[0][1], f"{text}. Both are left out: give the path of one, or rename one")
    return [one[0][0] for one in places.values() if len(one) == 1]


def _usable(file: Path) -> list[Study]:
    """The studies of a file; none if it has a mistake, which is told."""
    try:
        return studies_in(file)
    except UserError as error:
        leave_out(file, f"{error}. The file is left out")
        return []


def studies_in(file: Path) -> list[Study]:
    """The studies of one file.

    Raises `BrokenComponent` if it cannot be imported, `UserError` if it holds none, and `InvalidConfiguration` if one
    names a metric that no run has.
    """
    module = load_file(file)
    bound = [one for one in _bound(module) if isinstance(one, Study)]
    if not bound or len(bound) < len(_bound(module)):
        raise UserError(f"{file} holds no study: it must bind `study` to a harness.study.Study, or `studies` to a list")
    for study in bound:
        try:
            check_metrics(study)
        except InvalidConfiguration as error:
            raise InvalidConfiguration(f"{file}: {error}") from error
    return bound


def _stem(file: Path) -> str:
    return file.parent.name if file.name == "__init__.py" else file.stem
