"""`plan --power`: how many seeds each comparison needs, by the deviations of stored runs, and how long they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import click

from harness.cli._margins import Margin, check_margins
from harness.cli._until import MOST, Ending
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.execution.plan import Asked, Plan
    from harness.stores.stored import StoredRun

HOUR = 3600.0


@dataclass(frozen=True)
class Wish:
    """What is to be found: with which power, which effects, and at what cost at most."""

    power: float
    effects: Mapping[str, float]
    most: int
    hours: float | None


@dataclass(frozen=True)
class Need:
    """What one comparison needs. Numbers of seeds are None if more than enough are too few."""

    compared: Any
    effect: float
    deviation: float
    alone: int | None
    """Seeds to decide it at 5 %."""
    among: int | None
    """Seeds to decide it at 5 % of all comparisons together."""
    hours: float | None
    """Hours of the trials that are missing for that, one by one; None where no trial tells."""

    def fits(self, wish: Wish) -> bool:
        """Whether it can be decided within the budget."""
        if self.among is None or self.among > wish.most:
            return False
        return wish.hours is None or self.hours is None or self.hours <= wish.hours


def power_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--power --effect --max-seeds --hours; the command receives `wish`, None without --power."""

    @wraps(command)
    def asking(
        power: float | None,
        effects: tuple[tuple[str, float], ...],
        max_seeds: int | None,
        hours: float | None,
        **others: Any,
    ) -> Any:
        if power is None and (effects or max_seeds or hours):
            raise UserError("--effect, --max-seeds and --hours are about power: give --power 0.8, too")
        wish = None if power is None else Wish(power, dict(effects), max_seeds or MOST, hours)
        return command(wish=wish, **others)

    for option in (
        click.option("--hours", type=click.FloatRange(0, min_open=True), help="With --power: the most hours of one."),
        click.option("--max-seeds", type=click.IntRange(2), help=f"With --power: the most seeds.  [default: {MOST}]"),
        click.option(
            "--effect",
            "effects",
            type=Margin(),
            multiple=True,
            metavar="[METRIC=]X",
            help="With --power: the effect to find, in the unit of the column.  [default: as stored]",
        ),
        click.option(
            "--power",
            type=click.FloatRange(0, 1, min_open=True, max_open=True),
            help="Show how many seeds each comparison needs to be decided with this probability, such as 0.8.",
        ),
    ):
        asking = option(asking)
    return asking


def show_power(asked: Asked, runs: Sequence[StoredRun], wish: Wish) -> None:
    """Print what each comparison needs, and which cannot be decided within the budget."""
    from tabulate import tabulate

    check_margins(wish.effects, asked.studies)
    found = Ending({}, wish.most).look(asked, runs)
    m = len({one.compared.question for one in found})
    usable = [one.compared for one in found if len(one.compared.effects) > 1]
    if not usable:
        raise UserError(
            f"no comparison of preset {asked.preset} has two seeds stored, which tell how much seeds differ; "
            "`harness run` makes some"
        )
    every = asked.plan(runs, check=False)
    needs = [_need(one, m, wish, asked, every) for one in usable]
    rows = [
        [
            *(_shown(need.alone), _shown(need.among), _hours_text(need.hours)),
            *(f"{need.effect:+.3g}", f"{need.deviation:.2g}", len(need.compared.seeds)),
            f"{need.compared.rows} ({need.compared.column}, {need.compared.dataset})",
        ]
        for need in needs
    ]
    headings = ["seeds", f"of {m} together", "hours", "effect", "deviation", "stored", "comparison"]
    click.echo(f"seeds that decide each of {m} comparisons at 5 % with a power of {wish.power:.0%}:")
    click.echo(tabulate(rows, headings, colalign=("right",) * 6 + ("left",), disable_numparse=True))
    beyond = [need for need in needs if not need.fits(wish)]
    budget = f"{wish.most} seeds" + (f" and {wish.hours:g} hours" if wish.hours else "")
    click.echo(f"{len(needs) - len(beyond)} can be decided within {budget}, {len(beyond)} cannot")
    if len(usable) < len(found):
        click.echo(f"{len(found) - len(usable)} are not in this list: fewer than two seeds, or about deviations")


def _need(compared: Any, m: int, wish: Wish, asked: Asked, every: Plan) -> Need:
    from harness import statistics
    from harness.components.discovery import component

    study = next(study for study in asked.studies if study.name == compared.study)
    wished = component("reports.compared").margin_of(study, compared.metric, None, wish.effects)
    effect, deviation = wished or fmean(compared.effects), stdev(compared.effects)
    size = effect / deviation if deviation > 1e-12 else 0.0
    alone, among = (statistics.seeds_needed(size, wish.power, statistics.ALPHA / count) for count in (1, m))
    hours = None if among is None else _hours(compared, among, every)
    return Need(compared, effect, deviation, alone, among, hours)


def _hours(compared: Any, seeds: int, every: Plan) -> float | None:
    """The hours of the seeds that the comparison's rows lack, by the time that stored trials of these rows took."""
    total = 0.0
    for row in compared.numbers:
        took = []
        for work in every.work:
            asks = any((r.study, r.row, r.dataset) == (compared.study, row, compared.dataset) for r in work.requests)
            if asks and work.run is not None and work.run.counts and work.run.cost:
                took.append(float(work.run.cost["wall_seconds"]))
        if not took:
            return None
        total += fmean(took) * max(0, seeds - len(compared.seeds))
    return total / HOUR


def _hours_text(hours: float | None) -> str:
    return (
        ""
        if hours is None
        else f"{hours:,.0f}"
        if hours >= 99.5
        else f"{hours:.1f}"
        if hours >= 0.95
        else f"{hours:.2g}"
    )


def _shown(seeds: int | None) -> str:
    return "–" if seeds is None else str(seeds)
