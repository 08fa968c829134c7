"""The settings of this space's networks: the section `network` of a configuration. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import InvalidConfiguration

BATCH_NORMS = {
    "tracked": "running statistics; a supernet's mix those of all paths, so it needs calibration (rank.calibration)",
    "batch-statistics": "statistics of the current batch, in training and evaluation",
}
STAGE1_WIDTHS = (24, 32)


@dataclass(frozen=True)
class ReducedNetwork:
    """Networks of the reduced form. Batch normalisation always has a scale and a shift."""

    width_multiplier: float = 1.0
    """Factor on all channels, rounded to multiples of 4; the head is never narrowed."""
    batch_norm: str = "tracked"
    """One of `BATCH_NORMS`; stand-alone networks are always tracked."""
    norm_momentum: float = 0.1
    """Weight of a batch in running statistics (the retraining recipe: 0.01)."""
    norm_epsilon: float = 1e-3
    """Added to the variance, so that nothing is divided by zero."""
    norm_decay: bool = True
    """Whether the supernet's one-dimensional parameters (scales, shifts, biases) have weight decay, too."""
    squeeze: float = 0.0
    """Squeeze-and-excitation in every block: its hidden channels per input channel of the block; 0 for none."""

    def __post_init__(self) -> None:
        if self.batch_norm not in BATCH_NORMS:
            allowed = "; ".join(f"{name!r} ({meaning})" for name, meaning in BATCH_NORMS.items())
            raise InvalidConfiguration(f"network.batch_norm is {self.batch_norm!r}; allowed: {allowed}")
        for name in ("width_multiplier", "norm_epsilon"):
            if not getattr(self, name) > 0:
                raise InvalidConfiguration(f"network.{name} must be above 0, not {getattr(self, name)}")
        if not 0 < self.norm_momentum <= 1:
            raise InvalidConfiguration(f"network.norm_momentum must be in (0, 1], not {self.norm_momentum}")
        if not 0 <= self.squeeze <= 1:
            raise InvalidConfiguration(f"network.squeeze must be from 0 to 1, not {self.squeeze}")


@dataclass(frozen=True)
class MobileNetwork(ReducedNetwork):
    """Networks of the whole space."""

    stage1_width: int = 24
    """Channels of the first stage: 24 in ProxylessNAS's search script, 32 in its released networks.

    The paper does not say which it used. Its searched networks lie nearer to random ones of width 24.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stage1_width not in STAGE1_WIDTHS:
            allowed = " or ".join(map(str, STAGE1_WIDTHS))
            raise InvalidConfiguration(f"network.stage1_width must be {allowed}, not {self.stage1_width}")
