"""Architectures as text, in the form that DARTS prints. No torch.

    Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), …], normal_concat=range(2, 6), reduce=[…],
             reduce_concat=range(2, 6))

A cell's list has two entries per node, in the order of the nodes: an operation, and the number of its input. 0 and 1
are the outputs of the two cells before, 2 to 5 the cell's own nodes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from harness.components.space import Architecture
from harness.errors import InvalidConfiguration

from .cell import EDGES, INPUTS, KINDS, NODES, PAIRS, lengthened, operation_decision, taken

FORM = (
    "Genotype(normal=[('sep_conv_3x3', 0), ('skip_connect', 1), …], normal_concat=range(2, 6), reduce=[…], "
    "reduce_concat=range(2, 6))"
)
CONCATENATED = range(INPUTS, INPUTS + NODES)


def written(architecture: Architecture, operations: Sequence[str]) -> str:
    """The architecture as DARTS prints it, the inputs of each node in ascending order."""
    parts: list[str] = []
    for kind, name in enumerate(KINDS):
        edges = [
            (operations[architecture[operation_decision(kind, edge)]], EDGES[edge].source)
            for edge in taken(architecture, kind)
        ]
        parts += [f"{name}={edges}", f"{name}_concat={CONCATENATED}"]
    return f"Genotype({', '.join(parts)})"


def read(text: str, operations: Sequence[str]) -> Architecture:
    """The architecture of such a text. Raises `InvalidConfiguration`; nothing is evaluated."""
    fields = _fields(text)
    short: list[int] = []
    for name in KINDS:
        _check_concatenated(name, fields[f"{name}_concat"])
        edges = list(_edges(name, fields[name], operations))
        if len(edges) != 2 * NODES:
            raise InvalidConfiguration(f"{name} has {len(edges)} edges; a genotype has {2 * NODES}, two per node")
        for node in range(NODES):
            pair = sorted(edges[2 * node : 2 * node + 2], key=lambda edge: edge[1])
            sources = (pair[0][1], pair[1][1])
            if sources not in PAIRS[node]:
                wrong = "both are the same" if sources[0] == sources[1] else "an input comes before its node"
                raise InvalidConfiguration(
                    f"{name}: node {INPUTS + node} cannot take inputs {sources[0]} and {sources[1]} ({wrong}); "
                    f"it takes two different ones of 0 to {INPUTS + node - 1}"
                )
            short += [PAIRS[node].index(sources), *(operations.index(operation) for operation, _ in pair)]
    return lengthened(tuple(short))


def _fields(text: str) -> dict[str, ast.expr]:
    """The arguments of `Genotype(…)`, by name."""
    names = [part for name in KINDS for part in (name, f"{name}_concat")]
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or tree.func.id != "Genotype":
        raise InvalidConfiguration(f"{text!r} is not a genotype; expected {FORM}")
    found = {str(keyword.arg): keyword.value for keyword in tree.keywords}
    if tree.args or sorted(found) != sorted(names):
        raise InvalidConfiguration(
            f"a genotype has the fields {', '.join(names)}, each by its name; found: "
            f"{', '.join(found) or 'none'}. Expected {FORM}"
        )
    return found


def _edges(name: str, listed: ast.expr, operations: Sequence[str]) -> Iterator[tuple[str, int]]:
    for number, (operation, source) in enumerate(_literal(name, listed)):
        if operation not in operations:
            raise InvalidConfiguration(
                f"{name}: edge {number} has the operation {operation!r}; allowed: {', '.join(operations)}"
            )
        yield operation, source


def _literal(name: str, listed: ast.expr) -> list[tuple[Any, int]]:
    try:
        edges = ast.literal_eval(listed)
        pairs = [(operation, source) for operation, source in edges]
    except (ValueError, TypeError, SyntaxError) as error:
        raise InvalidConfiguration(f"{name} must be a list of (operation, input), such as {FORM}") from error
    for operation, source in pairs:
        if not isinstance(source, int) or isinstance(source, bool):
            raise InvalidConfiguration(f"{name}: the input of ({operation!r}, {source!r}) must be a number")
    return pairs


def _check_concatenated(name: str, given: ast.expr) -> None:
    """All four nodes are concatenated, written as a range or as a list."""
    text = ast.unparse(given).replace(" ", "")
    if text not in (str(CONCATENATED).replace(" ", ""), str(list(CONCATENATED)).replace(" ", "")):
        raise InvalidConfiguration(
            f"{name}_concat is {ast.unparse(given)}; in this space all nodes are concatenated: {CONCATENATED}"
        )
