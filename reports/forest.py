"""All comparisons of a study as one figure: effect, interval, and the paper's effect. Knows no drawing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .comparison import interval_text
from .evidence import Findings
from .figure_values import FigureValue, ForestLine, ForestPanel
from .notes import scale
from .values import Table
from .verdicts import Judgement

NAME = "comparisons"


def forest(findings: Findings, table: Table, judgements: Sequence[Judgement]) -> list[FigureValue]:
    """The figure, with one panel for each column and data set; none where nothing has an effect yet."""
    panels: dict[tuple[str, str], list[ForestLine]] = {}
    for one in judgements:
        if one.effect is not None:
            place = (one.compared.column, one.compared.dataset)
            panels.setdefault(place, []).append(_line(one))
    if not panels:
        return []
    several = len({dataset for _, dataset in panels}) > 1
    notes = ["A cross is the paper's effect, on its own scale and data."]
    if any(line.low is None for lines in panels.values() for line in lines):
        notes.append("Where there is no bar, so few seeds bound nothing.")
    rows = {row for one in judgements for row in one.compared.numbers}
    runs = [one.run.id for one in findings.counted if one.run and one.state == "done" and one.request.row in rows]
    return [
        FigureValue(
            study=findings.study.name,
            name=NAME,
            title=f"{table.title}: all comparisons",
            scale=scale(findings, interval_text(judgements)),
            panels=tuple(
                ForestPanel(f"{column} ({dataset})" if several else column, "Effect", tuple(dict.fromkeys(lines)))
                for (column, dataset), lines in panels.items()
            ),
            notes=tuple(notes),
            runs=tuple(dict.fromkeys(runs)),
        )
    ]


def _line(one: Judgement) -> ForestLine:
    bounded = one.interval is not None and all(map(math.isfinite, one.interval))
    low, high = one.interval if bounded and one.interval is not None else (None, None)
    assert one.effect is not None
    return ForestLine(one.compared.rows, one.effect, low, high, one.compared.printed, one.verdict)
