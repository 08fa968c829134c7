"""The AutoFormer space: vision transformers with a choice of embedding, depth, and heads and MLP ratio of each block.

`autoformer` is the released Supernet-tiny, `autoformer-reduced` a small form of it for images of 16 pixels. The
choices of both are data in `layout.py`. Decisions 0 and 1 are the embedding dimension and the depth of the whole
network; behind them stand the heads and the MLP ratio of each block. Those of blocks beyond the depth do not matter.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from harness.components.registries import SPACES
from harness.components.space import Architecture, Block, Chain, SizedSpace, network_settings
from harness.errors import InvalidConfiguration

from .counts import COUNTS, count
from .layout import DEPTH, EMBEDDING, LAYOUTS, WHOLE, Layout, Transformer
from .settings import ReducedTransformerNetwork, TransformerNetwork

if TYPE_CHECKING:
    import torch

LIKELIER = 2
"""How much likelier embedding and depth mutate than a decision of a block: 0.4 and 0.2 in the released search."""


@cache
def published(name: str, network: TransformerNetwork) -> Any:
    """These settings for images of the published counts: 224×224 and 1000 classes; in the reduced form 16 and 10."""
    layout = LAYOUTS[name]
    return network_settings(network, classes=layout.classes, image_channels=3, image_size=layout.image_size)


class Transformers(SizedSpace):
    """What both forms share."""

    complexity_counts = COUNTS
    embedding = EMBEDDING
    """The decision about the embedding dimension."""

    @property
    def layout(self) -> Layout:
        return LAYOUTS[self.name]

    @cached_property
    def layers(self) -> tuple[tuple[int, ...], ...]:
        return self.layout.layers

    def published(self, network: Any = None) -> Any:
        return published(self.name, network or self.Network())

    def transformer(self, architecture: Architecture) -> Transformer:
        """The sizes of the architecture's network."""
        return self.layout.transformer(self.check(architecture))

    def canonical(self, architecture: Architecture) -> Architecture:
        """With the first choice in all decisions of blocks beyond the depth."""
        used = self._used(self.check(architecture))
        return (*architecture[:used], *(0,) * (len(architecture) - used))

    def _used(self, architecture: Architecture) -> int:
        """How many decisions matter: those before the blocks beyond the depth."""
        return WHOLE + 2 * self.layout.depths[architecture[DEPTH]]

    def mutate(self, architecture: Architecture, rng: random.Random, probability: float) -> Architecture:
        """As AutoFormer does: each decision is drawn anew with that probability, embedding and depth with twice that.

        A decision that is drawn anew may stay as it is. Blocks that a larger depth adds are random.
        """
        changed = list(self.check(architecture))
        before = self._used(architecture)
        for decision in (EMBEDDING, DEPTH):
            if rng.random() < LIKELIER * probability:
                changed[decision] = rng.randrange(self.choices[decision])
        for decision in range(WHOLE, self._used(tuple(changed))):
            if decision >= before or rng.random() < probability:
                changed[decision] = rng.randrange(self.choices[decision])
        return self.canonical(tuple(changed))

    def alter(self, architecture: Architecture, rng: random.Random, probability: float) -> Architecture:
        """The published search has one mutation."""
        return self.mutate(architecture, rng, probability)

    def crossable(self, one: Architecture, other: Architecture) -> bool:
        """As in AutoFormer, only architectures of one depth are crossed."""
        return one[DEPTH] == other[DEPTH]

    def parse(self, text: str) -> Architecture:
        """The embedding dimension, then a word per block with its heads and MLP ratio: `192 3h3.5 4h4 …`."""
        embedding, *words = text.split() or [""]
        layout = self.layout
        try:
            blocks = [(int(heads), float(ratio)) for heads, _, ratio in (word.partition("h") for word in words)]
            return layout.architecture(int(embedding), blocks)
        except ValueError:
            example = self.format((0,) * len(self.choices))
            raise InvalidConfiguration(
                f"{text!r} is not an architecture of {self.name}, which is written as '{example}': "
                f"embedding {_listed(layout.embeddings)}, blocks {_listed(layout.depths)}, "
                f"heads {_listed(layout.heads)}, MLP ratio {_listed(layout.ratios)}"
            ) from None

    def format(self, architecture: Architecture) -> str:
        sizes = self.transformer(architecture)
        blocks = [f"{heads}h{ratio:g}" for heads, ratio in zip(sizes.heads, sizes.ratios, strict=True)]
        return " ".join((str(sizes.embedding), *blocks))

    def wiring(self, architecture: Architecture) -> Chain:
        """The blocks in a row: heads and MLP ratio inside, the embedding dimension above the first."""
        sizes = self.transformer(architecture)
        blocks = [
            Block(f"{heads} heads, ×{ratio:g}", f"{heads * sizes.head_size}", f"{heads} heads", ratio)
            for heads, ratio in zip(sizes.heads, sizes.ratios, strict=True)
        ]
        return Chain((Block("Patches", str(sizes.embedding)), *blocks, Block("Norm, FC", str(self.settings.classes))))

    def complexity(self, architecture: Architecture, count: str = "parameters", settings: Any = None) -> int:
        return self.counted_sizes(self.transformer(architecture), count, settings)

    def counted_sizes(self, sizes: Transformer, name: str = "parameters", settings: Any = None) -> int:
        """The count of a network of any sizes, also of one that the space does not contain."""
        if name not in COUNTS:
            raise InvalidConfiguration(f"complexity {name!r} is unknown; allowed: {self.counts_text()}")
        return count(name, sizes, settings or self.settings)

    def extremes(self, count: str = "parameters") -> tuple[int, Architecture, int, Architecture]:
        """Every choice adds to every count, so the first choices make the smallest network and the last the largest."""
        smallest, largest = (0,) * len(self.choices), tuple(choices - 1 for choices in self.choices)
        return self.complexity(smallest, count), smallest, self.complexity(largest, count), largest

    def parameter_groups(self, network: torch.nn.Module) -> Sequence[Mapping[str, Any]]:
        from .networks import parameter_groups

        return parameter_groups(network)

    def supernet(self, settings: Any) -> torch.nn.Module:
        from .networks import Supernet

        return Supernet(self.layout, settings)

    def standalone(self, architecture: Architecture, settings: Any) -> torch.nn.Module:
        from .networks import StandaloneNetwork

        return StandaloneNetwork(self.transformer(architecture), self.layout, settings)


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values[:-1]) + f" or {values[-1]:g}"


@SPACES.register("autoformer")
class AutoFormer(Transformers):
    """Supernet-tiny of AutoFormer: 12 to 14 blocks of 3 or 4 heads; 10^9 different architectures."""

    name = "autoformer"
    choices = LAYOUTS["autoformer"].choices
    Network = TransformerNetwork


@SPACES.register("autoformer-reduced")
class ReducedAutoFormer(Transformers):
    """3 to 5 blocks of 3 or 4 heads: for images of 16 pixels; 4,032 different architectures."""

    name = "autoformer-reduced"
    choices = LAYOUTS["autoformer-reduced"].choices
    Network = ReducedTransformerNetwork
