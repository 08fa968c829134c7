"""Exact parameters and multiply-adds of architectures, as sums of lookups. No torch, no forward pass.

Counted as parameters: weights of convolutions, scale and shift of batch normalisation, the classifier with its bias.
Counted as multiply-adds ("FLOPs" in mobile papers), for one image: convolutions and classifier, without biases. Batch
normalisation, activations, pooling and additions count nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from harness.components.space import Architecture

from .layout import SKIP, Layer, Operation, Plan, halved, plan


@dataclass(frozen=True)
class Table:
    """One count: what all architectures share, and what each choice of each layer adds."""

    shared: int
    layers: tuple[tuple[int, ...], ...]

    def of(self, architecture: Architecture) -> int:
        return self.shared + sum(own[choice] for own, choice in zip(self.layers, architecture, strict=True))

    def extremes(self) -> tuple[int, Architecture, int, Architecture]:
        """The least count with its architecture and the greatest with its own: layers do not depend on each other."""
        least, most = (tuple(own.index(end(own)) for own in self.layers) for end in (min, max))
        return self.of(least), least, self.of(most), most

    @property
    def supernet(self) -> int:
        """The count of all choices of all layers together."""
        return self.shared + sum(map(sum, self.layers))


@lru_cache(maxsize=128)
def table(layout: str, count: str, settings: Any) -> Table:
    """The table of "parameters" or "flops" of a layout at that size."""
    sizes, block = plan(layout, settings), {"parameters": _block_parameters, "flops": _block_flops}[count]
    whole = {"parameters": _shared_parameters, "flops": _shared_flops}[count](sizes)
    first = block(sizes.first, sizes.first.choices[0], settings.squeeze)
    return Table(whole + first, _by_layer(sizes.layers, block, settings.squeeze))


def squeezed(inputs: int, squeeze: float) -> int:
    """Hidden channels of squeeze-and-excitation in a block with so many input channels; 0 for none."""
    return max(1, round(inputs * squeeze)) if squeeze else 0


def _by_layer(layers: Sequence[Layer], block: Any, squeeze: float) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(block(layer, choice, squeeze) for choice in layer.choices) for layer in layers)


def _block_parameters(layer: Layer, operation: Operation | str, squeeze: float) -> int:
    if isinstance(operation, str):
        assert operation == SKIP
        return 0
    hidden, narrow = layer.inputs * operation.expansion, squeezed(layer.inputs, squeeze)
    expand = layer.inputs * hidden + 2 * hidden if operation.expansion > 1 else 0
    excite = 2 * hidden * narrow + narrow + hidden if narrow else 0
    return expand + operation.kernel**2 * hidden + 2 * hidden + excite + hidden * layer.outputs + 2 * layer.outputs


def _block_flops(layer: Layer, operation: Operation | str, squeeze: float) -> int:
    if isinstance(operation, str):
        return 0
    hidden, narrow = layer.inputs * operation.expansion, squeezed(layer.inputs, squeeze)
    expand = layer.inputs * hidden * layer.size**2 if operation.expansion > 1 else 0
    return expand + 2 * hidden * narrow + (operation.kernel**2 + layer.outputs) * hidden * layer.size_out**2


def _shared_parameters(sizes: Plan) -> int:
    stem = 9 * sizes.image_channels * sizes.stem + 2 * sizes.stem
    head = sizes.last.outputs * sizes.head + 2 * sizes.head
    return stem + head + (sizes.head + 1) * sizes.classes


def _shared_flops(sizes: Plan) -> int:
    stem = 9 * sizes.image_channels * sizes.stem * halved(sizes.image_size, sizes.stem_stride) ** 2
    head = sizes.last.outputs * sizes.head * sizes.last.size_out**2
    return stem + head + sizes.head * sizes.classes
