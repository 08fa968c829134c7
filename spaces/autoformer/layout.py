"""The choices of the space as data, and an architecture as the sizes of its network. No torch.

Everything else (counts, networks, text, drawings) is derived from these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from typing import Any

from harness.components.space import Architecture
from harness.errors import InvalidConfiguration

EMBEDDING, DEPTH = 0, 1
"""The decisions about the whole network. Behind them stand the heads and the MLP ratio of each block, in turn."""
WHOLE = 2
"""How many decisions these are."""


@dataclass(frozen=True)
class Transformer:
    """The sizes of one network. They need not be choices of a layout: published networks have others, too."""

    embedding: int
    heads: tuple[int, ...]
    """By block."""
    ratios: tuple[float, ...]
    """By block, the hidden units of the MLP per unit of the embedding."""
    head_size: int = 64

    @property
    def hidden(self) -> tuple[int, ...]:
        """By block, the hidden units of the MLP."""
        return tuple(floor(self.embedding * ratio) for ratio in self.ratios)

    @property
    def queries(self) -> tuple[int, ...]:
        """By block, the width of queries, keys and values together with all heads."""
        return tuple(heads * self.head_size for heads in self.heads)


@dataclass(frozen=True)
class Layout:
    """What an architecture may choose, each in ascending order."""

    embeddings: tuple[int, ...]
    depths: tuple[int, ...]
    heads: tuple[int, ...]
    ratios: tuple[float, ...]
    widest: int
    """The embedding of the supernet: at least the largest choice."""
    head_size: int
    image_size: int
    """Side of the images of the published counts."""
    classes: int
    """Classes of the published counts."""

    @property
    def blocks(self) -> int:
        return self.depths[-1]

    @property
    def choices(self) -> tuple[int, ...]:
        """How many choices each decision has."""
        return (len(self.embeddings), len(self.depths), *(len(self.heads), len(self.ratios)) * self.blocks)

    @property
    def layers(self) -> tuple[tuple[int, ...], ...]:
        """The decisions of each block."""
        return tuple((place, place + 1) for place in range(WHOLE, WHOLE + 2 * self.blocks, 2))

    @property
    def supernet(self) -> Transformer:
        """The sizes of the supernet: those of all choices together."""
        heads, ratios = self.heads[-1:] * self.blocks, self.ratios[-1:] * self.blocks
        return Transformer(self.widest, heads, ratios, self.head_size)

    def transformer(self, architecture: Architecture) -> Transformer:
        """The sizes of an architecture."""
        depth = self.depths[architecture[DEPTH]]
        own = architecture[WHOLE : WHOLE + 2 * depth]
        return Transformer(
            self.embeddings[architecture[EMBEDDING]],
            tuple(self.heads[choice] for choice in own[::2]),
            tuple(self.ratios[choice] for choice in own[1::2]),
            self.head_size,
        )

    def architecture(self, embedding: int, blocks: Sequence[tuple[int, float]]) -> Architecture:
        """The inverse of `transformer`; blocks beyond the depth have the first choices. Raises `ValueError`."""
        own = [choice for heads, ratio in blocks for choice in (self.heads.index(heads), self.ratios.index(ratio))]
        rest = [0] * (2 * (self.blocks - len(blocks)))
        return (self.embeddings.index(embedding), self.depths.index(len(blocks)), *own, *rest)


LAYOUTS = {
    "autoformer": Layout(
        embeddings=(192, 216, 240),
        depths=(12, 13, 14),
        heads=(3, 4),
        ratios=(3.5, 4.0),
        widest=256,
        head_size=64,
        image_size=224,
        classes=1000,
    ),
    "autoformer-reduced": Layout(
        embeddings=(24, 28, 32),
        depths=(3, 4, 5),
        heads=(3, 4),
        ratios=(3.5, 4.0),
        widest=32,
        head_size=8,
        image_size=16,
        classes=10,
    ),
}
"""The released Supernet-tiny, and a small form for machines without GPUs and images of 16 pixels: an eighth as wide."""


def side(settings: Any) -> int:
    """Patches along a side of the image. Raises `InvalidConfiguration` where patches do not fill it."""
    count, rest = divmod(settings.image_size, settings.patch_size)
    if rest or not count:
        raise InvalidConfiguration(
            f"network.patch_size is {settings.patch_size}, which does not divide the images' side of "
            f"{settings.image_size} pixels"
        )
    return int(count)
