"""The settings of this space's networks: the section `network` of a configuration. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from harness.components.space import at_least_one
from harness.errors import InvalidConfiguration

POOLINGS = {
    "mean": "the mean over the patches goes into the classifier (the released flag `gp`)",
    "class-token": "the class token goes into the classifier",
}


@dataclass(frozen=True)
class TransformerNetwork:
    """Networks of the whole space: the released recipe."""

    patch_size: int = 16
    """Pixels along a side of a patch; it must divide the side of the images."""
    pooling: str = "mean"
    """One of `POOLINGS`. The class token takes part in attention either way."""
    relative_distance: int = 14
    """Distances between patches, by row and by column, that have relative positions of their own; larger ones share
    the last. 0 for no relative positions."""
    drop_path: float = 0.1
    """How often a sample skips attention or MLP of the last block in training; it rises linearly from 0 over the
    blocks of the supernet."""

    def __post_init__(self) -> None:
        at_least_one(self, ("patch_size",))
        if self.pooling not in POOLINGS:
            allowed = "; ".join(f"{name!r} ({meaning})" for name, meaning in POOLINGS.items())
            raise InvalidConfiguration(f"network.pooling is {self.pooling!r}; allowed: {allowed}")
        if self.relative_distance < 0:
            raise InvalidConfiguration(
                f"network.relative_distance must be at least 1, or 0 for no relative positions, "
                f"not {self.relative_distance}"
            )
        if not 0 <= self.drop_path < 1:
            raise InvalidConfiguration(f"network.drop_path must be from 0 to below 1, not {self.drop_path}")


@dataclass(frozen=True)
class ReducedTransformerNetwork(TransformerNetwork):
    """Networks of the reduced form: 16 patches of an image of 16 pixels."""

    patch_size: int = 4
    """Pixels along a side of a patch; it must divide the side of the images."""
    relative_distance: int = 3
    """As in the whole space. 16 patches are at most 3 rows or columns apart."""
