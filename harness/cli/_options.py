"""Options of commands as fields of typed values: each is described once, where its value is declared, and every command
that takes the value has it. Also the types of their values: durations, sizes, margins.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from harness.cli._help import SHOWN
from harness.errors import UnknownName, UserError
from harness.stores.places import DEFAULT, MONGO, VARIABLE, Places, address_in, places

if TYPE_CHECKING:
    from harness.study.study import Study

F = TypeVar("F", bound=Callable[..., Any])

WHAT, HOW, RAY, SLURM = "What to run", "How", "Ray", "Workers and SLURM"
PLACES, CLAIMS = "Store and database", "Checkpoints and claims"
"""The headings of options."""

COUNT = click.IntRange(1)


class Option(click.Option):
    """An option under a heading. Those that few people need (`more`) are shown by `--help --all`."""

    def __init__(self, *args: Any, heading: str = "", more: bool = False, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.heading = heading
        self.more = more


def option(flag: str, help: str, type: Any = None, metavar: str | None = None, **more: Any) -> Any:
    """A field of a value, and the option for it, under the heading of the value; `more` as for `click.option`."""
    default = more.pop("default", False if more.get("is_flag") else None)
    told = {"type": type, "metavar": metavar, "default": default, "show_default": default not in (None, False), **more}

    def add(name: str, heading: str) -> Callable[[F], F]:
        return click.option(flag, name, cls=Option, help=help, **{"heading": heading, **told})

    return field(default=default, metadata={"parameter": add})


def argument(**attributes: Any) -> Any:
    """A field of a value, and the argument of a command for it."""
    return field(default=(), metadata={"parameter": lambda name, heading: click.argument(name, **attributes)})


def shared(parameter: Callable[..., Any]) -> Any:
    """A field of a value whose option other commands have by itself."""
    return field(default=None, metadata={"parameter": lambda name, heading: parameter})


def takes(**kinds: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options of these dataclasses; it receives a value of each, by these names.

    The `HEADING` of a dataclass is that of its options.
    """

    def given(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def receiving(**all_values: Any) -> Any:
            values = {
                name: kind(**{one.name: all_values.pop(one.name) for one in fields(kind)})
                for name, kind in kinds.items()
            }
            return command(**values, **all_values)

        declared = [(one, getattr(kind, "HEADING", "")) for kind in kinds.values() for one in fields(kind)]
        for one, heading in reversed(declared):
            if "parameter" in one.metadata:
                receiving = one.metadata["parameter"](one.name, heading)(receiving)
        return receiving

    return given


class _Quantity(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.4 on
    """A number with an optional unit, converted to the base unit (seconds or bytes)."""

    units: dict[str, float]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        match = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)\s*([a-zA-Z]*)", value.strip())
        if not match or match[2].lower() not in self.units:
            known = ", ".join(unit for unit in self.units if unit)
            self.fail(f"{value!r} is not a {self.name}: give a number, alone or with one of {known}", param, ctx)
        return float(match[1]) * self.units[match[2].lower()]


class Duration(_Quantity):
    """Seconds, or a number with s, m or h."""

    name = "duration"
    units = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class Size(_Quantity):
    """Megabytes, or a number with kB, MB or GB (units of 1024)."""

    name = "size"
    units = {"": 1024.0**2, "kb": 1024.0, "mb": 1024.0**2, "gb": 1024.0**3}


class Margin(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.4 on
    """A number above 0, for a study's main column, or METRIC=NUMBER; becomes a pair of the metric and the number."""

    name = "margin"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        if isinstance(value, tuple):
            return value
        metric, equals, number = str(value).rpartition("=")
        try:
            margin = float(number)
        except ValueError:
            margin = math.nan
        if not 0 < margin < math.inf or (equals and not metric):
            self.fail(f"{value!r} is neither a number above 0, such as 0.01, nor METRIC=NUMBER", param, ctx)
        return metric, margin


def check_margins(margins: Mapping[str, float], studies: Sequence[Study]) -> None:
    """Raise `UnknownName` for a margin of a metric that no column of the studies shows."""
    shown = {column.metric for study in studies for column in study.columns}
    for metric in margins:
        if metric and metric not in shown:
            raise UnknownName.among("metric of a column", metric, shown)


margin_option = click.option(
    "--margin",
    "margins",
    cls=Option,
    heading=WHAT,
    type=Margin(),
    multiple=True,
    metavar="[METRIC=]X",
    callback=lambda context, option, value: dict(value),
    help="Differences below X count as equal, in the unit of METRIC; default: the first with a best value.",
)
"""The command receives `margins`, by metric, "" for a study's main column."""

work_option = click.option(
    "--work",
    cls=Option,
    heading=CLAIMS,
    more=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the checkpoints.  [default: STORE/work]",
)

weights_option = click.option(
    "--mirror-weights-max",
    cls=Option,
    heading=PLACES,
    more=True,
    type=Size(),
    callback=lambda context, option, value: int(value),
    default="64MB",
    show_default=True,
    help="Do not mirror weight files larger than this; they stay in the run directory.",
)
quiet_option = click.option(
    *("--quiet", "-q"), cls=Option, heading=SHOWN, is_flag=True, help="Print only errors and the summary."
)

files_option = click.option(
    "--new-files",
    cls=Option,
    heading=SLURM,
    more=True,
    is_flag=True,
    help="Accept the local files as the right ones from now on.",
)


def store_option(command: F) -> F:
    """Add `--store`, `--mongo` and `--mongo-file` to a command; it receives `Places` as its argument `store`."""

    def resolve(context: click.Context, option: click.Parameter, value: str | None) -> Places:
        mongo, file = context.params.pop("mongo", None), context.params.pop("mongo_file", None)
        if mongo and file:
            raise UserError("--mongo and --mongo-file exclude each other")
        return places(value, mongo or (address_in(file) if file else None))

    for add in (
        click.option(
            "--mongo-file",
            cls=Option,
            heading=PLACES,
            more=True,
            type=click.Path(dir_okay=False, path_type=Path),
            is_eager=True,
            help="File that holds the address of the database. `ps` shows a password in --mongo.",
        ),
        click.option(
            "--mongo",
            cls=Option,
            heading=PLACES,
            metavar="URI",
            is_eager=True,  # parsed before --store, whose callback uses it
            help=f"Database that mirrors the runs.  [default: {MONGO}]",
        ),
        click.option(
            "--store",
            cls=Option,
            heading=PLACES,
            metavar="PLACE",
            callback=resolve,
            help=f"Directory of the runs.  [default: {VARIABLE}, or ./{DEFAULT}]",
        ),
    ):
        command = add(command)
    return command
