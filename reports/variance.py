"""How much values vary over seeds by the edges that these draw: notes of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from harness.statistics import Block, residual, shared_variance
from harness.study.comparisons import main_column
from harness.study.edges import CLUSTERS, SPLIT, edges_of

from .compared import COMPARABLE, drawn_by_row, measured
from .evidence import Evidence, Findings
from .values import shown

EDGES = {SPLIT: "the split edge", CLUSTERS: "the edge of the clusters"}


def variance_notes(findings: Findings) -> Iterator[str]:
    """A line for each method whose seeds draw edges, on the study's main column and first data set."""
    study, found, dataset = findings.study, findings.counted, findings.preset.datasets[0]
    column = main_column(study)
    if column is None or column.metric not in COMPARABLE or study.group is None:
        return
    draws = drawn_by_row(found)
    for label in dict.fromkeys(study.rows[row].labels[study.group] for row in draws):
        own = [row for row in draws if study.rows[row].labels[study.group] == label]
        values = {row: {seed: v for seed, v, _ in measured(study, row, column.metric, dataset, found)} for row in own}
        rows = [row for row in own if values[row]]
        seeds = sorted(set.intersection(*(set(values[row]) for row in rows))) if rows else []
        lines = {edge: [float(edge in draws[row]) for row in rows] for edge in EDGES}
        drawn = {edge: line for edge, line in lines.items() if any(line)}
        if len(seeds) < 2 or not drawn:
            continue
        block = Block(
            np.array([[values[row][seed] for seed in seeds] for row in rows]),
            np.zeros(len(rows)),
            True,
            np.array(list(drawn.values())),
        )
        square, degrees = residual(block)
        if not degrees or len(block.basis) < len(drawn):  # nothing tells the edge from the rest
            continue
        parts = []
        for place, edge in enumerate(drawn):
            edges = [_edge(found, rows, drawn[edge], dataset, seed, edge) for seed in seeds]
            by_edge, by_seed = shared_variance(block, place, edges)
            if by_seed is None:
                parts.append(f"{_sd(by_edge, column.digits)} by {EDGES[edge]} and all else that a seed moves with it")
            else:
                parts.append(f"{_sd(by_edge, column.digits)} by {EDGES[edge]}")
                parts.append(f"{_sd(by_seed, column.digits)} by all else that a seed moves with it")
        parts.append(f"{_sd(square, column.digits)} by the rest of each run")
        count = f"{len(rows)} row{'s' * (len(rows) != 1)}, {len(seeds)} seeds"
        yield f"Standard deviation of {column.label} over seeds, {label} ({count}): {', '.join(parts)}."


def _edge(
    found: Sequence[Evidence], rows: Sequence[int], line: Sequence[float], dataset: str, seed: int, edge: str
) -> object:
    """The edge that a seed drew, in the first of the rows that draw it."""
    row = rows[line.index(1.0)]
    config = next(
        one.request.trial.config
        for one in found
        if (one.request.row, one.request.dataset, one.request.seed) == (row, dataset, seed)
    )
    return edges_of(config)[edge]


def _sd(variance: float, digits: int | None) -> str:
    return shown(max(0.0, variance) ** 0.5, 3 if digits is None else digits)
