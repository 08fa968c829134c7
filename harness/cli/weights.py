"""`harness weights`: weights that supernets start from."""

from __future__ import annotations

import re
from pathlib import Path

import click

from harness.cli._help import Group
from harness.cli._network import input_options, settings_of
from harness.cli._request import WithUpdates


@click.group(cls=Group, example="harness weights list")
def command() -> None:
    """Import weights that supernets start from, and list them."""


@command.command("import", cls=WithUpdates, example="harness weights import supernet-tiny.pth --space autoformer")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--space", required=True, help="Space of the supernet.")
@click.option("--as", "name", metavar="NAME", help="Beginning of the name.  [default: that of FILE]")
@input_options
def import_(file: Path, space: str, name: str | None, updates: tuple[str, ...], **inputs: int) -> None:
    """Import the weights of a supernet from FILE: released ones, or weights.pt of a run.

    Names and shapes are checked against the supernet of the space. Code in the file is not executed. After `with`:
    settings of the network, such as network.patch_size=16. Weights are kept in weights/ of HARNESS_DATA. A run of the
    store needs no import: `harness run STUDY with train.weights=RUN`.
    """
    from harness.errors import InvalidConfiguration
    from harness.training.weights import fitted, read, store

    name = name or file.stem
    if not re.fullmatch(r"[\w.-]+", name):
        raise InvalidConfiguration(f"--as is {name!r}; a name has letters, digits, '.', '_' and '-' only")
    settings = settings_of(space, updates, inputs)
    weights = [fitted(one, space, settings, str(file)) for one in read(file)]
    full = store(weights, space, name)
    count = sum(one.numel() for part in weights for one in part.values())
    click.echo(f"imported {count:,} weights of {space} as {full}")
    click.echo(f"train on: with train.weights={full}; only search: with train.weights={full} train.epochs=0")


@command.command("list", example="harness weights list")
def list_command() -> None:
    """List the imported weights, by the names that configurations use."""
    from harness.data.places import weights_folder
    from harness.training.weights import names

    for name in names():
        click.echo(name)
    click.echo(f"weights are kept in {weights_folder()}", err=True)
