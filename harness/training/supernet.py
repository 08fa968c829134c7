"""The training of one supernet: its state, and the default step. The loop is `stages/train.py`.

Knows paths only as tuples, and how gradients of several paths become one update; the method chooses the paths.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from harness.components.clustering import Clustering, one_cluster
from harness.components.method import Part
from harness.components.sampler import PathSource, Within, draw_together, informed, learner
from harness.components.schedule import Factor
from harness.components.space import Architecture, Space
from harness.components.supernet import Gated, Mixture, Shifted, offered
from harness.data.loader import Batch, Loader
from harness.data.loading import EvaluationBatches
from harness.errors import InvalidConfiguration
from harness.training.contained import without_gradient
from harness.training.cost import Sampling
from harness.training.first_step import check_path, check_paths, is_discrete
from harness.training.observers.similarity import GradientSimilarity
from harness.training.observers.spread import Spread
from harness.training.parts import WHOLE, Division
from harness.training.precision import autocast
from harness.training.profiling import phase
from harness.training.ranks import Ranks
from harness.training.separation import SeparatedMomentum, moved

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
    steps_per_epoch: int = 1
    samples: int = 0
    """How many training images there are."""
    classes: int = 0
    """How many classes they have."""
    first_step: int = 1
    """The value of t at the first step: 1 in the paper's algorithms, 0 in the released code."""
    weighting: str = "algorithm-2"
    label_smoothing: float = 0.0
    precision: str = "float32"
    similarity: GradientSimilarity | None = None
    """Optional recorder of gradient similarity between the paths of a step."""
    memory: dict[str, Any] = field(default_factory=dict)
    """State that a method with its own steps carries from step to step: plain types and tensors."""
    modules: dict[str, torch.nn.Module | torch.optim.Optimizer] = field(default_factory=dict)
    """Modules and optimisers of the method's own, made in `Method.begin`."""
    make_validation: Callable[[], Loader] | None = None
    make_unaugmented: Callable[[], Loader] | None = None
    make_held_out: Callable[[], EvaluationBatches] | None = None
    left_out: tuple[int, ...] = ()
    """The numbers of the training images that are set aside for the sampler."""
    number: int = 0
    """The number of this supernet among all that the trial has had: part of the names of its seeds."""
    start: int = 0
    """The step at which it begins: above 0 for a supernet that came from another one's split."""
    restarted: bool = False
    """Whether it began there with initial weights, and its schedule with it (`Method.restarts`)."""
    step: int = 0
    """The present step, counted from 0."""
    division: Division = WHOLE
    batch: Batch | None = None
    """The batch of the present step: this rank's part of it."""
    sampled: Sampling = field(default_factory=Sampling)
    """What the choice of paths and data has cost since the last step."""
    trained: list[Architecture] = field(default_factory=list)
    """The paths whose weights the present step has updated."""
    checking: bool | None = None
    """Whether the present step is the first one, also after a resume: then its paths are checked. None before it."""

    def __post_init__(self) -> None:
        self.source = informed(self.source, self)
        if self.part.allowed:
            self.source = Within(self.source, self.part.__contains__)
        self._learn = learner(self.source)
        if self.weighting not in WEIGHTINGS:
            raise InvalidConfiguration(f"train.weighting is {self.weighting!r}; allowed: {', '.join(WEIGHTINGS)}")
        if self.first_step not in (0, 1):
            raise InvalidConfiguration(f"train.first_step must be 0 or 1, not {self.first_step}")

    @property
    def ranks(self) -> Ranks:
        """The processes that train this supernet together."""
        return self.momentum.ranks

    def weight(self, batch: Batch) -> float:
        """The share of a batch's images that this rank has: means of parts, times weights, add up to the batch's."""
        return self.division.weight(batch, self.batch)

    def rate_factors(self, paths: Sequence[Architecture], step: int) -> list[float]:
        """Each path's learning rate at that step (counted from 0), relative to the initial one (Eq. 3)."""
        begun = self.start if self.restarted else 0
        progress = (step - begun + self.first_step) / (self.total_steps - begun)
        return [self.factor(path, progress) for path in paths]

    @property
    def device(self) -> torch.device:
        return next((parameter.device for parameter in self.network.parameters()), torch.device("cpu"))

    @cached_property
    def validation(self) -> Loader:
        """Batches of the validation images: `training.validation.batch(step)`. The ranking uses these images, too."""
        if self.make_validation is None:
            raise InvalidConfiguration("this training was made without validation images")
        return self.make_validation()

    @cached_property
    def unaugmented(self) -> Loader:
        """Batches of the training images without augmentation, in an order of their own: for measurements."""
        if self.make_unaugmented is None:
            raise InvalidConfiguration("this training was made without training images")
        return self.make_unaugmented()

    @cached_property
    def held_out(self) -> EvaluationBatches:
        """Batches (images, labels) of the training images that are set aside for the sampler, without augmentation."""
        if self.make_held_out is None:
            raise InvalidConfiguration("this training was made without held-out images: see Sampler.held_out")
        return self.make_held_out()

    def draw(self, count: int = 1) -> list[Architecture]:
        """Paths of one cluster from the sampler: the first decides which cluster."""
        return draw_together(self.source, self.clustering, self.rng, count)

    def sampling(self, passes: int = 0, images: int = 0) -> AbstractContextManager[None]:
        """Context for choosing paths or data: its time, and the forward passes over so many images that it makes only
        to choose, count as the cost of sampling."""
        return self.sampled.counting(self.device, passes, images)

    def scales(self, factors: Sequence[float]) -> list[float]:
        """What the losses of a step's paths are multiplied by, for `rate_factors` of them: 1, or the factors if a step
        trains several paths and the schedule depends on the path (Algorithm 2)."""
        return list(factors) if len(factors) > 1 and self.factor_depends_on_path else [1.0] * len(factors)

    def descend(
        self,
        batch: Batch,
        paths: Sequence[Architecture],
        step: int,
        target: Tensor | None = None,
        weights: Sequence[float] | None = None,
    ) -> Tensor:
        """Train all paths on the batch and update once; returns their losses.

        One path: its own learning rate. Several paths: their gradients are summed. If the schedule depends on the
        path, each gradient is weighted by its path's rate (Algorithm 2). Since the initial rate η⁰ is constant, "g·η_k
        into the momentum, W ← W − μ" equals weights η_k/η⁰ with a constant rate η⁰; so the norm is clipped on the
        scale of gradients. Weight decay is then weighted, too: its weight is the mean of the paths' weights.

        `weights` are those of the losses in their sum, 1 each by default; the losses are returned without them.
        """
        if self.checking:
            check_paths(self.space, self.part, paths)
        factors = self.rate_factors(paths, step)
        scales = self.scales(factors)
        if weights is not None:
            scales = [scale * weight for scale, weight in zip(scales, weights, strict=True)]
        similarity = self.similarity if self.similarity and step >= self.similarity.first_step else None
        one_cluster(self.clustering, paths)  # refused before anything changes
        self.clear_gradients()
        if similarity is not None:
            similarity.begin(paths)
        losses, summed = list[Tensor](), similarity is None  # or gradients are looked at path by path
        for path, scale in zip(paths, scales, strict=True):
            loss = self.loss(batch, path, target)
            losses.append(loss.detach())
            last = summed and len(losses) == len(paths)
            with self.ranks.summing(self.momentum.parameters) if last else nullcontext():
                self.backward(loss if scale == 1 else loss * scale, batch=batch)
            if similarity is not None:
                similarity.path_done()
        if similarity is not None:
            similarity.end()
        self.update(paths, step, factors, whole=summed)
        return torch.stack(losses)

    def logits(self, batch: Batch, path: Architecture) -> Tensor:
        """The network's answer of one path."""
        self._check(path)
        with phase("forward"), autocast(self.precision, batch.images.device):
            logits: Tensor = self.network(batch.images, path)
            return logits

    def loss(self, batch: Batch, path: Architecture, target: Tensor | None = None) -> Tensor:
        """The training loss of one path: cross-entropy with the labels, or with another target.

        A target is a class per image, or a row of probabilities per image (as a teacher gives them).
        """
        self._check(path)
        with phase("forward"), autocast(self.precision, batch.images.device):
            logits = self.network(batch.images, path)
            return self.loss_of(logits, batch.labels if target is None else target)

    def loss_of(self, logits: Tensor, target: Tensor) -> Tensor:
        """The training loss of logits that are at hand."""
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # half precision is too coarse here
        return functional.cross_entropy(logits, target, label_smoothing=self.label_smoothing)

    def mixed_loss(
        self, batch: Batch, weights: Sequence[Tensor], parameters: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """The training loss of the mixture of all choices; `weights` as for `Mixture.forward_mixed`.

        `parameters` are others than the network's own, by their names there.
        """
        network = offered(self.network, Mixture, "a mixture of all choices")
        with phase("forward"), autocast(self.precision, batch.images.device):
            if parameters is None:
                logits = network.forward_mixed(batch.images, weights)
            else:
                others = {f"network.{name}": value for name, value in parameters.items()}
                logits = torch.func.functional_call(_Mixed(self.network), others, (batch.images, weights))
            return self.loss_of(logits, batch.labels)

    def gated_loss(
        self, batch: Batch, path: Architecture, gates: Sequence[Tensor], shifts: Sequence[Tensor] | None = None
    ) -> Tensor:
        """The training loss of one path whose choices are weighted; `gates` as for `Gated.forward_gated`, `shifts` as
        for `Shifted.forward_shifted`."""
        self._check(path)
        with phase("forward"), autocast(self.precision, batch.images.device):
            if shifts is None:
                logits = offered(self.network, Gated, "a path with weighted choices").forward_gated(
                    batch.images, path, gates
                )
            else:
                logits = offered(self.network, Shifted, "a path with shifted choices").forward_shifted(
                    batch.images, path, gates, shifts
                )
            return self.loss_of(logits, batch.labels)

    def clear_gradients(self) -> None:
        """Begin a step: no gradients, and the network in training mode."""
        if not self.network.training:  # train() visits every module, hundreds of them
            self.network.train()
        with phase("update"):
            self.momentum.clear_gradients()

    def backward(self, loss: Tensor, inputs: Sequence[Tensor] | None = None, batch: Batch | None = None) -> None:
        """Add the gradients of a loss: to all parameters, or to `inputs` alone.

        An update must follow before the gradients of another loss are due. The loss is a mean over the images of
        `batch`, by default that of the step: with several ranks it is weighted by their share of the whole batch.
        """
        batch = self.batch if batch is None else batch
        if batch is not None and (weight := self.weight(batch)) != 1:
            loss = loss * weight
        if loss.requires_grad:  # a path that is zero throughout may train nothing
            with phase("backward"):
                scaled = self.momentum.scaler.scale(loss)
                one = _one(scaled.shape, scaled.dtype, scaled.device)
                scaled.backward(one, inputs=inputs)  # type: ignore[no-untyped-call]

    def update(
        self, paths: Sequence[Architecture], step: int, factors: Sequence[float] | None = None, *, whole: bool = False
    ) -> None:
        """Update the weights and the state of the paths' cluster, at the rates that the schedule gives these paths.

        `whole` says that the gradients are those of the whole batch: they are not summed over the ranks again.
        """
        if self.checking:
            check_paths(self.space, self.part, paths)
        settings = self.momentum.settings
        cluster = one_cluster(self.clustering, paths)
        factors = self.rate_factors(paths, step) if factors is None else factors
        self.trained += self.momentum.observed(paths)
        with phase("update"):
            if settings.inactive == "decay":
                self.momentum.touch(without_gradient(self.space, self.network, self.momentum.parameters, paths))
            if len(paths) == 1 or not self.factor_depends_on_path:
                self.momentum.step(cluster, settings.learning_rate * factors[0], whole=whole)
            elif self.weighting == "loss":
                self.momentum.step(cluster, settings.learning_rate, whole=whole)
            else:
                mean = sum(factors) / len(factors)
                self.momentum.step(cluster, settings.learning_rate, settings.weight_decay * mean, whole=whole)

    def update_mixture(self, step: int) -> None:
        """Update the weights at the schedule's rate, after a step that has trained a mixture and no single path."""
        if self.factor_depends_on_path or self.clustering.count > 1:
            raise InvalidConfiguration("a mixture of all choices has no path: no rate and no momentum of its own")
        with phase("update"):
            self.momentum.step(0, self.momentum.settings.learning_rate * self.rate_factors([()], step)[0])

    def update_own(self, name: str, clip: float | None = None, clip_value: float | None = None) -> None:
        """The same for an optimiser of the method's own, by its name in `modules`; its gradients are then cleared."""
        optimiser = self.modules[name]
        if not isinstance(optimiser, torch.optim.Optimizer):
            raise InvalidConfiguration(f"training.modules[{name!r}] is a {type(optimiser).__name__}, not an optimiser")
        parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
        with phase("update"):
            self.momentum.apply(optimiser, parameters, clip, clip_value)
            for parameter in parameters:
                parameter.grad = None

    def begin_step(self, step: int, batch: Batch | None = None) -> None:
        self.step, self.batch, self.checking = step, batch, self.checking is None
        self.trained.clear()

    def end_step(self, losses: Tensor) -> None:
        """Let the sampler learn from the step. Its gradients are still there."""
        if self._learn is not None:
            self.ranks.settle()
            with self.sampling():
                self._learn(self, list(self.trained), losses)

    def _check(self, path: Any) -> None:
        if self.checking and is_discrete(path):
            check_path(self.space, path)

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
        """All state that changes: weights, momentum, the sampler's and the method's memory and modules, the rng.

        Gradients are not included: a step begins without any.
        """
        return {
            "network": self.network.state_dict(),
            "momentum": self.momentum.state(),
            "source": self.source.state(),
            "chance": self.rng.getstate(),
            "memory": self.memory,
            **({"modules": self.modules_state()} if self.modules else {}),
            "measured": {name: meter.state() for name, meter in self._meters().items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.momentum.restore(state["momentum"])
        self.source.restore(state["source"])
        version, internal, gauss = state["chance"]
        self.rng.setstate((version, tuple(internal), gauss))
        self.memory = moved(state["memory"], self.device)
        self.restore_modules(state.get("modules", {}))
        for name, meter in self._meters().items():
            meter.restore(state["measured"][name])

    def modules_state(self) -> dict[str, Any]:
        return {name: own.state_dict() for name, own in self.modules.items()}

    def restore_modules(self, state: dict[str, Any]) -> None:
        for name, own in self.modules.items():
            own.load_state_dict(copy.deepcopy(state[name]))  # optimisers keep the tensors that they are given


class _Mixed(torch.nn.Module):
    """The mixture as the forward of a module: only modules can be called with other parameters."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor, weights: Sequence[Tensor]) -> Tensor:
        return self.network.forward_mixed(images, weights)  # type: ignore[operator, no-any-return]


@cache
def _one(shape: torch.Size, kind: torch.dtype, device: torch.device) -> Tensor:
    """The gradient of a loss with respect to itself, made once: a launch less per path."""
    return torch.ones(shape, dtype=kind, device=device)
