"""What trials cost: the end of `plan`. Hours by study and how they are known, sharing, critical path, money."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import click

from harness.cli._options import COUNT, HOW, option

if TYPE_CHECKING:
    from harness.stores.stored import StoredRun
    from harness.work.costing import Budget
    from harness.work.plan import Asked
    from harness.work.states import Work


class Price(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.4 on
    """Money per hour of one device: 2.5 or 2.5/h."""

    name = "price"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)(/h)?", str(value).strip())
        if not match:
            self.fail(f"{value!r} is not a price of one device for one hour: give a number, as 2.5/h", param, ctx)
        return float(match[1])


@dataclass(frozen=True)
class Terms:
    """How costs are estimated and shown."""

    HEADING: ClassVar[str] = HOW

    calibrate: bool = option(
        "--calibrate", "Train for a few seconds where no stored trial gives an estimate.", is_flag=True
    )
    devices: int | None = option(
        "--devices", "Show the time on that many devices.  [default: the slots of this machine]", COUNT, "N"
    )
    price: float | None = option("--price", "Show money, too: the price of one device per hour.", Price(), "X/h")


def show_costs(asked: Asked, todo: Sequence[Work], runs: Sequence[StoredRun], terms: Terms) -> None:
    """Print the estimated costs of this work, or why there are none."""
    from harness.components.preset import get_preset
    from harness.work.costing import Estimator, budget
    from harness.work.slots import Slots

    slots = Slots.of()
    presets = {study.name: get_preset(asked.preset, study.about) for study in asked.studies}
    found = budget(todo, Estimator(runs, presets))
    if terms.calibrate:
        found = budget(todo, Estimator(runs, presets, _measured(todo, slots)))
    if found.seconds is None:
        advice = "; --calibrate trains for a few seconds to make one"
        tried = ", and none could be measured" if terms.calibrate else advice
        click.echo(f"no estimate: no trial of preset {asked.preset} is done yet{tried}")
        return
    _show_studies(asked, found, terms)
    _show_sharing(asked, found)
    path = found.critical_path
    click.echo(f"critical path: {_span(found.length(path))}, {' → '.join(one.label for one in path)}")
    devices = terms.devices or len(slots)
    where = f"on {devices} device{'s' if devices > 1 else ''}" if terms.devices else f"with --jobs {devices}"
    without = f", without {found.unknown} trials of unknown duration" if found.unknown else ""
    click.echo(f"about {_span(found.seconds)} one by one, {_span(found.on(devices))} {where}{without}")
    if terms.price is not None:
        click.echo(f"about {_money(found, terms.price)} at {terms.price:g} per device and hour{without}")


def _measured(todo: Sequence[Work], slots: Any) -> dict[str, float]:
    """Seconds of these trials by their keys, from a few seconds of training."""
    from harness.work.calibration import estimate
    from harness.work.states import Kind

    if sys.stderr.isatty():
        click.echo("training for a few seconds to estimate the time", err=True)
    found = estimate([one for one in todo if one.kind() is Kind.TRAIN], slots)
    for problem in found.without:
        click.echo(f"not in the estimate: {problem}" if found.by_key else f"not measured: {problem}")
    return dict(found.by_key)


def _show_studies(asked: Asked, found: Budget, terms: Terms) -> None:
    """Print one line per study, and how the durations are known."""
    from harness.documents import screen_width, table

    numbers = {source: number for number, source in enumerate(found.sources, 1)}
    rows = []
    for study in asked.studies:
        part = found.of(study.name)
        if part.work:
            money = [] if terms.price is None else [_money(part, terms.price)]
            by = " ".join(f"[{numbers[source]}]" for source in sorted(part.sources, key=lambda one: numbers[one]))
            rows.append([study.name, len(part.work), _span(part.seconds), *money, part.unknown or "", by])
    headings = ["study", "trials to run", "time on one device", *(["cost"] if terms.price is not None else [])]
    align = ("left", *("right",) * len(headings), "left")
    click.echo(table(rows, [*headings, "unknown", "known by"], screen_width(), align=align, disable_numparse=True))
    for source, count in found.sources.items():
        click.echo(f"[{numbers[source]}] {count} trial{'s' if count > 1 else ''}: {source}")


def _show_sharing(asked: Asked, found: Budget) -> None:
    """Print what it saves that trials which several studies ask for run once."""
    parts = [found.of(study.name) for study in asked.studies]
    trials, seconds = sum(len(part.work) for part in parts), sum(part.seconds or 0.0 for part in parts)
    if len(asked.studies) > 1:
        saved = trials - len(found.work), _span(seconds - (found.seconds or 0.0))
        click.echo(
            f"sharing: {trials:,} trials and {_span(seconds)} for each study by itself, {len(found.work):,} distinct "
            f"trials and {_span(found.seconds)} together; it saves {saved[0]:,} trials and {saved[1]}"
        )


def _money(found: Budget, price: float) -> str:
    from harness.components.preset import HOUR

    return "unknown" if found.seconds is None else f"{found.seconds / HOUR * price:,.2f}"


def _span(seconds: float | None) -> str:
    """A duration for readers; long ones in hours, as devices are paid for."""
    from harness.cli._display import duration
    from harness.components.preset import HOUR

    if seconds is None:
        return "unknown"
    return duration(seconds) if seconds < 100 * HOUR else f"{seconds / HOUR:,.0f} h"
