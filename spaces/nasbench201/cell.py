"""The cell's wiring: names of operations, order of edges, and which edges matter."""

from __future__ import annotations

from functools import cache

from harness.components.space import Architecture

OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
NONE, SKIP, CONV1X1, CONV3X3, POOL = range(5)
CONVOLUTIONS = (CONV1X1, CONV3X3)

NODES = 4
EDGES = ((1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2))
"""(target, source) in the benchmark's order."""


@cache
def live_edges(architecture: Architecture) -> tuple[int, ...]:
    """The edges that carry something from the cell's input to its output.

    An edge out of a node that is always zero, or into a node that nothing uses, does nothing. The
    networks leave such edges out, so their parameters get no gradient.
    """
    fed = {0}
    for edge, (target, source) in enumerate(EDGES):
        if architecture[edge] != NONE and source in fed:
            fed.add(target)
    used = {NODES - 1}
    for edge in reversed(range(len(EDGES))):
        target, source = EDGES[edge]
        if architecture[edge] != NONE and target in used:
            used.add(source)
    return tuple(
        edge
        for edge, (target, source) in enumerate(EDGES)
        if architecture[edge] != NONE and source in fed and target in used
    )
