"""The DARTS space: two cells, normal and reduction, in which every node takes two inputs and an operation for each.

`darts` has 7 operations, `darts-none` also the operation none. An architecture is a tuple of 36 decisions, which
`cell.py` lays out. Operations of edges that are not taken do not matter; they are 0 in canonical architectures, which
alone are numbered and drawn. Drawing is by the rule of randomNAS: pairs of inputs and operations are uniform.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from harness.components.registries import SPACES
from harness.components.space import Architecture, Decisions, Fixed, SizedSpace, Wiring, network_settings
from harness.errors import InvalidConfiguration

from . import genotype
from .cell import (
    EDGES,
    INPUTS,
    KINDS,
    LABELS,
    NODES,
    NONE,
    OPERATIONS,
    PAIRS,
    choices,
    lengthened,
    operation_decision,
    pair_decision,
    short_choices,
    shortened,
    taken,
)
from .counts import COUNTS, Table, table
from .layout import cells
from .settings import CellNetwork

if TYPE_CHECKING:
    import torch

PUBLISHED = CellNetwork(width=36, depth=20)
"""The size of the published counts, on images of 32 pixels with 10 classes."""


@cache
def published(network: CellNetwork | None = None) -> Any:
    return network_settings(network or PUBLISHED, classes=10, image_channels=3, image_size=32)


class Cells(SizedSpace):
    """What both forms share."""

    operations: tuple[str, ...]
    complexity_counts = COUNTS
    Network = CellNetwork
    split = operation_decision(0, 0)

    def published(self, network: Any = None) -> Any:
        return published(network)

    @cached_property
    def short(self) -> Decisions:
        """The decisions of the short form, in which everything matters: pair and two operations per node."""
        short = Decisions()
        short.name, short.choices = self.name, short_choices(len(self.operations))
        return short

    @cached_property
    def size(self) -> int:
        """How many architectures differ in what matters."""
        return self.short.size

    @cached_property
    def layers(self) -> tuple[tuple[int, ...], ...]:
        """The nodes, those of the normal cell first, each with its pair of inputs and the operations of its edges."""
        starts = [pair_decision(kind, node) for kind in range(len(KINDS)) for node in range(NODES)]
        ends = [*starts[1:], len(self.choices)]
        return tuple(tuple(range(start, end)) for start, end in zip(starts, ends, strict=True))

    @cached_property
    def operation_decisions(self) -> tuple[int, ...]:
        """The decisions on operations of edges: what DARTS has architecture parameters for."""
        return tuple(operation_decision(kind, edge) for kind in range(len(KINDS)) for edge in range(len(EDGES)))

    def constant_weight(self, decision: int) -> float:
        """That of a pair of inputs: the pairs of k inputs give every edge the weight 1, as DARTS has it."""
        nodes = {pair_decision(kind, node): node for kind in range(len(KINDS)) for node in range(NODES)}
        return 1 / (INPUTS + nodes[decision] - 1)

    @cached_property
    def conditions(self) -> Mapping[int, tuple[int, ...]]:
        """Edges of nodes that choose among their inputs may be absent, unless training runs all edges."""
        if self.settings.inputs == "all":
            return {}
        return {
            operation_decision(kind, edge): (pair_decision(kind, target - INPUTS),)
            for kind in range(len(KINDS))
            for edge, (_, target) in enumerate(EDGES)
            if len(PAIRS[target - INPUTS]) > 1
        }

    def matters(self, architecture: Architecture, decision: int) -> bool:
        """Whether the decision is on a pair of inputs, or on an edge that is taken."""
        if decision not in self.conditions:
            return True
        kind, within = divmod(decision, len(self.choices) // len(KINDS))
        return any(operation_decision(0, edge) == within for edge in taken(architecture, kind))

    def index(self, architecture: Architecture) -> int:
        """The number of its canonical form: mixed radix over the short form, first decision most significant."""
        return self.short.index(shortened(self.check(architecture)))

    def architecture(self, index: int) -> Architecture:
        return lengthened(self.short.architecture(index))

    def sample(self, rng: random.Random, fixed: Fixed | None = None) -> Architecture:
        """Pairs and operations uniform except the `fixed` ones; canonical, unless training runs all edges."""
        drawn = super().sample(rng, fixed)
        if self.settings.inputs == "all":
            return drawn
        whole = list(self.canonical(drawn))
        for decision, choice in (fixed or {}).items():
            whole[decision] = choice
        return tuple(whole)

    def mutate(self, architecture: Architecture, rng: random.Random, probability: float) -> Architecture:
        """As every space, in the short form: a node that changes an input keeps its operations in their places."""
        return lengthened(self.short.mutate(shortened(self.check(architecture)), rng, probability))

    def alter(self, architecture: Architecture, rng: random.Random, probability: float) -> Architecture:
        return lengthened(self.short.alter(shortened(self.check(architecture)), rng, probability))

    def crossover(self, one: Architecture, other: Architecture, rng: random.Random) -> Architecture:
        return lengthened(self.short.crossover(shortened(self.check(one)), shortened(self.check(other)), rng))

    def neighbour(self, architecture: Architecture, changes: int, rng: random.Random) -> Architecture:
        return lengthened(self.short.neighbour(shortened(self.check(architecture)), changes, rng))

    def neighbours(self, architecture: Architecture, changes: int) -> Iterator[Architecture]:
        return map(lengthened, self.short.neighbours(shortened(self.check(architecture)), changes))

    def canonical(self, architecture: Architecture) -> Architecture:
        """The same with operation 0 for all edges that are not taken."""
        return lengthened(shortened(self.check(architecture)))

    def is_connected(self, architecture: Architecture) -> bool:
        """Whether the image reaches the classifier: operations none may keep it from there."""
        self.check(architecture)
        before = (True, True)
        for cell in cells(self.settings):
            fed = [*before]
            for node in range(INPUTS, INPUTS + NODES):
                into = [edge for edge in taken(architecture, cell.kind) if EDGES[edge].target == node]
                named = [(self._operation(architecture, cell.kind, edge), EDGES[edge].source) for edge in into]
                fed.append(any(fed[source] for operation, source in named if operation != NONE))
            before = (before[1], any(fed[INPUTS:]))
        return before[1]

    def _operation(self, architecture: Architecture, kind: int, edge: int) -> str:
        return self.operations[architecture[operation_decision(kind, edge)]]

    def parse(self, text: str) -> Architecture:
        """DARTS's form (`genotype.FORM`). The two inputs of a node may stand in either order."""
        return genotype.read(text, self.operations)

    def format(self, architecture: Architecture) -> str:
        return genotype.written(self.check(architecture), self.operations)

    def strongest(self, weights: Sequence[Sequence[float]]) -> Architecture:
        """The architecture that DARTS derives from weights of operations, one sequence per decision.

        The strength of an edge is the largest weight of its operations, none excluded. Each node takes its two
        strongest edges, of equal ones the first, with their strongest operations. Weights of pairs are not looked at.
        """
        found = [0] * len(self.choices)
        possible = [number for number, operation in enumerate(self.operations) if operation != NONE]
        for kind in range(len(KINDS)):
            for node in range(NODES):
                own = {
                    source: operation_decision(kind, edge)
                    for edge, (source, target) in enumerate(EDGES)
                    if target == INPUTS + node
                }
                best = {source: max(possible, key=lambda one: float(weights[own[source]][one])) for source in own}
                order = sorted(own, key=lambda source: -float(weights[own[source]][best[source]]))
                pair = tuple(sorted(order[:2]))
                found[pair_decision(kind, node)] = PAIRS[node].index(pair)
                for source in pair:
                    found[own[source]] = best[source]
        return tuple(found)

    def wiring(self, architecture: Architecture) -> Mapping[str, Wiring]:
        """Both cells. Their inputs are the outputs of the two cells before; all nodes are the output."""
        self.check(architecture)
        nodes = ["k−2", "k−1", *(str(node) for node in range(NODES))]
        return {
            f"{name} cell": Wiring(
                nodes,
                [
                    (*EDGES[edge], LABELS[operation])
                    for edge in taken(architecture, kind)
                    if (operation := self._operation(architecture, kind, edge)) != NONE
                ],
            )
            for kind, name in enumerate(("normal", "reduction"))
        }

    def complexity(self, architecture: Architecture, count: str = "parameters", settings: Any = None) -> int:
        return self._table(count, settings).of(self.check(architecture))

    def extremes(self, count: str = "parameters", settings: Any = None) -> tuple[int, Architecture, int, Architecture]:
        return self._table(count, settings).extremes()

    def _table(self, count: str, settings: Any = None) -> Table:
        if count not in COUNTS:
            raise InvalidConfiguration(f"complexity {count!r} is unknown; allowed: {self.counts_text()}")
        return table(self.operations, count, settings or self.settings)

    def alone(self, network: Any) -> Any:
        """Stand-alone networks have two inputs per node, always."""
        return replace(network, batch_norm="tracked", inputs="two")

    def operation_parameters(self, network: Any) -> Mapping[tuple[int, int], Sequence[torch.Tensor]]:
        return network.operation_parameters()  # type: ignore[no-any-return]

    def supernet(self, settings: Any) -> torch.nn.Module:
        from .networks import Supernet

        return Supernet(settings, self.operations)

    def standalone(self, architecture: Architecture, settings: Any) -> torch.nn.Module:
        from .networks import StandaloneNetwork

        return StandaloneNetwork(self.check(architecture), settings, self.operations)


@SPACES.register("darts")
class DARTS(Cells):
    """Normal and reduction cell of 4 nodes, each with 2 of its inputs and one of 7 operations for each: 10^18."""

    name = "darts"
    operations = OPERATIONS
    choices = choices(len(OPERATIONS))


@SPACES.register("darts-none")
class DARTSWithNone(Cells):
    """The same with the operation none, as randomNAS samples it: 8 operations, 9·10^18 architectures."""

    name = "darts-none"
    operations = (NONE, *OPERATIONS)
    choices = choices(len(operations))
