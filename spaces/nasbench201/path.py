"""One path through the supernet as a flat list of steps, planned once an architecture.

What a cell does with an architecture is decided here, ahead of any tensor: which edges carry something,
and which convolution each of them is. What is left for every batch is the arithmetic. Knows the cell's
wiring, no weights.
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
    """Its name in the cell, where the operation is one."""
    own: bool
    """Whether its value belongs to nobody else: a pooling may serve several edges, a skipped value is its source's."""


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
