"""The words around a table: its scale above, and under it what a reader must know of the runs behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.presets import Preset
from harness.study import Request, Study

from .evidence import Evidence

if TYPE_CHECKING:
    from harness.stores import Store

    from .tables import ValueColumn


def scale(preset: Preset, requests: Sequence[Request], overrides: Mapping[str, Any] | None, where: str | None) -> str:
    """What a caption must say, so that no table can pass for one of another scale."""
    seeds = len({request.seed for request in requests})
    configs = [request.cell.config for request in requests]
    parts = [
        ", ".join(preset.datasets),
        f"{seeds} seed{'s' * (seeds > 1)}",
        f"{_span([config.train.epochs for config in configs])} epochs",
        f"width {_span([config.network.width for config in configs])}",
        f"depth {_span([config.network.depth for config in configs])}",
    ]
    text = f"Preset {preset.name}: {', '.join(parts)}"
    if overrides:
        text += f", {_settings(overrides)}"
    if where:
        text += f", only where {where}"
    return text + (". Mean ± sample standard deviation over the seeds." if seeds > 1 else ".")


def notes(study: Study, columns: Sequence[ValueColumn], found: Sequence[Evidence], asked: int) -> list[str]:
    """What a reader must know: one line for each row, data set and reason, with the seeds it holds for."""
    reasons: dict[tuple[int, str, str], list[int]] = {}
    for one in found:
        texts = [one.reason] if one.state != "done" else []
        texts += [
            f"{column.label} is undefined (run {one.run.id})"
            for column in columns
            if one.run and one.state == "done" and column.dataset == one.request.dataset
            if one.metrics.get(column.metric) is None
        ]
        for text in texts:
            reasons.setdefault((one.request.row, one.request.dataset, text), []).append(one.request.seed)
    lines = []
    if len(found) < asked:
        lines.append(f"The condition leaves out {asked - len(found)} of {asked} runs.")
    done = sum(one.state == "done" for one in found)
    if done < len(found):
        lines.append(f"{done} of {len(found)} runs are done; without a value are:")
    several = len({column.dataset for column in columns}) > 1
    for (row, dataset, text), seeds in reasons.items():
        labels = [
            label if isinstance(label, str) else name if label else f"no {name}"
            for name, label in study.rows[row].labels.items()
        ]
        place = ", ".join([*filter(None, labels), *([dataset] if several else [])])
        lines.append(f"{place}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}: {text}")
    return lines


def elsewhere(preset: Preset, found: Sequence[Evidence], overrides: Mapping[str, Any]) -> list[str]:
    """Runs of equal identity that were asked for in other words: their cost may hold more observations."""
    runs = [one.run for one in found if one.run and one.state == "done"]
    others = {run.id: run for run in runs if (run.preset, run.overrides) != (preset.name, dict(overrides))}
    kinds = sorted({f"{run.preset} {_settings(run.overrides)}".strip() for run in others.values()})
    return [f"Of equal identity, but asked for otherwise: {len(others)} runs ({'; '.join(kinds)})."] if others else []


def invalidated(found: Sequence[Evidence]) -> list[str]:
    """Runs that were declared invalid, and why; they are kept, but stand in no table."""
    runs = {run.id: run for one in found for run in one.invalid}
    return [f"Declared invalid and not counted: run {run.id}: {run.invalid}" for _, run in sorted(runs.items())]


def damage(store: Store) -> list[str]:
    """What the store holds of the cells asked for and cannot be used: their runs, and rankings of them."""
    inside = f"{store.name}/"
    return sorted(f"Damaged and not counted: {one.place.removeprefix(inside)}: {one.reason}" for one in store.problems)


def _settings(overrides: Mapping[str, Any]) -> str:
    return f"with {' '.join(f'{key}={value}' for key, value in sorted(overrides.items()))}" if overrides else ""


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
