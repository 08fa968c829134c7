"""Intervals as small drawings for the page: beside each comparison its effect, its interval, and the paper's effect.

The page's own style colours them. Comparisons of one column and data set have one axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..verdicts import Judgement

WIDTH, EDGE = 120.0, 5.0
"""Units of a drawing: its width, and the room at both ends."""
Span = tuple[float, float]


def intervals(judgements: Sequence[Judgement]) -> list[dict[str, Any] | None]:
    """One drawing for each of these comparisons; None where there is no effect."""
    spans: dict[tuple[str, str], Span] = {}
    for one in judgements:
        low, high = spans.get(_axis(one), (0.0, 0.0))
        spans[_axis(one)] = min(low, *_numbers(one), 0.0), max(high, *_numbers(one), 0.0)
    return [_drawing(one, spans[_axis(one)]) if one.effect is not None else None for one in judgements]


def _axis(one: Judgement) -> tuple[str, str]:
    return one.compared.column, one.compared.dataset


def _numbers(one: Judgement) -> list[float]:
    return [number for number in (one.effect, *(one.interval or ())) if number is not None and math.isfinite(number)]


def _drawing(one: Judgement, span: Span) -> dict[str, Any]:
    low, high = span

    def x(number: float) -> float:
        return round(EDGE + (number - low) / ((high - low) or 1.0) * (WIDTH - 2 * EDGE), 1)

    bounded = one.interval is not None and all(map(math.isfinite, one.interval))
    printed = one.compared.printed
    return {
        "width": WIDTH,
        "verdict": one.verdict,
        "zero": x(0.0),
        "effect": x(one.effect or 0.0),
        "ends": [x(end) for end in one.interval] if bounded and one.interval else None,
        # On its own scale and data: an axis that reached it would show nothing of ours.
        "printed": x(printed) if printed is not None and low <= printed <= high else None,
    }
