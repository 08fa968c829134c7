"""The training of one supernet: its state, and the default step. The loop is `stages/train.py`.

Knows paths only as tuples, and how gradients of several paths become one update; the method chooses
the paths.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from harness.components.clustering import Clustering, one_cluster
from harness.components.method import Part
from harness.components.sampler import PathSource
from harness.components.schedule import Factor
from harness.components.space import Architecture, Space
from harness.data.loader import Batch
from harness.errors import InvalidConfiguration
from harness.training.observers.similarity import GradientSimilarity
from harness.training.observers.spread import Spread
from harness.training.precision import autocast
from harness.training.profiling import phase
from harness.training.separation import SeparatedMomentum

WEIGHTINGS = {
    "algorithm-2": "gradients times their learning rates go into the momentum, weight decay with them",
    "loss": "losses times their decay factors, the learning rate and weight decay constant (released code)",
}


@dataclass
class SupernetTraining:
    """One supernet in training. Methods read this, and may replace `descend` by their own steps."""

    space: Space
    part: Part
    network: torch.nn.Module
    momentum: SeparatedMomentum
    clustering: Clustering
    source: PathSource
    factor: Factor
    factor_depends_on_path: bool
    rng: random.Random
    """Draws the paths."""
    total_steps: int
    first_step: int = 1
    """The value of t at the first step: 1 in the paper's algorithms, 0 in the released code."""
    weighting: str = "algorithm-2"
    label_smoothing: float = 0.0
    precision: str = "float32"
    similarity: GradientSimilarity | None = None
    """Optional recorder of gradient similarity between the paths of a step."""
    memory: dict[str, Any] = field(default_factory=dict)
    """State that a method with its own steps carries from step to step: plain types and tensors."""

    def __post_init__(self) -> None:
        if self.weighting not in WEIGHTINGS:
            raise InvalidConfiguration(f"train.weighting is {self.weighting!r}; allowed: {', '.join(WEIGHTINGS)}")
        if self.first_step not in (0, 1):
            raise InvalidConfiguration(f"train.first_step must be 0 or 1, not {self.first_step}")

    @property
    def chance(self) -> random.Random:
        """The name of `rng` until version 0.1. Kept because a changed text would change a user method's fingerprint."""
        warnings.warn("training.chance was renamed to training.rng", FutureWarning, stacklevel=2)
        return self.rng

    def rate_factors(self, paths: Sequence[Architecture], step: int) -> list[float]:
        """Each path's learning rate at that step (counted from 0), relative to the initial one (Eq. 3)."""
        progress = (step + self.first_step) / self.total_steps
        return [self.factor(path, progress) for path in paths]

    def descend(self, batch: Batch, paths: Sequence[Architecture], step: int) -> Tensor:
        """Train all paths on the batch and update once; returns their losses.

        One path: its own learning rate. Several paths: their gradients are summed. If the schedule
        depends on the path, each gradient is weighted by its path's rate (Algorithm 2). Since the initial
        rate η⁰ is constant, "g·η_k into the momentum, W ← W − μ" equals weights η_k/η⁰ with a constant
        rate η⁰; in this form, the norm is clipped on the scale of gradients. Weight decay is then
        weighted, too: its weight is the mean of the paths' weights.
        """
        settings = self.momentum.settings
        cluster = one_cluster(self.clustering, paths)
        factors = self.rate_factors(paths, step)
        weighted = len(paths) > 1 and self.factor_depends_on_path
        similarity = self.similarity if self.similarity and step >= self.similarity.first_step else None
        if not self.network.training:  # train() visits every module, hundreds of them
            self.network.train()
        with phase("update"):
            self.momentum.clear_gradients()
        if similarity is not None:
            similarity.begin()
        losses = []
        for path, factor in zip(paths, factors, strict=True):
            loss = self.loss(batch, path)
            losses.append(loss.detach())
            if loss.requires_grad:  # a path that is zero throughout may train nothing
                loss = loss * factor if weighted else loss
                with phase("backward"):
                    self.momentum.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            if similarity is not None:
                similarity.path_done()
        if similarity is not None:
            similarity.end()
        with phase("update"):
            if not weighted:
                self.momentum.step(cluster, settings.learning_rate * factors[0])
            elif self.weighting == "loss":
                self.momentum.step(cluster, settings.learning_rate)
            else:
                mean = sum(factors) / len(factors)
                self.momentum.step(cluster, settings.learning_rate, settings.weight_decay * mean)
        return torch.stack(losses)

    def loss(self, batch: Batch, path: Architecture) -> Tensor:
        """The training loss of one path."""
        with phase("forward"), autocast(self.precision, batch.images.device):
            logits = self.network(batch.images, path)
            return functional.cross_entropy(logits, batch.labels, label_smoothing=self.label_smoothing)

    def begin_epoch(self) -> None:
        """Reset the measurements of the epoch."""
        for meter in self._meters().values():
            meter.clear()

    def measured(self) -> dict[str, float]:
        """The measurements of the epoch so far, by name."""
        return {name: value for meter in self._meters().values() for name, value in meter.measured().items()}

    def release(self) -> None:
        """After training: free the memory that only training needs (gradients, momenta, measurements)."""
        self.momentum.release()
        self.similarity = None

    def observers_bytes(self) -> int:
        """Memory held only for measurements."""
        return 0 if self.momentum.spread is None else self.momentum.spread.bytes()

    def _meters(self) -> dict[str, Spread | GradientSimilarity]:
        meters = {"spread": self.momentum.spread, "similarity": self.similarity}
        return {name: meter for name, meter in meters.items() if meter is not None}

    def state(self) -> dict[str, Any]:
        """All state that changes: weights, momentum, the sampler's and the method's memory, the rng.

        Gradients are not included: a step begins without any.
        """
        return {
            "network": self.network.state_dict(),
            "momentum": self.momentum.state(),
            "source": self.source.state(),
            "chance": self.rng.getstate(),
            "memory": self.memory,
            "measured": {name: meter.state() for name, meter in self._meters().items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.momentum.restore(state["momentum"])
        self.source.restore(state["source"])
        version, internal, gauss = state["chance"]
        self.rng.setstate((version, tuple(internal), gauss))
        device = next((parameter.device for parameter in self.network.parameters()), torch.device("cpu"))
        self.memory = moved(state["memory"], device)
        for name, meter in self._meters().items():
            meter.restore(state["measured"][name])


def moved(value: Any, device: torch.device) -> Any:
    """The same containers, with the tensors in them on that device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: moved(item, device) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(moved(item, device) for item in value)
    return value
