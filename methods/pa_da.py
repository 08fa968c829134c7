"""PA&DA (Lu et al., 2023): paths and images with large gradients more often, to lower the gradients' variance.

Presets follow the public code, as this text does; the other forms are the defaults, those of runs stored before. τ is
the share of training that was done when the epoch before began (`tau=present`: when this one begins, one epoch ahead
of the public code; the paper says only that τ rises linearly from 0 to 1). An epoch draws

- a choice with P = τ·ĝ/Σĝ + (1 − τ)/n. ĝ is the choice's gradient norm, with one vector of norms for all decisions
  that have the same number of choices. It begins each epoch at 0, and after each step that trains the choice it
  becomes (ĝ + new)/2; new is the sum of the norms of the gradients of the choice's parameters, divided by the
  number of decisions that took it (a choice without any gradient keeps ĝ; with `unreached=halve` new is 0). A choice
  without parameters keeps 0: towards the end it is hardly drawn at all.
- an image with P = τ·e/Σe + (1 − τ)/N, with replacement. e is the norm of softmax − label in the epoch before, as in
  the public code: 0 if the image was not drawn there, and (e + new)/2 for each repeated draw. With `image_norms=last`
  it is the norm when the image was last seen, in whichever epoch.

The loss is not weighted for these frequencies, as in the public code. Nothing is computed only to choose: norms are
those of the training passes. Any method can use the paths alone: `sampler.name=pa-da`.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from harness.components.option import added
from harness.components.registries import METHODS, SAMPLERS
from harness.components.sampler import PathSource, Sampler
from harness.components.space import Architecture, Fixed, Space
from harness.errors import InvalidConfiguration, require

from .spos import SPOS

if TYPE_CHECKING:
    import torch

    from harness.data.loader import Batch
    from harness.training.supernet import SupernetTraining

FARTHEST = math.sqrt(2)
"""The greatest norm of softmax − label: that of an image that was never seen."""
TAUS = ("before", "present")
NORMS = ("epoch", "last")
UNREACHED = ("keep", "halve")


def share_of(training: SupernetTraining, epoch: int, tau: str) -> float:
    """τ of an epoch, counted from 0."""
    begun = max(0, epoch - 1) if tau == "before" else epoch
    return begun * training.steps_per_epoch / training.total_steps


@SAMPLERS.register("pa-da")
@dataclass(frozen=True)
class PathImportance(Sampler):
    """Choices by the norms of their gradients in the epoch before (PA&DA's paths)."""

    version: ClassVar[int] = 2
    """1 had τ one epoch ahead, and let a choice without any gradient halve its norm."""

    tau: str = added("before")
    """The epoch whose beginning gives τ: the one before, as in the public code, or the present one."""

    unreached: str = added("keep")
    """What a drawn choice without any gradient does to its norm: `keep` it, as in the public code, or `halve` it."""

    def __post_init__(self) -> None:
        for name, allowed in (("tau", TAUS), ("unreached", UNREACHED)):
            value = getattr(self, name)
            require(value in allowed, f"sampler.{name} is {value!r}; allowed: {', '.join(allowed)}")

    def bind(self, space: Space, fixed: Fixed) -> PathSource:
        if type(space).operation_parameters is Space.operation_parameters:
            raise InvalidConfiguration(
                f"PA&DA measures the gradients of single operations, and {space.name} does not say which parameters "
                "belong to one: its class needs operation_parameters(network), or its choices share their parameters"
            )
        return ByGradient(space, fixed, self.tau, self.unreached)


class ByGradient(PathSource):
    """Gradient norms of this epoch and probabilities from those of the last one, by the number of choices."""

    def __init__(self, space: Space, fixed: Fixed, tau: str, unreached: str) -> None:
        self.space, self.fixed, self.tau, self.unreached = space, fixed, tau, unreached
        self.norms: dict[str, list[float]] = {}
        self.probabilities: dict[str, list[float]] = {}
        self.measured: list[int] = []
        """The decisions whose choices have parameters; all others stay uniform."""

    def draw(self, rng: random.Random) -> Architecture:
        path = list(self.space.sample(rng, self.fixed))
        for decision in self.measured if self.probabilities else ():
            if decision not in self.fixed:
                chances = self.probabilities[str(self.space.choices[decision])]
                [path[decision]] = rng.choices(range(len(chances)), chances)
        return tuple(path)

    def learn(self, training: SupernetTraining, paths: Sequence[Architecture], losses: torch.Tensor) -> None:
        owned = self.space.operation_parameters(training.network)
        self.measured = sorted({decision for decision, _ in owned})
        self.norms = self.norms or {str(n): [0.0] * n for n in {self.space.choices[d] for d in self.measured}}
        for (kind, choice), norm in new_norms(self.space, owned, paths).items():
            if norm or self.unreached == "halve":  # no gradient at all: no edge that took the choice reaches the output
                self.norms[str(kind)][choice] = (self.norms[str(kind)][choice] + norm) / 2
        done = training.step + 1
        if done % training.steps_per_epoch == 0:
            share = share_of(training, done // training.steps_per_epoch, self.tau)
            self.probabilities = {n: mixed(norms, share) for n, norms in self.norms.items()}
            self.norms = {}

    def state(self) -> Any:
        return {"norms": self.norms, "probabilities": self.probabilities, "measured": self.measured}

    def restore(self, state: Any) -> None:
        self.norms = {kind: list(norms) for kind, norms in state["norms"].items()}
        self.probabilities, self.measured = state["probabilities"], state["measured"]


def new_norms(space: Space, owned: Any, paths: Sequence[Architecture]) -> dict[tuple[int, int], float]:
    """By number of choices and choice, the norm of the present gradients of the choices that these paths took."""
    import torch

    taken = {(decision, choice) for path in paths for decision, choice in enumerate(path)} & owned.keys()
    uses = Counter((space.choices[decision], choice) for decision, choice in taken)
    gradients = [
        ((space.choices[decision], choice), parameter.grad)
        for decision, choice in sorted(taken)
        for parameter in owned[decision, choice]
        if parameter.grad is not None
    ]
    found = dict.fromkeys(uses, 0.0)
    if gradients:
        norms = torch.stack(torch._foreach_norm([gradient for _, gradient in gradients])).tolist()
        for (operation, _), norm in zip(gradients, norms, strict=True):
            found[operation] += norm / uses[operation]
    return found


def mixed(norms: Sequence[float], share: float) -> list[float]:
    """Probabilities: that share in proportion to the norms, the rest uniform."""
    total = sum(norms)
    if not total:
        return [1 / len(norms)] * len(norms)
    return [share * norm / total + (1 - share) / len(norms) for norm in norms]


@METHODS.register("pa-da")
@dataclass(frozen=True)
class PADA(SPOS):
    """One path per step; paths and images by importance, from the norms of gradients."""

    ranks_reason: ClassVar[str | None] = None

    tau: str = added("present")
    """The epoch whose beginning gives τ: the present one, or the one before, as in the public code and in presets."""
    image_norms: str = added("last")
    """Which norms of images count: the last one of each image, or those of the epoch before, as in the public code and
    in presets."""
    unreached: str = added("halve")
    """What a drawn choice without any gradient does to its norm: `halve` it, or `keep` it, as in the public code and in
    presets."""

    def __post_init__(self) -> None:
        for name, allowed in (("tau", TAUS), ("image_norms", NORMS), ("unreached", UNREACHED)):
            value = getattr(self, name)
            require(value in allowed, f"method.{name} is {value!r}; allowed: {', '.join(allowed)}")

    def own_sampler(self) -> Sampler:
        return PathImportance(self.tau, self.unreached)

    def train_step(self, training: SupernetTraining, batch: Batch, step: int) -> torch.Tensor:
        import torch
        from torch.nn import functional

        [path] = self.paths(training)
        training.clear_gradients()
        logits = training.logits(batch, path)
        loss = training.loss_of(logits, batch.labels)
        training.backward(loss)
        training.update([path], step)
        answers = logits.detach().float().softmax(1)
        truth = batch.labels if batch.labels.is_floating_point() else functional.one_hot(batch.labels, answers.shape[1])
        errors = training.ranks.gathered(torch.linalg.vector_norm(answers - truth, dim=1))
        training.memory.setdefault("drawn", []).append((training.ranks.gathered(batch.indices), errors))
        return loss.detach().reshape(1)

    def data_order(self, training: SupernetTraining, epoch: int) -> Sequence[int] | None:
        import torch

        if not training.memory.get("drawn"):  # the first epoch: every image once
            return None
        errors = self.errors(training)
        share = share_of(training, epoch, self.tau)
        chances = share * errors / errors.sum().clamp(min=1e-12) + (1 - share) / len(errors)
        generator = torch.Generator().manual_seed(training.rng.getrandbits(63))
        drawn: list[int] = torch.multinomial(chances, len(errors), replacement=True, generator=generator).tolist()
        return drawn

    def errors(self, training: SupernetTraining) -> torch.Tensor:
        """The norms of all images after an epoch, whose draws are then forgotten."""
        import torch

        indices, found = (torch.cat(part).cpu() for part in zip(*training.memory.pop("drawn"), strict=True))
        if self.image_norms == "last":
            known = training.memory.get("errors")
            last = torch.full((training.samples,), FARTHEST) if known is None else known.cpu()
            # An image may come twice in a batch. The later one counts: numpy has an order there, CUDA does not.
            last.numpy()[indices.numpy()] = found.numpy()
            training.memory["errors"] = last
            return last.double()
        errors = [0.0] * training.samples
        for index, new in zip(indices.tolist(), found.tolist(), strict=True):
            errors[index] = (errors[index] + new) / 2 if errors[index] else new
        return torch.tensor(errors, dtype=torch.double)
