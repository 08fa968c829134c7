"""The space's networks: the supernet, and an architecture as a network of its own.

Every edge of every cell has modules of its own, in a supernet one for each operation. A path runs only its edges, so
the others get no gradient. Activations are in channels_last order, in which convolutions on a CPU are faster. Modules
have the same names in both networks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from harness.components.space import Architecture
from harness.data.devices import laid_out
from harness.training.parts import per_image

from .cell import (
    EDGES,
    INPUTS,
    KINDS,
    NODES,
    NONE,
    PAIRS,
    POOLS,
    SKIP,
    operation_decision,
    pair_decision,
    separable,
    taken,
)
from .layout import STEM, CellSize, cells, reductions
from .operations import AuxiliaryHead, Depthwise, Halving, Norms, Pointwise, Pooling, Separable

Steps = tuple[tuple[int, str], ...]
"""The edges of a cell that run, with their operations, in the order of `EDGES`."""


def steps(architecture: Architecture, kind: int, operations: Sequence[str], every: bool = False) -> Steps:
    """What runs in cells of that kind: the edges that are taken, or all."""
    edges = range(len(EDGES)) if every else taken(architecture, kind)
    named = ((edge, operations[architecture[operation_decision(kind, edge)]]) for edge in edges)
    return tuple((edge, operation) for edge, operation in named if operation != NONE)


class Values:
    """The inputs and nodes of a cell while it runs. Each is activated, and pooled without state, at most once."""

    def __init__(self, *inputs: Tensor) -> None:
        self.plain = list(inputs)
        self._made: dict[tuple[str, int], Tensor] = {}

    def active(self, place: int) -> Tensor:
        return self.once("relu", place, torch.relu)

    def once(self, what: str, place: int, make: Callable[[Tensor], Tensor]) -> Tensor:
        if (what, place) not in self._made:
            self._made[what, place] = make(self.plain[place])
        return self._made[what, place]

    def output(self, active: bool) -> Tensor:
        """All nodes side by side, activated or not."""
        places = range(INPUTS, INPUTS + NODES)
        return torch.cat([self.active(place) if active else self.plain[place] for place in places], 1)


class Cell(nn.Module):
    """The operations of one cell, by edge and name; `forward` runs some of them."""

    def __init__(self, size: CellSize, edges: Mapping[int, Sequence[str]], norms: Norms, pooled_norms: bool) -> None:
        super().__init__()
        self.size = size
        self.shares_pools = norms.stateless or not pooled_norms
        self.first = (Halving if size.halves_first else Pointwise)(size.before[0], size.channels, norms)
        self.second = Pointwise(size.before[1], size.channels, norms)

        def make(operation: str, stride: int) -> nn.Module | None:
            if operation in POOLS:
                norm = norms.make(size.channels) if pooled_norms else None
                return Pooling(operation == POOLS[0], stride, norm)
            if parts := separable(operation):
                return Separable(size.channels, parts, stride, norms)
            return Halving(size.channels, size.channels, norms) if stride == 2 else None  # a skip

        made = {
            (edge, operation): make(operation, size.stride(EDGES[edge].source))
            for edge, names in edges.items()
            for operation in names
            if operation != NONE
        }
        self.operations = nn.ModuleDict({_name(*key): module for key, module in made.items() if module is not None})

    def inputs(self, first: Tensor, second: Tensor) -> Values:
        """The cell's values at its beginning, from the activated outputs of the two cells before."""
        return Values(self.first(first), self.second(second))

    def forward(self, first: Tensor, second: Tensor, path: Steps, drop_path: float = 0.0) -> Values:
        values = self.inputs(first, second)
        for node in range(INPUTS, INPUTS + NODES):
            into = [step for step in path if EDGES[step[0]].target == node]
            self.add_node(values, [self.edge(values, *step, drop_path) for step in into])
        return values

    def add_node(self, values: Values, terms: Sequence[Tensor]) -> None:
        """Add a node, the sum of its edges; zero if it has none."""
        if not terms:
            height, width = ((side - 1) // self.size.stride(0) + 1 for side in values.plain[0].shape[2:])
            zero = values.plain[0].new_zeros((len(values.plain[0]), self.size.channels, height, width))
            values.plain.append(laid_out(zero))
            return
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        values.plain.append(total)

    def edge(self, values: Values, edge: int, operation: str, drop_path: float = 0.0) -> Tensor:
        """The value of one edge."""
        source, name = EDGES[edge].source, _name(edge, operation)
        if operation == SKIP and name not in self.operations:
            return values.plain[source]
        module = self.operations[name]
        if operation not in POOLS:
            y: Tensor = module(values.active(source))
        elif self.shares_pools:
            y = values.once(operation, source, module)
        else:
            y = module(values.plain[source])
        if drop_path:
            kept = 1 - drop_path
            y = y * per_image(y, lambda count: y.new_empty(count, 1, 1, 1).bernoulli_(kept)).div_(kept)
        return y

    def forward_mixed(self, first: Tensor, second: Tensor, weights: Sequence[Mapping[str, Tensor]]) -> Values:
        """All operations of all edges; `weights` has those of an edge by operation."""
        values = self.inputs(first, second)
        for node in range(INPUTS, INPUTS + NODES):
            terms = [
                self.edge(values, edge, operation) * weight
                for edge, own in enumerate(weights)
                if EDGES[edge].target == node
                for operation, weight in own.items()
            ]
            self.add_node(values, terms)
        return values


class Network(nn.Module):
    """Stem, cells and classifier, with the operations of the edges left open: by kind of cell and edge, their names."""

    def __init__(
        self, settings: Any, edges: Sequence[Mapping[int, Sequence[str]]], norms: Norms, pooled_norms: bool
    ) -> None:
        super().__init__()
        sizes = cells(settings)
        self.stem = nn.Conv2d(settings.image_channels, STEM * settings.width, 3, padding=1, bias=False)
        self.stem_norm = norms.make(STEM * settings.width)
        self.cells = nn.ModuleList(Cell(size, edges[size.kind], norms, pooled_norms) for size in sizes)
        self.classifier = nn.Linear(sizes[-1].outputs, settings.classes)

    def parts(self) -> Iterator[tuple[int, Cell, bool]]:
        """The cells with their numbers, and whether each is the last one."""
        for number, cell in enumerate(self.cells):
            assert isinstance(cell, Cell)
            yield number, cell, number == len(self.cells) - 1

    def begin(self, x: Tensor) -> Tensor:
        """The activated output of the stem."""
        y = self.stem_norm(self.stem(laid_out(x)))
        return torch.relu_(y)

    def through(self, x: Tensor, run: Callable[[Cell, Tensor, Tensor], Values]) -> Iterator[Tensor]:
        """The outputs of the cells one after the other; activated, but for the last."""
        first = second = self.begin(x)
        for _, cell, last in self.parts():
            first, second = second, run(cell, first, second).output(active=not last)
            yield second

    def last(self, x: Tensor, run: Callable[[Cell, Tensor, Tensor], Values]) -> Tensor:
        """The output of the last cell; none of the others is held."""
        return deque(self.through(x, run), maxlen=1).pop()

    def logits(self, output: Tensor) -> Tensor:
        found: Tensor = self.classifier(output.mean((2, 3)))
        return found


class Supernet(Network):
    """All architectures of the space over one set of weights."""

    def __init__(self, settings: Any, operations: tuple[str, ...]) -> None:
        tracked = settings.batch_norm != "batch-statistics"
        norms = Norms(affine=settings.batch_norm == "tracked", tracked=tracked)
        super().__init__(settings, [dict.fromkeys(range(len(EDGES)), operations)] * len(KINDS), norms, True)
        self.names, self.every = operations, settings.inputs == "all"
        self.to(memory_format=torch.channels_last)

    def paths(self, architecture: Architecture) -> list[Steps]:
        """What runs now, by kind of cell."""
        every = self.every and self.training
        return [steps(architecture, kind, self.names, every) for kind in range(len(KINDS))]

    def forward(self, x: Tensor, architecture: Architecture) -> Tensor:
        paths = self.paths(architecture)
        return self.logits(self.last(x, lambda cell, *inputs: cell(*inputs, paths[cell.size.kind])))

    def operation_parameters(self) -> dict[tuple[int, int], list[Tensor]]:
        """By decision on an operation and choice, the parameters of all cells of that kind."""
        found: dict[tuple[int, int], list[Tensor]] = {}
        for _, cell, _ in self.parts():
            for edge in range(len(EDGES)):
                for choice, operation in enumerate(self.names):
                    if (name := _name(edge, operation)) in cell.operations:
                        own = found.setdefault((operation_decision(cell.size.kind, edge), choice), [])
                        own.extend(cell.operations[name].parameters())
        return {key: own for key, own in found.items() if own}

    def evaluation(self, batches: Sequence[Tensor]) -> Callable[[int, Architecture], Tensor]:
        """A function for the logits of many paths on these batches, by number: what is equal is computed once.

        The weights must not change while it is used.
        """
        from .evaluation import Evaluation

        return Evaluation(self, batches).logits

    def forward_mixed(self, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """Logits with all operations of all edges, weighted; one vector per decision, for all cells of a kind.

        The weight of an operation is that of the edge times that of the operation at it. The weight of an edge is the
        sum over the pairs that it belongs to. One-hot weights give the path's logits where batch normalisation is
        not affine. Pairs of k inputs that weigh 1/(k - 1) each give all edges the weight 1, as DARTS has it.
        """
        mixed = [self._weights(kind, weights) for kind in range(len(KINDS))]
        return self.logits(self.last(x, lambda cell, *inputs: cell.forward_mixed(*inputs, mixed[cell.size.kind])))

    def forward_gated(self, x: Tensor, architecture: Architecture, gates: Sequence[Tensor]) -> Tensor:
        """Logits with the path's operations at all edges, whichever pairs it has, each times its decision's gate."""
        gated: list[list[dict[str, Tensor]]] = []
        for kind in range(len(KINDS)):
            run = dict(steps(architecture, kind, self.names, every=True))
            gated.append([{run[e]: gates[operation_decision(kind, e)]} if e in run else {} for e in range(len(EDGES))])
        *_, last = self.through(x, lambda cell, first, second: cell.forward_mixed(first, second, gated[cell.size.kind]))
        return self.logits(last)

    def _weights(self, kind: int, weights: Sequence[Tensor]) -> list[dict[str, Tensor]]:
        found: list[dict[str, Tensor]] = []
        for edge, (source, target) in enumerate(EDGES):
            node = target - INPUTS
            whole = weights[pair_decision(kind, node)][_pairs_with(node, source)].sum()
            own = weights[operation_decision(kind, edge)].unbind()
            named = zip(self.names, own, strict=True)
            found.append({operation: whole * weight for operation, weight in named if operation != NONE})
        return found

    @contextmanager
    def twice_differentiable(self) -> Iterator[None]:
        """Context in which all operations are torch's own."""
        swift = [module for module in self.modules() if isinstance(module, Depthwise)]
        try:
            for module in swift:
                module.swift = False
            yield
        finally:
            for module in swift:
                module.swift = True


class StandaloneNetwork(Network):
    """One architecture as a network of its own.

    With tracked statistics (`batch_norm`), as stand-alone networks are trained: pools are not normalised. Otherwise its
    operations have the form that they have in the supernet.
    """

    def __init__(self, architecture: Architecture, settings: Any, operations: tuple[str, ...]) -> None:
        self.path = [steps(architecture, kind, operations) for kind in range(len(KINDS))]
        tracked = settings.batch_norm == "tracked"
        norms = Norms(affine=tracked, tracked=settings.batch_norm != "batch-statistics")
        edges = [{edge: (operation,) for edge, operation in path} for path in self.path]
        super().__init__(settings, edges, norms, pooled_norms=not tracked)
        self.auxiliary: AuxiliaryHead | None = None
        """Runs in training only. Its logits are a term of the loss (`retrain.auxiliary`)."""
        self.auxiliary_after = reductions(settings.depth)[1]
        if settings.auxiliary:
            self.auxiliary = AuxiliaryHead(cells(settings)[self.auxiliary_after].outputs, settings.classes, norms)
        self.draws_per_image = True
        self.drop_path = 0.0
        """The probability of drop-path at each edge that is not an identity, in training; set during training."""
        self.to(memory_format=torch.channels_last)

    @property
    def stochastic(self) -> bool:
        """Whether training draws random numbers."""
        return self.drop_path > 0

    def forward(self, x: Tensor) -> Tensor:
        drop = self.drop_path if self.training else 0.0

        def run(cell: Cell, first: Tensor, second: Tensor) -> Values:
            values: Values = cell(first, second, self.path[cell.size.kind], drop)
            return values

        for number, output in enumerate(self.through(x, run)):
            if number == self.auxiliary_after and self.auxiliary is not None and self.training:
                self.auxiliary(output)
        return self.logits(output)


def _name(edge: int, operation: str) -> str:
    return f"{edge}_{operation}"


@cache
def _pairs_with(node: int, source: int) -> list[int]:
    """The pairs of inputs of that node that hold the source."""
    return [number for number, pair in enumerate(PAIRS[node]) if source in pair]
