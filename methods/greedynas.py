"""GreedyNAS (You et al., 2020): only paths that are promising are trained.

Of `candidates` paths the `kept` ones with the least loss on held-out training images are trained, one per step; then
the next candidates are compared. Every candidate enters a pool with its loss; the pool keeps the best. With a
probability ε that rises linearly from 0 to `exploitation` a candidate comes from the pool, else from the whole space.

The held-out images are set aside from the training images: no step trains on them, and the ranking never sees them.
They are 1,000, or a tenth of the training images where these are few. The comparisons are counted as cost of sampling.
Nothing is published for NAS-Bench-201. The early stop by the pool's changes is left out, so that all methods have the
passes that their preset says. Any method can use these paths: `sampler.name=greedy`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.components.registries import METHODS, SAMPLERS
from harness.components.sampler import PathSource, Sampler
from harness.components.space import Architecture, Fixed, Space
from harness.errors import require

from .spos import SPOS

if TYPE_CHECKING:
    from harness.training.supernet import SupernetTraining


@dataclass(frozen=True)
class Filtering:
    """The options of path filtering, those of the method and of the sampler."""

    candidates: int = 10
    """m: how many paths are compared."""
    kept: int = 5
    """k: how many of them are trained."""
    images: int = 1000
    """How many training images are held out to compare them; at most a tenth of the training images."""
    pool: int = 1000
    """How many of the best candidates the pool keeps."""
    exploitation: float = 0.8
    """ε at the end of training: the probability with which a candidate comes from the pool."""

    def __post_init__(self) -> None:
        of = "sampler" if isinstance(self, Sampler) else "method"
        for name in ("candidates", "kept", "images", "pool"):
            require(getattr(self, name) >= 1, f"{of}.{name} must be at least 1, not {getattr(self, name)}")
        require(
            self.kept <= self.candidates,
            f"{of}.kept must be at most {of}.candidates, which is {self.candidates}, not {self.kept}",
        )
        require(0 <= self.exploitation <= 1, f"{of}.exploitation must be in [0, 1], not {self.exploitation}")


@SAMPLERS.register("greedy")
@dataclass(frozen=True)
class Greedy(Filtering, Sampler):
    """The best of several candidates by their losses on held-out training images (GreedyNAS's paths)."""

    def held_out(self) -> int:
        return self.images

    def bind(self, space: Space, fixed: Fixed) -> PathSource:
        return Filtered(space, fixed, self)


class Filtered(PathSource):
    """The candidate pool, and the paths that wait to be trained."""

    def __init__(self, space: Space, fixed: Fixed, settings: Filtering) -> None:
        self.space, self.fixed, self.settings = space, fixed, settings
        self.waiting: list[Architecture] = []
        self.pool: dict[Architecture, float] = {}
        """Losses by path, the least first."""

    def draw(self, rng: random.Random, training: SupernetTraining) -> Architecture:  # type: ignore[override]
        if not self.waiting:
            candidates = self.candidates(rng, training.step / training.total_steps)
            ranked = sorted(zip(held_out_losses(training, candidates), candidates, strict=True))
            self.waiting = [path for _, path in ranked[: self.settings.kept]]
            self.pool |= {path: loss for loss, path in ranked}
            self.pool = dict(sorted(self.pool.items(), key=lambda item: (item[1], item[0]))[: self.settings.pool])
        return self.waiting.pop(0)

    def candidates(self, rng: random.Random, progress: float) -> list[Architecture]:
        """Different paths, as far as there are any, from the pool or from the whole space."""
        known, found = list(self.pool), dict[Architecture, None]()
        for _ in range(10 * self.settings.candidates):
            if known and rng.random() < self.settings.exploitation * progress:
                found[rng.choice(known)] = None
            else:
                found[self.space.sample(rng, self.fixed)] = None
            if len(found) == self.settings.candidates:
                break
        return list(found)

    def state(self) -> Any:
        return {"waiting": self.waiting, "pool": list(self.pool.items())}

    def restore(self, state: Any) -> None:
        self.waiting = [tuple(path) for path in state["waiting"]]
        self.pool = {tuple(path): loss for path, loss in state["pool"]}


def held_out_losses(training: SupernetTraining, paths: list[Architecture]) -> list[float]:
    """The mean loss of each path on the held-out images, with the present weights.

    Running statistics of batch normalisation fit no single path: where a supernet tracks them, each path first gets
    those of the held-out images. That is a second pass.
    """
    import torch
    from torch.nn import functional

    from harness.training.calibration import calibrated
    from harness.training.parts import undivided
    from harness.training.stages.rank import evaluation

    batches, network, training_mode = training.held_out, training.network, training.network.training
    tracked = any(getattr(module, "running_mean", None) is not None for module in network.modules())
    images = sum(map(len, batches.labels))
    times = len(paths) * (2 if tracked else 1)
    sums = []
    with training.sampling(passes=times * len(batches), images=times * images), torch.no_grad(), undivided():
        network.eval()
        logits = evaluation(network, batches.images, shared=not tracked)
        for path in paths:
            with calibrated(network, path, batches.images if tracked else ()):
                for number, labels in enumerate(batches.labels):
                    sums.append(functional.cross_entropy(logits(number, path).float(), labels, reduction="sum"))
        network.train(training_mode)
        losses: list[float] = (torch.stack(sums).view(len(paths), -1).sum(1) / images).tolist()
    return losses


@METHODS.register("greedynas")
@dataclass(frozen=True)
class GreedyNAS(Filtering, SPOS):
    """One path per step, of those that are best on held-out training images."""

    def own_sampler(self) -> Sampler:
        return Greedy(**vars(self))
