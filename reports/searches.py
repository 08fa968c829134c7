"""The panel of a stored search: every architecture that it scored. Knows no drawing and no particular study."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.components.registries import SEARCHES, SPACES
from harness.errors import InvalidConfiguration
from harness.study import layout
from harness.study.study import Request

from .evidence import gather
from .figure_values import ScoredPoint, SearchPanel

if TYPE_CHECKING:
    from harness.stores.store import Store


def search_panel(
    panel: layout.SearchPlot, title: str, request: Request, store: Store | None
) -> tuple[str, SearchPanel] | str:
    """The id of the run that searched as the request asks, and its panel; or why there is none.

    Raises `InvalidConfiguration` for a row without a search, or a count that its space does not have.
    """
    trial = request.trial.start or request.trial
    space = SPACES.get(trial.config.space)()
    if trial.config.search is None:
        raise InvalidConfiguration(f"panel {panel.title!r}: the row {dict(panel.row)} has no search (search.name)")
    if panel.count not in space.complexity_counts:
        allowed = ", ".join(space.complexity_counts)
        raise InvalidConfiguration(f"panel {panel.title!r}: {panel.count!r} is not a count of {space.name}: {allowed}")
    if store is None:
        return "no store to read its scores from"
    (found,) = gather([replace(request, trial=trial)], store.runs({trial.key}))
    if found.run is None or found.state != "done":
        return found.reason
    scores = store.searched(found.run, trial.ranking_key)
    if scores is None:
        return f"the scores of its search are not stored (run {found.run.id})"
    dearest = max(scores["images"], default=0)
    columns = (scores["architectures"], scores["counts"][panel.count], scores["accuracies"], scores["generations"])
    known = [
        (space.architecture(int(number)), x * panel.scale, y, generation)
        for number, x, y, generation, images in zip(*columns, scores["images"], strict=True)
        if images == dearest and y is not None
    ]
    points = [(one, ScoredPoint(space.format(one), x, y, generation)) for one, x, y, generation in known]
    best = {tuple(one["architecture"]) for one in found.metrics.get("found", ())}
    ends = trial.config.search.build(SEARCHES, "search").limits.get(panel.count, ())
    return found.run.id, SearchPanel(
        title,
        panel.x,
        panel.y,
        tuple(point for _, point in points),
        tuple(end * panel.scale for end in ends if end is not None),
        tuple(point for one, point in points if one in best),
    )
