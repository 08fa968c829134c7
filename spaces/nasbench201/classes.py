"""Which NAS-Bench-201 architectures are equivalent: two symbolic keys, equal for equivalent architectures.

Every node of a cell is a sum of terms. Skip is the identity, average pooling is linear, so a node can
be written as a multiset of atoms, each pooled k times; an atom is the cell's input or a convolution of
another node's expression. Two architectures whose output nodes are equal multisets compute the same.

`supernet_key`  7,548 classes: equal functions of the supernet's weights. A convolution belongs to its
                edge, so convolutions on different edges never merge.
`network_key`   5,044 classes: equal stand-alone networks. At initialisation all convolutions of one
                kind are exchangeable, so their labels are renamed freely; one shared convolution used
                twice stays one.
"""

from __future__ import annotations

from collections import Counter
from itertools import permutations, product
from typing import Any

from harness.components.space import Architecture

from .cell import CONVOLUTIONS, EDGES, NODES, NONE, POOL, SKIP

Key = tuple[Any, ...]


def supernet_key(architecture: Architecture) -> Key:
    """The output node as a function of the input and of the convolution at each edge."""
    return _expressions(architecture, {edge: edge for edge in range(len(EDGES))})[-1]


def network_key(architecture: Architecture) -> Key:
    """`supernet_key` up to renaming of the convolutions that the output uses.

    The smallest key over all renamings of the live convolutions is the same for equal networks and
    differs for different ones.
    """
    by_kind = {
        kind: [edge for edge in range(len(EDGES)) if architecture[edge] == kind and _uses(architecture, edge)]
        for kind in CONVOLUTIONS
    }
    best: Key | None = None
    best_text = ""
    for order in product(*(permutations(range(len(edges))) for edges in by_kind.values())):
        names: dict[int, int] = {}
        for edges, ranks in zip(by_kind.values(), order, strict=True):
            names.update(zip(edges, ranks, strict=True))
        key = _expressions(architecture, names)[-1]
        text = repr(key)
        if best is None or text < best_text:
            best, best_text = key, text
    assert best is not None
    return best


def _uses(architecture: Architecture, edge: int) -> bool:
    """Whether the output depends on the convolution at that edge."""
    marked = _expressions(architecture, {other: other for other in range(len(EDGES))})[-1]
    return f"('edge', {edge}," in repr(marked)


def _expressions(architecture: Architecture, names: dict[int, int]) -> list[Key]:
    """Each node as a sorted tuple of ((atom, times pooled), count)."""
    nodes: list[Key] = [((("input",), 0, 1),)]
    for node in range(1, NODES):
        terms: Counter[tuple[Key, int]] = Counter()
        for edge, (target, source) in enumerate(EDGES):
            operation = architecture[edge]
            if target != node or operation == NONE:
                continue
            if operation in (SKIP, POOL):
                for atom, pooled, count in nodes[source]:
                    terms[atom, pooled + (operation == POOL)] += count
            elif nodes[source] and edge in names:
                terms[("edge", names[edge], operation, nodes[source]), 0] += 1
        nodes.append(tuple(sorted(((*term, count) for term, count in terms.items()), key=repr)))
    return nodes
