"""Checks of the installed packages: versions against our bounds, pairs that belong together, modules that are hidden.

Reads the metadata of packages and imports none of them: whether they import is asked in another process
(`harness.work.diagnosis.probe`).
"""

from __future__ import annotations

import importlib.util
import platform
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution, metadata, requires, version
from pathlib import Path
from typing import TYPE_CHECKING

from harness.environment import ENGINE, SHIPPED
from harness.work.diagnosis.finding import Findings, note, ok, plural, problem

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PACKAGE = "nas-harness"
DEVELOPMENT = ("dev", "long")
"""The extras for those who change the harness; nobody else misses them."""


@dataclass(frozen=True)
class Bounds:
    """The versions that the project asks for."""

    python: str
    needed: Sequence[str]
    extras: dict[str, list[str]] = field(default_factory=dict)


def bounds() -> Bounds | None:
    """The bounds of `pyproject.toml` in a checkout, else those of the installed package; None if neither is there."""
    file = ENGINE.parent / "pyproject.toml"
    if not SHIPPED.is_dir() and file.is_file():
        project = tomllib.loads(file.read_text())["project"]
        return Bounds(project["requires-python"], project["dependencies"], project["optional-dependencies"])
    try:
        about = metadata(PACKAGE)
    except PackageNotFoundError:
        return None
    from packaging.requirements import Requirement

    needed: list[str] = []
    extras: dict[str, list[str]] = {str(extra): [] for extra in about.get_all("Provides-Extra") or ()}
    for text in about.get_all("Requires-Dist") or ():
        one = Requirement(text)
        if one.marker is None or one.marker.evaluate({"extra": ""}):
            needed.append(text)
            continue
        for extra, own in extras.items():
            if one.marker.evaluate({"extra": extra}):
                own.append(f"{one.name}{one.specifier}")
    return Bounds(about["Requires-Python"] or "", needed, extras)


def check_packages() -> Findings:
    """Python and all packages against their bounds, then pairs and extras."""
    try:
        import packaging  # noqa: F401
    except ImportError:
        yield problem("packages", "packaging is not installed", f"pip install {PACKAGE}, or pip install packaging")
        return
    asked = bounds()
    if asked is None:
        advice = f"pip install {PACKAGE}, or `make setup` in a checkout"
        yield problem("packages", "the harness is not installed, so its bounds are unknown", advice)
        return
    yield from _check_python(asked.python)
    yield from _check_needed(asked.needed)
    yield from _check_pair("torchvision", "torch")
    if importlib.util.find_spec("pkg_resources") is None:
        text = "sacred needs pkg_resources, which setuptools 81 and later do not have"
        yield problem("sacred", text, "pip install 'setuptools<81'")
    yield from _check_extras(asked.extras)


def check_hidden(folder: Path, names: Iterable[str] = ()) -> Findings:
    """Files of a folder that hide a module: `python -m` looks into the current folder first."""
    asked = bounds()
    packages = [_requirement(text).name for text in asked.needed] if asked else []
    modules = {module for package in packages for module in _modules(package)}
    for name in sorted({"harness", *modules, *sys.stdlib_module_names, *names}):
        for path in (folder / f"{name}.py", folder / name / "__init__.py"):
            if path.is_file() and path.parent != ENGINE and not path.is_relative_to(Path(sys.prefix)):
                text = f"{path} hides the module {name!r} from `python -m harness` in this folder"
                yield problem("modules", text, "rename it, or work in another folder")


def _requirement(text: str) -> Requirement:
    from packaging.requirements import Requirement

    return Requirement(text)


def _check_python(wanted: str) -> Findings:
    from packaging.specifiers import SpecifierSet

    here = platform.python_version()
    if SpecifierSet(wanted).contains(here, prereleases=True):
        yield ok("python", f"{here} ({wanted})")
    else:
        yield problem("python", f"{here}; {wanted} is needed", "make a virtual environment with a newer Python")


def _check_needed(needed: Sequence[str]) -> Findings:
    wrong = list(_wrong(map(_requirement, needed)))
    for text, advice in wrong:
        yield problem("packages", text, advice)
    if not wrong:
        yield ok("packages", f"{len(needed)} packages are within their bounds")


def _wrong(asked: Iterable[Requirement]) -> Iterable[tuple[str, str]]:
    """What is missing or has a version out of bounds, and what to do."""
    for one in asked:
        if one.marker is not None and not one.marker.evaluate({"extra": ""}):
            continue
        advice = f"pip install '{one.name}{one.specifier}'"
        here = _version(one.name)
        if here is None:
            yield f"{one.name} is not installed; {one.specifier or 'any version'} is needed", advice
        elif not one.specifier.contains(here, prereleases=True):
            yield f"{one.name} is {here}; {one.specifier} is needed", advice


def _check_pair(package: str, other: str) -> Findings:
    """Whether a package was made for the version of the other that is here: each release needs its own."""
    try:
        asked = [one for one in map(_requirement, requires(package) or ()) if one.name == other]
    except PackageNotFoundError:
        return  # said already
    pair = f"{package} {_version(package)} with {other} {_version(other)}"
    wrong = [f"{package} {_version(package)}: {text}" for text, _ in _wrong(asked)]
    for text in wrong:
        yield problem("packages", text, f"pip install --upgrade {other} {package}")
    if not wrong:
        yield ok(other, pair)


def _check_extras(extras: dict[str, list[str]]) -> Findings:
    here: list[str] = []
    absent: list[str] = []
    for extra, texts in sorted(extras.items()):
        if extra in DEVELOPMENT:
            continue
        asked = list(map(_requirement, texts))
        present = [one for one in asked if _version(one.name) is not None]
        (here if len(present) == len(asked) else absent).append(extra)
        for text, advice in _wrong(present):
            yield problem("extras", f"{extra}: {text}", advice)
    if absent:
        text = f"absent: {', '.join(absent)}" + (f"; here: {', '.join(here)}" if here else "")
        yield note("extras", text, f"if you need them: pip install '{PACKAGE}[{','.join(absent)}]'")
    elif here:
        yield ok("extras", plural(len(here), "extra") + f" here: {', '.join(here)}")


def _modules(package: str) -> list[str]:
    """The names that the package is imported by."""
    try:
        listed = distribution(package).read_text("top_level.txt")
    except PackageNotFoundError:
        listed = None
    return (listed or package.replace("-", "_")).split()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
