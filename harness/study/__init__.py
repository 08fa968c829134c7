"""Studies, configurations, and the trials that they expand into. Imports no torch.

A study file needs only what is exported here: `from harness.study import Column, Row, Study`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.study.expansion import expand
    from harness.study.layout import (
        Bars,
        Column,
        Comparison,
        Computed,
        Curves,
        Drawings,
        Figure,
        FoundDrawing,
        FromPreset,
        Line,
        Pilot,
        Row,
        Scatter,
        SearchPlot,
        Series,
        Times,
    )
    from harness.study.study import Request, Study

__all__ = [
    "Bars",
    "Column",
    "Comparison",
    "Computed",
    "Curves",
    "Drawings",
    "Figure",
    "FoundDrawing",
    "FromPreset",
    "Line",
    "Pilot",
    "Request",
    "Row",
    "Scatter",
    "SearchPlot",
    "Series",
    "Study",
    "Times",
    "expand",
]
_ELSEWHERE = {"Request": "study", "Study": "study", "expand": "expansion"}


def __getattr__(name: str) -> Any:
    # Import on first use: code that needs one module of this package does not load the others.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'layout')}"), name)
