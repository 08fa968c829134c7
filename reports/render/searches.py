"""A search as a drawing: predicted accuracy over a count, generation by colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..figure_values import SearchPanel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FOUND, LIMIT = "found", "limit"
MOST = 40
"""Most colours of generations; of more generations, several share one. Drawn as lines and areas, not as an image."""


def labels(panel: SearchPanel) -> list[str]:
    """The entries of the legend."""
    return [*([FOUND] if panel.found else []), *([LIMIT] if panel.limits else [])]


def draw_search(axes: Axes, panel: SearchPanel) -> bool:
    """Draw the panel; returns whether it is empty."""
    import matplotlib
    from matplotlib.colors import BoundaryNorm
    from matplotlib.ticker import MaxNLocator

    known = [point for point in panel.points if point.generation is not None]
    last = max((point.generation or 0 for point in known), default=0)
    if known and last:
        shades = min(MOST, last + 1)
        colours = matplotlib.colormaps["viridis"].resampled(shades)
        ends = [0.5 + (last + 1) * number / shades for number in range(shades + 1)]
        axes_points = [point.x for point in known], [point.y for point in known]
        generations = [1 + (point.generation or 0) for point in known]
        drawn = axes.scatter(*axes_points, s=10, c=generations, cmap=colours, norm=BoundaryNorm(ends, shades))
        axes.figure.colorbar(drawn, ax=axes, label="Generation", ticks=MaxNLocator(5, integer=True))
    elif panel.points:
        axes.scatter([point.x for point in panel.points], [point.y for point in panel.points], s=10, color="#0072B2")
    if panel.found:
        places = [point.x for point in panel.found], [point.y for point in panel.found]
        look = {"marker": "*", "s": 90, "facecolors": "none", "edgecolors": "#D55E00", "linewidths": 1.2}
        axes.scatter(*places, label=FOUND, zorder=3, **look)  # type: ignore[arg-type]
    for number, place in enumerate(panel.limits):
        axes.axvline(place, color="#000000", linestyle="--", linewidth=1.2, label="_" if number else LIMIT)
    return not panel.points
