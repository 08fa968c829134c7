"""`--store` and `--mongo`: where the runs are, as options of a command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from harness.stores.places import DEFAULT, MONGO, VARIABLE, Places, places

F = TypeVar("F", bound=Callable[..., Any])


def store_option(command: F) -> F:
    """Add `--store` and `--mongo` to a command; it receives `Places` as its argument `store`."""

    def resolve(context: click.Context, option: click.Parameter, value: str | None) -> Places:
        return places(value, context.params.pop("mongo", None))

    command = click.option(
        "--store",
        metavar="PLACE",
        callback=resolve,
        help=f"Directory of the runs, or mongodb://…  [default: {VARIABLE} from the environment, or ./{DEFAULT}]",
    )(command)
    return click.option(
        "--mongo",
        metavar="URI",
        is_eager=True,  # parsed before --store, whose callback uses it
        help=f"The database that mirrors the runs.  [default: {MONGO} from the environment, or none]",
    )(command)
