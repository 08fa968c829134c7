"""`--store`, `--mongo` and `--mongo-file`: where the runs are, as options of a command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from harness.errors import UserError
from harness.stores.places import DEFAULT, MONGO, VARIABLE, Places, address_in, places

F = TypeVar("F", bound=Callable[..., Any])


def store_option(command: F) -> F:
    """Add `--store`, `--mongo` and `--mongo-file` to a command; it receives `Places` as its argument `store`."""

    def resolve(context: click.Context, option: click.Parameter, value: str | None) -> Places:
        mongo, file = context.params.pop("mongo", None), context.params.pop("mongo_file", None)
        if mongo and file:
            raise UserError("--mongo and --mongo-file exclude each other")
        return places(value, mongo or (address_in(file) if file else None))

    command = click.option(
        "--store",
        metavar="PLACE",
        callback=resolve,
        help=f"Directory of the runs, or mongodb://…  [default: {VARIABLE} from the environment, or ./{DEFAULT}]",
    )(command)
    command = click.option(
        "--mongo-file",
        type=click.Path(dir_okay=False, path_type=Path),
        is_eager=True,
        help="File that holds the address of the database.",
    )(command)
    return click.option(
        "--mongo",
        metavar="URI",
        is_eager=True,  # parsed before --store, whose callback uses it
        help="The database that mirrors the runs. `ps` shows a password in it: better in the environment, or with "
        f"--mongo-file.  [default: {MONGO} from the environment, or none]",
    )(command)
