"""NAS-Bench-201 networks: the supernet, and an architecture as a network of its own.

Skeleton: stem, three stages of `depth` cells with a reduction block before the second and the third,
BN-ReLU, global average, classifier. Channels double and the image halves at each reduction.

Both networks leave out edges that cannot carry anything from input to output, so the parameters there
get no gradient, and with affine batch normalisation a convolution of a zero node adds no bias.
`settings.copies` networks run stacked: grouped convolutions over the channels of all copies, which is
one network to PyTorch and so costs little more than one. Activations are in channels_last order. On a CPU
a supernet without running statistics (the default) is run by `engine`, which computes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.components.space import Architecture, NetworkSettings
from harness.data.devices import accelerated, laid_out
from harness.training.parts import groups_here

from . import mixture
from .cell import EDGES, NODES, NONE, POOL, SKIP, live_edges
from .engine import Engine
from .evaluation import Evaluation
from .mixture import KERNELS
from .path import steps


class Convolution(nn.Module):
    """Convolution and batch normalisation; the ReLU before them is applied by the caller, once per node."""

    def __init__(
        self, channels_in: int, channels_out: int, kernel: int, stride: int, copies: int, affine: bool, tracked: bool
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(
            channels_in * copies,
            channels_out * copies,
            kernel,
            stride,
            padding=kernel // 2,
            bias=not affine,
            groups=copies,
        )
        self.norm = nn.BatchNorm2d(channels_out * copies, affine=affine, track_running_stats=tracked)

    def forward(self, x: Tensor) -> Tensor:
        if self.convolution.bias is not None and not self.norm.track_running_stats and leaves_out_biases(x):
            y = functional.conv2d(
                x,
                self.convolution.weight,
                None,
                self.convolution.stride,
                self.convolution.padding,
                groups=self.convolution.groups,
            )
        else:
            y = self.convolution(x)
        return self.norm(y)  # type: ignore[no-any-return]


def leaves_out_biases(x: Tensor) -> bool:
    """Whether biases that normalisation by the batch's mean subtracts again are left out: in evaluations on a GPU,
    which would add each by a kernel of its own. `engine` leaves them out on a CPU."""
    return accelerated(x.device) and not torch.is_grad_enabled()


class Reduction(nn.Module):
    """Halves the image and doubles the channels; its shortcut has no batch normalisation."""

    def __init__(self, channels_in: int, channels_out: int, copies: int, affine: bool, tracked: bool) -> None:
        super().__init__()
        self.first = Convolution(channels_in, channels_out, 3, 2, copies, affine, tracked)
        self.second = Convolution(channels_out, channels_out, 3, 1, copies, affine, tracked)
        self.shortcut = nn.Conv2d(channels_in * copies, channels_out * copies, 1, bias=False, groups=copies)

    def forward(self, x: Tensor) -> Tensor:
        main = self.second(torch.relu(self.first(torch.relu(x))))
        # ceil_mode agrees with the strided convolution on odd sizes and changes nothing on even ones.
        return main + self.shortcut(functional.avg_pool2d(x, 2, 2, ceil_mode=True))  # type: ignore[no-any-return]


class Cell(nn.Module):
    """The convolutions of one cell, by edge and operation; `forward` runs those of one architecture."""

    def __init__(
        self, channels: int, operations: list[tuple[int, int]], copies: int, affine: bool, tracked: bool
    ) -> None:
        super().__init__()
        self.plain = copies == 1 and not affine and not tracked
        self.convolutions = nn.ModuleDict(
            {
                f"{edge}_{operation}": Convolution(channels, channels, KERNELS[operation], 1, copies, affine, tracked)
                for edge, operation in operations
            }
        )

    def forward(self, x: Tensor, architecture: Architecture, gates: Sequence[Tensor] | None = None) -> Tensor:
        nodes: list[Tensor | None] = [x] + [None] * (NODES - 1)
        activated: dict[int, Tensor] = {}
        pooled: dict[int, Tensor] = {}
        for edge in live_edges(architecture):
            target, source = EDGES[edge]
            operation = architecture[edge]
            value = nodes[source]
            assert value is not None  # a live edge starts at a node that has a value
            if operation == POOL:
                if source not in pooled:
                    pooled[source] = functional.avg_pool2d(value, 3, 1, padding=1, count_include_pad=False)
                value = pooled[source]
            elif operation != SKIP:
                if source not in activated:
                    activated[source] = torch.relu(value)
                value = self.convolutions[f"{edge}_{operation}"](activated[source])
            if gates is not None:
                value = gates[edge] * value
            present = nodes[target]
            nodes[target] = value if present is None else present + value
        output = nodes[NODES - 1]
        return torch.zeros_like(x) if output is None else output

    def forward_shifted(
        self, x: Tensor, architecture: Architecture, gates: Sequence[Tensor], shifts: Sequence[Tensor]
    ) -> Tensor:
        """As `forward`, with a number per edge added to its result. A node that only gets such numbers is zero, and
        passes their gradient on through skips and pools: a ReLU has none at zero."""
        nodes, filled = [x], {0}
        for target in range(1, NODES):
            total = torch.zeros_like(x)
            for edge, (end, source) in enumerate(EDGES):
                if end != target:
                    continue
                operation = architecture[edge]
                if operation != NONE and (source in filled or operation not in KERNELS):
                    value = nodes[source]
                    if operation == POOL:
                        value = functional.avg_pool2d(value, 3, 1, padding=1, count_include_pad=False)
                    elif operation != SKIP:
                        value = self.convolutions[f"{edge}_{operation}"](torch.relu(value))
                    total = total + gates[edge] * value
                    if source in filled:
                        filled.add(target)
                total = total + shifts[edge]
            nodes.append(total)
        return nodes[-1]

    def forward_mixed(self, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """All operations of every edge, weighted; `weights` has a vector per edge. Operation none adds nothing."""
        return (mixture.shared if self.plain else mixture.looped)(self, x, weights)


class Network(nn.Module):
    """The skeleton, with the cells' operations and the kinds of batch normalisation left open."""

    def __init__(
        self,
        settings: NetworkSettings,
        operations: list[tuple[int, int]],
        norm: Callable[[str], tuple[bool, bool]],
    ) -> None:
        super().__init__()
        width, copies = settings.width, settings.copies
        self.copies = copies
        self.classes = settings.classes
        self.stem = nn.Conv2d(settings.image_channels * copies, width * copies, 3, padding=1, bias=False, groups=copies)
        stem_affine, stem_tracked = norm("stem")
        self.stem_norm = nn.BatchNorm2d(width * copies, affine=stem_affine, track_running_stats=stem_tracked)
        blocks: list[nn.Module] = []
        for stage in range(3):
            channels = width * 2**stage
            if stage:
                blocks.append(Reduction(channels // 2, channels, copies, *norm("reduction")))
            blocks += [Cell(channels, operations, copies, *norm("cell")) for _ in range(settings.depth)]
        self.blocks = nn.ModuleList(blocks)
        last_affine, last_tracked = norm("last")
        self.last_norm = nn.BatchNorm2d(4 * width * copies, affine=last_affine, track_running_stats=last_tracked)
        # As a grouped 1×1 convolution the classifier stacks like everything else.
        self.classifier = nn.Conv2d(4 * width * copies, settings.classes * copies, 1, groups=copies)
        self.to(memory_format=torch.channels_last)

    def run(self, x: Tensor, architecture: Architecture) -> Tensor:
        return self._through(x, lambda cell, x: cell(x, architecture))

    def _through(self, x: Tensor, run_cell: Callable[[Cell, Tensor], Tensor]) -> Tensor:
        x = self.stem_norm(self.stem(laid_out(x)))
        for block in self.blocks:
            x = run_cell(block, x) if isinstance(block, Cell) else block(x)
        x = torch.relu(self.last_norm(x)).mean((2, 3), keepdim=True)
        logits: Tensor = self.classifier(x).flatten(1)
        return logits if self.copies == 1 else logits.view(len(logits), self.copies, self.classes)


class Supernet(Network):
    """All architectures of the space over one set of weights."""

    def __init__(self, settings: NetworkSettings) -> None:
        everywhere = [(edge, operation) for edge in range(len(EDGES)) for operation in KERNELS]

        def norm(place: str) -> tuple[bool, bool]:
            tracked = settings.batch_norm == "tracked" or (settings.batch_norm == "benchmark" and place != "cell")
            return tracked, tracked

        super().__init__(settings, everywhere, norm)
        self.swift = settings.batch_norm == "batch-statistics" and settings.copies == 1
        """Whether `Engine` runs the network where it can, bypassing the modules and their hooks. Set it to False for
        hooks and for second-order gradients."""
        self._engine: Engine | None = None

    def forward(self, x: Tensor, architecture: Architecture) -> Tensor:
        groups = groups_here() if self.training else 1  # none if ranks share one: the modules exchange statistics
        if self.swift and groups and steps(architecture) and self.engine.fits(x, groups):
            return self.engine.logits(x, architecture, groups)
        return self.run(x, architecture)

    def operation_parameters(self) -> dict[tuple[int, int], list[Tensor]]:
        """By edge and operation, the parameters of all cells."""
        found: dict[tuple[int, int], list[Tensor]] = {}
        for block in self.blocks:
            if isinstance(block, Cell):
                for name, convolution in block.convolutions.items():
                    edge, operation = map(int, name.split("_"))
                    found.setdefault((edge, operation), []).extend(convolution.parameters())
        return found

    def compile_operations(self) -> None:
        """Compile the modules of the plain network; the engine has nothing that a compiler could fuse."""
        for module in self.modules():
            if isinstance(module, Convolution | Reduction):
                module.compile(dynamic=False)

    def evaluation(self, batches: Sequence[Tensor]) -> Callable[[int, Architecture], Tensor]:
        """A function for the logits of many paths on these batches, by number: shared values are computed once.

        The weights must not change while it is used.
        """
        if not self.swift or not all(self.engine.fits(images) for images in batches):
            return lambda number, architecture: self(batches[number], architecture)
        shared = Evaluation(self.engine, batches)

        def logits(number: int, architecture: Architecture) -> Tensor:
            if not steps(architecture):
                return self.run(batches[number], architecture)
            return shared.logits(number, architecture)

        return logits

    def forward_mixed(self, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """Logits with all operations at every edge, weighted: one vector of five weights per edge, for all cells.

        One-hot weights give the path's logits, up to rounding, where batch normalisation is not affine (the default).
        """
        return self._through(x, lambda cell, x: cell.forward_mixed(x, weights))

    def forward_gated(self, x: Tensor, architecture: Architecture, gates: Sequence[Tensor]) -> Tensor:
        """Logits of one path, the result of each edge's operation times its gate: one number per edge."""
        return self._through(x, lambda cell, x: cell(x, architecture, gates))

    def forward_shifted(
        self, x: Tensor, architecture: Architecture, gates: Sequence[Tensor], shifts: Sequence[Tensor]
    ) -> Tensor:
        """The same, and one number per edge added to the edge's result."""
        return self._through(x, lambda cell, x: cell.forward_shifted(x, architecture, gates, shifts))

    @contextmanager
    def twice_differentiable(self) -> Iterator[None]:
        """Context without `Engine`, whose gradients cannot be differentiated again."""
        before, self.swift = self.swift, False
        try:
            yield
        finally:
            self.swift = before

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = Engine(self)
        return self._engine

    def __getstate__(self) -> dict[str, Any]:
        # A copy creates its own engine, over its own weights.
        return {**self.__dict__, "_engine": None}


class StandaloneNetwork(Network):
    """One architecture as a network of its own, affine batch normalisation with running statistics."""

    def __init__(self, architecture: Architecture, settings: NetworkSettings) -> None:
        self.architecture = architecture
        own = [(edge, architecture[edge]) for edge in range(len(EDGES)) if architecture[edge] in KERNELS]
        super().__init__(settings, own, lambda place: (True, True))

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x, self.architecture)

    def block_features(self, x: Tensor) -> list[Tensor]:
        """The output of the stem, and of each cell and reduction."""
        features = [self.stem_norm(self.stem(laid_out(x)))]
        for block in self.blocks:
            features.append(block(features[-1], self.architecture) if isinstance(block, Cell) else block(features[-1]))
        return features
