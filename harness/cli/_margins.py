"""`--margin`, shared by `report` and `run --until`: the difference below which values count as equal."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from harness.errors import UnknownName

if TYPE_CHECKING:
    from harness.study.study import Study

F = TypeVar("F", bound=Callable[..., Any])


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


def margin_option(command: F) -> F:
    """Add `--margin`; the command receives `margins`, by metric, "" for a study's main column."""
    return click.option(
        "--margin",
        "margins",
        type=Margin(),
        multiple=True,
        metavar="[METRIC=]X",
        callback=lambda context, option, value: dict(value),
        help="Differences below X count as equal, in the unit of METRIC; default: the first with a best value.",
    )(command)


def check_margins(margins: Mapping[str, float], studies: Sequence[Study]) -> None:
    """Raise `UnknownName` for a margin of a metric that no column of the studies shows."""
    shown = {column.metric for study in studies for column in study.columns}
    for metric in margins:
        if metric and metric not in shown:
            raise UnknownName.among("metric of a column", metric, shown)
