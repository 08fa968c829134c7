"""`plan --power`: how many seeds decide an effect that the user names, by the deviations of stored runs, and how long
they take. Never for the effect that was observed: planning for that repeats its luck."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

import click

from harness.cli._options import WHAT, Margin, check_margins, option
from harness.cli._until import MOST, Ending
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.stores.stored import StoredRun
    from harness.work.plan import Asked, Plan


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
    among: int | None
    """Seeds to decide it among all comparisons that share its error rate."""
    hours: float | None
    """Hours of the trials that are missing for that, one by one; None where no trial tells."""

    def fits(self, wish: Wish) -> bool:
        """Whether it can be decided within the budget."""
        if self.among is None or self.among > wish.most:
            return False
        return wish.hours is None or self.hours is None or self.hours <= wish.hours


@dataclass(frozen=True)
class Power:
    """Whether seeds are counted in place of trials, and for which effects."""

    HEADING: ClassVar[str] = WHAT

    power: float | None = option(
        "--power",
        "Show how many seeds each comparison needs to be decided with this probability, such as 0.8.",
        click.FloatRange(0, 1, min_open=True, max_open=True),
        "P",
    )
    effects: tuple[tuple[str, float], ...] = option(
        "--effect",
        "With --power: the effect to find, in the unit of the column.",
        Margin(),
        "[METRIC=]X",
        multiple=True,
    )
    max_seeds: int | None = option(
        "--max-seeds", f"With --power: the most seeds.  [default: {MOST}]", click.IntRange(2), "N"
    )
    hours: float | None = option(
        "--hours", "With --power: the most hours of one.", click.FloatRange(0, min_open=True), "X"
    )

    def wish(self) -> Wish | None:
        """The effects to find; None without --power."""
        if self.power is None:
            if self.effects or self.max_seeds or self.hours:
                raise UserError("--effect, --max-seeds and --hours are about power: give --power 0.8, too")
            return None
        if not self.effects:
            raise UserError("name the effect to find, in the unit of the column: --effect 0.05")
        return Wish(self.power, dict(self.effects), self.max_seeds or MOST, self.hours)


def show_power(asked: Asked, runs: Sequence[StoredRun], wish: Wish) -> None:
    """Print what each comparison needs, and which cannot be decided within the budget."""
    from harness.documents import screen_width, table

    check_margins(wish.effects, asked.studies)
    found = Ending({}, wish.most).look(asked, runs)
    usable = [one for one in found if one.spread is not None]
    if not usable:
        raise UserError(
            f"no comparison of preset {asked.preset} has two seeds stored, which show how much seeds differ; "
            "`harness run` makes some"
        )
    every = asked.plan(runs, check=False)
    needs = [need for one in usable if (need := _need(one, wish, asked, every))]
    if not needs:
        raise UserError("no effect is named for the columns that are compared; --effect METRIC=X names one")
    rows = [
        [
            f"{need.effect:+.3g}",
            "–" if need.among is None else max(0, need.among - len(need.compared.seeds)),
            *("–" if need.among is None else need.among, _hours_text(need.hours)),
            *(f"{need.deviation:.2g}", len(need.compared.seeds)),
            f"{need.compared.rows} ({need.compared.column}, {need.compared.dataset})",
        ]
        for need in needs
    ]
    headings = ["effect", "more seeds", "seeds", "hours", "deviation", "stored", "comparison"]
    click.echo(f"seeds that decide an effect with a power of {wish.power:.2f}, if their number is fixed before:")
    click.echo(table(rows, headings, screen_width(), align=("right",) * 6 + ("left",), disable_numparse=True))
    beyond = [need for need in needs if not need.fits(wish)]
    budget = f"{wish.most} seeds" + (f" and {wish.hours:g} hours" if wish.hours else "")
    click.echo(f"{len(needs) - len(beyond)} can be decided within {budget}, {len(beyond)} cannot")
    if len(usable) < len(found):
        click.echo(f"{len(found) - len(usable)} are not in this list: fewer than two seeds, or about deviations")


def _need(judged: Any, wish: Wish, asked: Asked, every: Plan) -> Need | None:
    """What a comparison needs; None if no effect is named for its column."""
    from harness.components.discovery import component

    compared = judged.compared
    study = next(study for study in asked.studies if study.name == compared.study)
    effect = component("reports.compared").margin_of(study, compared.metric, None, wish.effects)
    if effect is None:
        return None
    among, (deviation, _) = judged.seeds_for(effect, wish.power), judged.spread
    return Need(compared, effect, deviation, among, None if among is None else _hours(compared, among, every))


def _hours(compared: Any, seeds: int, every: Plan) -> float | None:
    """The hours of the seeds that the comparison's rows lack, by the time that stored trials of these rows took."""
    from harness.components.preset import HOUR

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
