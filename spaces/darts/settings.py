"""The settings of this space's networks: the section `network` of a configuration. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from harness.components.space import Network
from harness.errors import InvalidConfiguration

BATCH_NORMS = {
    "batch-statistics": "no affine parameters, statistics of the current batch, in training and evaluation",
    "running": "no affine parameters, running statistics; those of a supernet mix all paths (rank.calibration)",
    "tracked": "affine with running statistics, as in stand-alone networks",
}
INPUTS = {
    "two": "the two inputs of each node that the path has",
    "all": "all 14 edges of each cell, in training steps only",
}
LEAST_DEPTH = 3


@dataclass(frozen=True)
class CellNetwork(Network):
    """`width` channels in the first cells, `depth` cells, two of which halve the image and double the channels."""

    width: int = 16
    """Channels per node of the first cells; the stem has three times as many."""
    depth: int = 8
    """Cells, two of them reduction cells: those after one and two thirds."""
    batch_norm: str = "batch-statistics"
    """One of `BATCH_NORMS`; stand-alone networks are always tracked."""
    inputs: str = "two"
    """The edges that the supernet's training steps run: `two` per node, or `all`. Evaluation always takes two."""
    auxiliary: bool = False
    """Whether stand-alone networks have an auxiliary head after two thirds of the cells (`retrain.auxiliary`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, known in (("batch_norm", BATCH_NORMS), ("inputs", INPUTS)):
            if (value := getattr(self, name)) not in known:
                allowed = "; ".join(f"{one!r} ({meaning})" for one, meaning in known.items())
                raise InvalidConfiguration(f"network.{name} is {value!r}; allowed: {allowed}")
        if self.depth < LEAST_DEPTH:
            raise InvalidConfiguration(
                f"network.depth must be at least {LEAST_DEPTH}, one normal and two reduction cells, not {self.depth}"
            )
