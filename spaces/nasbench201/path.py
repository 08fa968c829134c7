"""One path through the supernet as a flat list of steps, planned once per architecture.

The plan is made before any tensor is involved: which edges are live, and which convolution each of them uses.
Only the arithmetic is left for each batch. Knows the cell's wiring, but no weights.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from harness.components.space import Architecture

from .cell import EDGES, POOL, SKIP, live_edges


class Step(NamedTuple):
    """One edge of a path."""

    operation: int
    source: int
    target: int
    convolution: str
    """Name of the convolution in the cell, if the operation is one."""
    own: bool
    """Whether its value is not shared: a pooled value may serve several edges, a skip passes on its source's value."""


@cache
def steps(architecture: Architecture) -> tuple[Step, ...]:
    """The live edges in order."""
    edges = live_edges(architecture)
    pools = [EDGES[edge][1] for edge in edges if architecture[edge] == POOL]
    plan = []
    for edge in edges:
        target, source = EDGES[edge]
        operation = architecture[edge]
        own = pools.count(source) == 1 if operation == POOL else operation != SKIP
        plan.append(Step(operation, source, target, f"{edge}_{operation}", own))
    return tuple(plan)
