"""The cell: operations, edges, and how its decisions are laid out in an architecture. No torch.

A cell has two inputs and four nodes. A node takes two of the inputs and nodes before it, each by an edge with an
operation. An architecture holds two cells, the normal one and then the reduction cell, each node by node: which pair
of inputs the node takes, then the operation of every edge that it might take. Those of edges that it does not take do
not matter.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain, combinations
from typing import NamedTuple

from harness.components.space import Architecture

NODES = 4
INPUTS = 2
KINDS = ("normal", "reduce")
NORMAL, REDUCE = 0, 1

NONE = "none"
OPERATIONS = (
    "max_pool_3x3",
    "avg_pool_3x3",
    "skip_connect",
    "sep_conv_3x3",
    "sep_conv_5x5",
    "dil_conv_3x3",
    "dil_conv_5x5",
)
LABELS = dict(zip(OPERATIONS, ("max", "avg", "skip", "sep 3", "sep 5", "dil 3", "dil 5"), strict=True))
"""Their names in drawings, where edges are short."""
POOLS = OPERATIONS[:2]
SKIP = OPERATIONS[2]

PAIRS = tuple(tuple(combinations(range(INPUTS + node), 2)) for node in range(NODES))
"""By node, the pairs of inputs that it may take: 1, 3, 6 and 10."""


class Edge(NamedTuple):
    """An edge of the cell; node t of the cell is place t + 2, after the two inputs."""

    source: int
    target: int


EDGES = tuple(Edge(source, INPUTS + node) for node in range(NODES) for source in range(INPUTS + node))
"""The 14 edges, in the order of their targets, then of their sources."""

_NODE_STARTS = tuple(sum(1 + INPUTS + before for before in range(node)) for node in range(NODES))
LENGTH = NODES + len(EDGES)
"""Decisions per cell."""


class Separable(NamedTuple):
    """What a separable convolution repeats: a depthwise convolution of this kernel and dilation, and a 1×1 one."""

    kernel: int
    dilation: int
    times: int


def separable(operation: str) -> Separable | None:
    """What the operation is made of; None if it is not a convolution."""
    family, _, kernel = operation.rpartition("_conv_")
    if not family:
        return None
    return Separable(int(kernel[0]), *{"sep": (1, 2), "dil": (2, 1)}[family])


def pair_decision(kind: int, node: int) -> int:
    """The decision which pair of inputs that node takes."""
    return kind * LENGTH + _NODE_STARTS[node]


def operation_decision(kind: int, edge: int) -> int:
    """The decision which operation that edge has, whether it is taken or not."""
    source, target = EDGES[edge]
    return kind * LENGTH + _NODE_STARTS[target - INPUTS] + 1 + source


def choices(operations: int) -> tuple[int, ...]:
    """How many choices each decision of an architecture has."""
    cell = chain.from_iterable((len(PAIRS[node]), *(operations,) * (INPUTS + node)) for node in range(NODES))
    return (*cell,) * len(KINDS)


def short_choices(operations: int) -> tuple[int, ...]:
    """The same for the short form."""
    return tuple(count for pairs in PAIRS for count in (len(pairs), operations, operations)) * len(KINDS)


@lru_cache(maxsize=4096)
def taken(architecture: Architecture, kind: int) -> tuple[int, ...]:
    """The edges of the cell that are taken, two per node, in the order of `EDGES`."""
    pairs = [PAIRS[node][architecture[pair_decision(kind, node)]] for node in range(NODES)]
    return tuple(edge for edge, (source, target) in enumerate(EDGES) if source in pairs[target - INPUTS])


def shortened(architecture: Architecture) -> Architecture:
    """The short form: per node the pair and the operations of its two edges. Everything in it matters."""
    short: list[int] = []
    for kind in range(len(KINDS)):
        edges = iter(taken(architecture, kind))
        for node in range(NODES):
            operations = (architecture[operation_decision(kind, next(edges))] for _ in range(2))
            short += [architecture[pair_decision(kind, node)], *operations]
    return tuple(short)


def lengthened(short: Architecture) -> Architecture:
    """The architecture of a short form, with 0 for the operations of edges that are not taken."""
    long = [0] * (LENGTH * len(KINDS))
    places = iter(short)
    for kind in range(len(KINDS)):
        for node in range(NODES):
            pair = next(places)
            long[pair_decision(kind, node)] = pair
            for source in PAIRS[node][pair]:
                long[pair_decision(kind, node) + 1 + source] = next(places)
    return tuple(long)
