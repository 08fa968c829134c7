"""`harness new`: write a commented file for a component or study of one's own."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

import click

from harness.cli._help import Command
from harness.errors import NameCollision, UserError

FOLDERS = {"method": "methods", "space": "spaces", "study": "studies", "dataset": "datasets"}
"""Where each kind of file goes, in the current folder."""

TAKEN = {*FOLDERS, "network", "split", "data-set", "conftest", "tests"}
"""Names that the files themselves use, or that are not loaded."""


@click.command("new", cls=Command, example="harness new method mine")
@click.argument("kind", type=click.Choice(list(FOLDERS)))
@click.argument("name")
def command(kind: str, name: str) -> None:
    """Write a new method, space, study or data set: a file that works.

    The commented file goes into ./methods, ./spaces, ./studies or ./datasets, and passes `harness check` as it is. A
    study compares the methods that the folder has, in its space and on its data set; where there are none, the default
    ones.
    """
    file = write_new(kind, name)
    click.echo(f"written: {file}")
    click.echo(f"try it:  harness check {file}")
    if kind == "study":
        click.echo(f"run it:  harness run {file.stem} --preset tiny")
    else:
        click.echo("use it:  harness new study NAME, which compares what this folder has")


def write_new(kind: str, name: str) -> Path:
    """Write the file of a new component or study into the current folder. Raises `UserError`."""
    stem = _stem(name)
    file = Path(FOLDERS[kind]) / f"{stem}.py"
    if file.exists() or file.with_suffix("").exists():
        raise UserError(f"{file} exists already; choose another name, or remove it")
    _require_free(kind, name, stem)
    text = _study_text() if kind == "study" else _template(kind)
    words = {"my_name": stem, "my-name": name, "MyName": _class_name(stem)}
    for placeholder, word in words.items():
        text = text.replace(placeholder, word)
    write_text(file, text)
    return file


def write_text(file: Path, text: str) -> None:
    """Write a file and its folder. Raises `UserError`."""
    try:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    except OSError as error:
        raise UserError(f"cannot write {file.absolute()}: {error.strerror or error}") from error


def _stem(name: str) -> str:
    """The file's name. Raises `UserError` for a name that could not be a file's, a class's and a key's."""
    stem = name.replace("-", "_").lower()
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*", name) or keyword.iskeyword(stem):
        raise UserError(f"{name!r} cannot be a name: use letters, digits and hyphens, beginning with a letter")
    if name.lower() in TAKEN or stem.startswith("test_") or stem.endswith("_test"):
        raise UserError(f"{name!r} cannot be a name here: it means something else already. Choose one that says more")
    return stem


def _class_name(stem: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in stem.split("_"))


def _template(name: str) -> str:
    from importlib.resources import files

    return files("harness.cli._templates").joinpath(f"{name}.py.template").read_text("utf-8")


def _require_free(kind: str, name: str, stem: str) -> None:
    """Raise `NameCollision` if a component of that kind, or a study's file, has the name."""
    from harness.components.discovery import study_files
    from harness.components.registries import REGISTRIES

    if kind == "study":
        known = {file.stem: str(file) for file in study_files()}.get(stem)
    else:
        known = {other: entry.origin for other, entry in REGISTRIES[FOLDERS[kind]].items()}.get(name)
    if known:
        raise NameCollision(f"the name {name!r} is taken by {known}: choose another")


def _study_text() -> str:
    """The study of what the folder has."""
    from harness.study.configuration import default_name

    methods, spaces, datasets = (_own(kind) for kind in ("methods", "spaces", "datasets"))
    text = _template("search_study" if spaces or datasets else "study")
    text = text.replace("MY_METHODS", str([default_name("method.name"), *methods]).replace("'", '"'))
    text = text.replace("MY_SPACE", spaces[0] if spaces else default_name("space"))
    return text.replace("MY_DATASET", datasets[0] if datasets else default_name("dataset"))


def _own(kind: str) -> list[str]:
    """The names of the components of that kind in the current folder."""
    from harness.components.registries import REGISTRIES

    folders = [Path.cwd().resolve() / folder for folder in FOLDERS.values()]
    files = {name: entry.file.resolve() for name, entry in REGISTRIES[kind].items()}
    return [name for name, file in files.items() if any(file.is_relative_to(folder) for folder in folders)]
