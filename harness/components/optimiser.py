"""Interface of an optimiser: how gradients become an update of the weights. No torch at import.

An optimiser component makes `torch.optim.Optimizer` objects: one per cluster of momentum separation, each with
state of its own over the same parameters. The engine does the rest of an update (ranks, scaling in half precision,
clipping, measurements), the same for all of them: see `harness.training.separation`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.components.option import added
from harness.errors import require

if TYPE_CHECKING:
    import torch

Groups = Sequence[Mapping[str, Any]]
"""Parameter groups as torch has them: `params`, and optionally `learning_rate_factor` and `weight_decay_factor`."""


@dataclass(frozen=True)
class Optimiser(ABC):
    """How gradients become an update. The fields here are those that every optimiser has.

    `inactive` says what happens to parameters that a step does not use. "untouched": their gradient is None and
    they stay as they are (Algorithms 1 to 3 update W(α)). "decay": their gradient is zero once a trained path has
    contained them, so weight decay and momentum continue (the released code under its pinned version of torch). A path
    contains its operations that cannot reach the output, too, where the space says which parameters belong to which
    choice (`Space.operation_parameters`).
    """

    learning_rate: float = 0.025
    """The initial learning rate."""
    weight_decay: float = 5e-4
    """The factor of the weights in their decay."""
    clip: float | None = 5.0
    """The norm at which gradients are clipped; None for never."""
    clip_value: float | None = added(None)
    """The largest absolute value of an element of a gradient, clipped before the norm is; None for no limit."""
    inactive: str = "untouched"
    """What happens to parameters that a step does not use: they stay as they are, or decay and momentum continue."""

    def __post_init__(self) -> None:
        require(self.learning_rate > 0, f"optimiser.learning_rate must be above 0, not {self.learning_rate}")
        require(self.weight_decay >= 0, f"optimiser.weight_decay must not be negative, not {self.weight_decay}")
        for name in ("clip", "clip_value"):
            most = getattr(self, name)
            require(most is None or most > 0, f"optimiser.{name} must be above 0, or null for no clipping, not {most}")
        require(
            self.inactive in ("untouched", "decay"),
            f"optimiser.inactive is {self.inactive!r}; allowed: untouched, decay",
        )

    @abstractmethod
    def make(self, groups: Groups) -> torch.optim.Optimizer:
        """A new optimiser of these parameters. Its state is made when a parameter is first updated."""

    def update(
        self, optimiser: torch.optim.Optimizer, active: list[torch.Tensor], gradients: list[torch.Tensor]
    ) -> None:
        """Make the step. Override it where there is a faster way than torch's own step.

        `active` are the parameters that have a gradient, `gradients` these gradients, clipped. Not called in float16,
        where torch's gradient scaler makes the step.
        """
        optimiser.step()

    def momentum_of(self, optimiser: torch.optim.Optimizer, parameter: torch.Tensor) -> torch.Tensor | None:
        """The momentum of a parameter, for `observe.spread`; None where there is none."""
        state = optimiser.state.get(parameter, {})
        buffer: torch.Tensor | None = state.get("momentum_buffer", state.get("exp_avg"))
        return buffer
