"""The supernet's forward and backward pass on a CPU, without modules and with one node in torch's graph.

Computes what `networks.Network.run` computes, up to the order of some sums, for supernets whose batch
normalisation has neither weights nor running statistics. The weights stay in the network's modules.
`logits` works with torch's automatic differentiation like any other function, but only once: second-order
gradients need the plain network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from harness.components.space import Architecture

from . import kernels
from .cell import NODES, POOL, SKIP
from .path import Step, steps

if TYPE_CHECKING:
    from .networks import Network

Weights = dict[str, nn.Parameter | None]
Matrices = dict["Layer", Tensor]
"""Matrices of small convolutions, computed once for many batches; valid only while the weights do not change."""


class Layer:
    """A convolution, and its batch normalisation if it has one.

    Normalisation subtracts a bias with the mean, so no bias is added before it, and its gradient is zero.
    """

    def __init__(self, convolution: nn.Conv2d, normalised: bool = True) -> None:
        self.weights: Weights = convolution._parameters
        self.stride = convolution.stride[0]
        self.normalised = normalised
        self._ways: dict[tuple[int, int], kernels.Convolve] = {}

    def parameters(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.weights.values() if parameter is not None]

    def way(self, x: Tensor) -> kernels.Convolve:
        _, channels, height, width = x.shape
        if (height, width) not in self._ways:
            weight, bias = self.weights["weight"], self.weights["bias"]
            assert weight is not None
            biased = bias is not None and not self.normalised
            found = kernels.way(weight.shape, channels, height, width, self.stride, biased)
            self._ways[height, width] = found
        return self._ways[height, width]

    def forward(self, x: Tensor, matrices: Matrices | None = None, groups: int = 1) -> tuple[Tensor, Any]:
        """The result, and what `backward` needs. `matrices`, if given, is a cache for the layers' matrices."""
        how = self.way(x)
        weight, bias = self.weights["weight"], None if self.normalised else self.weights["bias"]
        assert weight is not None
        if matrices is not None and isinstance(how, kernels.Dense):
            if self not in matrices:
                matrices[self] = how.matrix(weight)
            y, saved = how.applied(x, matrices[self], bias)
        else:
            y, saved = how.forward(x, weight, bias)
        if not self.normalised:
            return y, (x, saved, None)
        y, statistics = kernels.normalise(y, groups)
        return y, (x, saved, statistics)

    def backward(self, gradient: Tensor, record: Any, found: dict[Layer, Any], inner: bool = True) -> Tensor | None:
        """Return the input's gradient; add those of the weights to `found`."""
        x, saved, statistics = record
        if statistics is not None:
            gradient = kernels.normalise_backward(gradient, statistics)
        weight = self.weights["weight"]
        outer, own, of_bias = self.way(x).backward(gradient, x, weight, saved, inner)  # type: ignore[arg-type]
        bias = self.weights["bias"]
        found[self] = own, torch.zeros_like(bias) if of_bias is None and bias is not None else of_bias
        return outer


class CellPath:
    """One cell: its convolutions by name."""

    def __init__(self, layers: dict[str, Layer]) -> None:
        self.layers = layers

    def used(self, path: tuple[Step, ...]) -> list[Layer]:
        return [self.layers[step.convolution] for step in path if step.convolution in self.layers]

    def forward(
        self, x: Tensor, path: tuple[Step, ...], keep: bool, matrices: Matrices | None = None, groups: int = 1
    ) -> tuple[Tensor, Any]:
        nodes: list[Any] = [x] + [None] * (NODES - 1)
        activated: list[Any] = [None] * NODES
        pooled: list[Any] = [None] * NODES
        owned = [False] * NODES
        records: list[Any] = []
        for operation, source, target, name, own in path:
            value = nodes[source]
            record = None
            if operation == POOL:
                if pooled[source] is None:
                    pooled[source] = kernels.pool(value)
                value = pooled[source]
            elif operation != SKIP:
                if activated[source] is None:
                    activated[source] = torch.relu(value)
                value, record = self.layers[name].forward(activated[source], matrices, groups)
                # Where the gradient needs the normalised values themselves, nothing may be added to them.
                own = not keep or record[2][0] is not value
            records.append(record)
            present = nodes[target]
            if present is None:
                nodes[target], owned[target] = value, own
            elif owned[target]:
                present.add_(value)
            else:
                nodes[target] = value.add_(present) if own else present + value
                owned[target] = True
        return nodes[-1], (nodes, activated, records) if keep else None

    def backward(self, gradient: Tensor, path: tuple[Step, ...], saved: Any, found: dict[Layer, Any]) -> Tensor:
        nodes, activated, records = saved
        sums = Sums()
        sums.add("node", NODES - 1, gradient, False)
        open_target = NODES - 1
        for number in reversed(range(len(path))):
            operation, source, target, name, _ = path[number]
            if target != open_target:  # all edges that leave the node are done
                open_target = target
                self._close(target, nodes, activated, sums)
            gradient = sums.values["node", target]
            if operation == SKIP:
                sums.add("node", source, gradient, False)
            elif operation == POOL:
                sums.add("pooled", source, gradient, False)
            else:
                outer = self.layers[name].backward(gradient, records[number], found)
                assert outer is not None
                sums.add("activated", source, outer, True)
        self._close(0, nodes, activated, sums)
        return sums.values["node", 0]

    @staticmethod
    def _close(node: int, nodes: list[Any], activated: list[Any], sums: Sums) -> None:
        """Add the gradients from the node's ReLU and pooling to the node's own."""
        if ("activated", node) in sums.values:
            sums.add("node", node, kernels.relu_backward(sums.values["activated", node], activated[node]), True)
        if ("pooled", node) in sums.values:
            sums.add("node", node, kernels.pool_backward(sums.values["pooled", node], nodes[node]), True)


class Sums:
    """Sums of gradients by place. Tensors that are not shared are added to in place."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, int], Tensor] = {}
        self._owned: dict[tuple[str, int], bool] = {}

    def add(self, kind: str, node: int, value: Tensor, own: bool) -> None:
        place = kind, node
        present = self.values.get(place)
        if present is None:
            self.values[place], self._owned[place] = value, own
        elif self._owned[place]:
            present.add_(value)
        else:
            self.values[place], self._owned[place] = value.add_(present) if own else present + value, True


class ReductionPath:
    """The block between two stages."""

    def __init__(self, first: Layer, second: Layer, shortcut: Layer) -> None:
        self.first, self.second, self.shortcut = first, second, shortcut

    def used(self, path: tuple[Step, ...]) -> list[Layer]:
        return [self.first, self.second, self.shortcut]

    def forward(
        self, x: Tensor, path: tuple[Step, ...], keep: bool, matrices: Matrices | None = None, groups: int = 1
    ) -> tuple[Tensor, Any]:
        active = torch.relu(x)
        inner, first = self.first.forward(active, matrices, groups)
        inner = torch.relu(inner)
        main, second = self.second.forward(inner, matrices, groups)
        other, shortcut = self.shortcut.forward(kernels.halve(x), matrices)
        return other.add_(main), (x, active, inner, first, second, shortcut) if keep else None

    def backward(self, gradient: Tensor, path: tuple[Step, ...], saved: Any, found: dict[Layer, Any]) -> Tensor:
        x, active, inner, first, second, shortcut = saved
        main = self.second.backward(gradient, second, found)
        assert main is not None
        main = self.first.backward(kernels.relu_backward(main, inner), first, found)
        other = self.shortcut.backward(gradient, shortcut, found)
        assert main is not None and other is not None
        return kernels.halve_backward(other, x).add_(kernels.relu_backward(main, active))


class Engine:
    """Runs paths of one supernet."""

    def __init__(self, network: Network) -> None:
        self.stem = Layer(network.stem)
        self.blocks: list[CellPath | ReductionPath] = []
        for block in network.blocks:
            parts: Any = block
            if hasattr(block, "convolutions"):
                names = {name: Layer(one.convolution) for name, one in parts.convolutions.items()}
                self.blocks.append(CellPath(names))
            else:
                first, second = Layer(parts.first.convolution), Layer(parts.second.convolution)
                self.blocks.append(ReductionPath(first, second, Layer(parts.shortcut, normalised=False)))
        self.classifier = Layer(network.classifier, normalised=False)
        self._used: dict[Architecture, list[Layer]] = {}

    def fits(self, x: Tensor, groups: int = 1) -> bool:
        """Whether the engine supports such images. It does not support paths without live edges."""
        weight = self.stem.weights["weight"]
        return (
            x.device.type == "cpu"
            and x.dtype == torch.float32
            and len(x) >= 2 * groups
            and not x.requires_grad
            and type(weight) is nn.Parameter  # a functional call may substitute other tensors
            and weight.dtype == torch.float32
            and not torch.is_autocast_enabled("cpu")
        )

    def logits(self, x: Tensor, architecture: Architecture, groups: int = 1) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        if not torch.is_grad_enabled():
            return self.forward(x, architecture, keep=False, groups=groups)[0]
        weights = [parameter for layer in self.used(architecture) for parameter in layer.parameters()]
        return _Logits.apply(self, x, architecture, groups, *weights)  # type: ignore[no-any-return]

    def used(self, architecture: Architecture) -> list[Layer]:
        """The path's layers, in the order of their weights in `logits`."""
        if architecture not in self._used:
            path = steps(architecture)
            inside = [layer for block in self.blocks for layer in block.used(path)]
            self._used[architecture] = [self.stem, *inside, self.classifier]
        return self._used[architecture]

    def forward(self, x: Tensor, architecture: Architecture, keep: bool, groups: int = 1) -> tuple[Tensor, Any]:
        path = steps(architecture)
        x, stem = self.stem.forward(x, groups=groups)
        saved = []
        for block in self.blocks:
            x, record = block.forward(x, path, keep, groups=groups)
            saved.append(record)
        return self.head(x, (path, stem, saved) if keep else None, groups)

    def head(self, x: Tensor, before: Any = None, groups: int = 1) -> tuple[Tensor, Any]:
        """From the last block's result to the logits."""
        normal, statistics = kernels.normalise(x if before is None else x.clone(), groups)
        active = torch.relu(normal)
        features = active.mean((2, 3))
        weight, bias = self.classifier.weights["weight"], self.classifier.weights["bias"]
        assert weight is not None and bias is not None
        logits = torch.addmm(bias, features, weight.view(len(weight), -1).t())
        return logits, (before, statistics, active, features)

    def backward(self, gradient: Tensor, saved: Any) -> dict[Layer, Any]:
        """The gradients of weight and bias of every layer in use."""
        (path, stem, blocks), statistics, active, features = saved
        del saved
        found: dict[Layer, Any] = {}
        weight = self.classifier.weights["weight"]
        assert weight is not None
        found[self.classifier] = [gradient.t().mm(features).view_as(weight), gradient.sum(0)]
        _, _, height, width = active.shape
        spread = gradient.mm(weight.view(len(weight), -1)).div_(height * width)[:, :, None, None].expand_as(active)
        # An expanded tensor has no memory format of its own, and all later results inherit its format.
        spread = spread.contiguous(memory_format=torch.channels_last)
        gradient = kernels.normalise_backward(kernels.relu_backward(spread, active), statistics)
        for block in reversed(self.blocks):
            gradient = block.backward(gradient, path, blocks.pop(), found)  # and free its tensors
        self.stem.backward(gradient, stem, found, inner=False)
        return found


class _Logits(torch.autograd.Function):
    """The engine as one node of torch's graph."""

    @staticmethod
    def forward(
        context: Any, engine: Engine, x: Tensor, architecture: Architecture, groups: int, *weights: Tensor
    ) -> Tensor:
        logits, context.saved = engine.forward(x, architecture, keep=True, groups=groups)
        context.engine, context.architecture = engine, architecture
        context.weights = weights
        context.versions = [weight._version for weight in weights]
        return logits

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if context.versions != [weight._version for weight in context.weights]:
            raise RuntimeError("the supernet's weights were changed in place between a forward pass and its gradient")
        if context.saved is None:
            raise RuntimeError("the gradient of a path was requested twice; set the supernet's swift = False for it")
        engine: Engine = context.engine
        saved, context.saved = context.saved, None
        found = engine.backward(gradient, saved)
        gradients = []
        for layer in engine.used(context.architecture):
            held = zip(found[layer], layer.weights.values(), strict=True)
            gradients += [gradient for gradient, weight in held if weight is not None]
        return None, None, None, None, *gradients
