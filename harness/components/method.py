"""Interface of a method: supernets (parts), paths and training steps. No torch at import.

A method says which supernets there are (`parts`), and which paths a step trains (`paths`) or how a step is trained
(`train_step`). Schedules, cluster rules, samplers and optimisers are components of their own, so that every method can
be combined with every one of them. All are frozen dataclasses whose fields are their options (one without options needs
no decorator of its own); they get to know the space when they are bound to it.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from harness.components.clustering import Clustering, one_cluster
from harness.components.conformity import place
from harness.components.sampler import PathSource, Sampler, draw_together, informed
from harness.components.schedule import Schedule
from harness.components.space import Architecture, Fixed, Space
from harness.errors import InvalidConfiguration

if TYPE_CHECKING:
    import torch

    from harness.data.loader import Batch
    from harness.training.supernet import SupernetTraining


_TRIED = 20
"""Steps that are drawn to know whether their paths keep to one cluster."""


@dataclass(frozen=True)
class Step:
    """What a training step did."""

    losses: torch.Tensor
    """The paths' losses, detached, one value per path."""
    passes: int
    """Forward-backward passes."""
    images: int
    """Images processed by these passes."""
    forward_passes: int = 0
    """Forward passes that training needs without a backward one: those of a teacher."""
    forward_images: int = 0
    """Images processed by these."""
    sampling_passes: int = 0
    """Forward passes made only to choose paths or data. Those given to `training.sampling` are already counted."""
    sampling_images: int = 0
    """Images processed by these."""


@dataclass(frozen=True)
class Part:
    """One supernet of a method: the decisions that it holds constant, and sets of choices that it allows.

    Parts partition the space. A decision that is neither in `fixed` nor in `allowed` has all its choices.
    """

    fixed: Fixed
    allowed: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def __contains__(self, architecture: Architecture) -> bool:
        return all(architecture[decision] == choice for decision, choice in self.fixed.items()) and all(
            architecture[decision] in choices for decision, choices in self.allowed.items()
        )


def check_partition(space: Space, whole: Part, parts: Sequence[Part]) -> None:
    """Raise `InvalidConfiguration` unless every architecture of `whole` is in exactly one of the parts."""

    def options(part: Part) -> list[set[int]]:
        sets = [set(part.allowed.get(decision, range(count))) for decision, count in enumerate(space.choices)]
        return [sets[d] & {part.fixed[d]} if d in part.fixed else sets[d] for d in range(len(sets))]

    made, parent = [options(part) for part in parts], options(whole)
    inside = all(own <= allowed for one in made for own, allowed in zip(one, parent, strict=True))
    apart = all(
        any(a.isdisjoint(b) for a, b in zip(one, other, strict=True)) for one, other in itertools.combinations(made, 2)
    )
    if not (inside and apart and sum(prod(map(len, one)) for one in made) == prod(map(len, parent))):
        raise InvalidConfiguration(f"{whole} cannot split into {', '.join(map(str, parts))}: no partition")


@dataclass(frozen=True)
class Method:
    """How a supernet, or several, is trained.

    The default step (`SupernetTraining.descend`) trains all paths of a step on the same batch, weights
    them as the schedule says, and makes one update. A method needs `paths` for that step, or a `train_step` of its
    own: to distil, to meta-learn, to learn architecture parameters. Such a step makes every update by
    `training.update` (or `training.update_own`). What it keeps belongs in `SupernetTraining.memory` (plain types and
    tensors) or `SupernetTraining.modules` (modules and optimisers); otherwise a resumed run would lose it.
    """

    one_of: ClassVar[tuple[str, ...]] = ("paths", "train_step")
    """The hooks of which a method defines at least one; checked when the method is first used."""
    paths_vary: ClassVar[bool] = False
    """Whether steps may give other numbers of losses than `paths_per_step`. Otherwise such a step is refused: methods
    that are compared at equal passes would not get equal passes."""

    ranks_reason: ClassVar[str | None] = None
    """Why several processes cannot train it together (`run --ranks`); None if they compute what one computes. A class
    with a hook of `PER_RANK` of its own is refused unless it, or a subclass, sets this."""

    def parts(self, space: Space, rng: random.Random) -> tuple[Part, ...]:
        """The supernets, by the part of the space that each covers."""
        return (Part({}),)

    def divide(self, training: SupernetTraining, epochs: int) -> tuple[Part, ...] | None:
        """The parts into which a supernet splits after so many epochs; None for no split.

        The parts must partition the supernet's own part. Each gets a copy of its weights, an optimiser without state
        and a sampler of its own, and trains for the epochs that are left. Passes that only choose the parts are made
        `with training.sampling(passes, images):`.
        """
        return None

    def restarts(self, part: Part) -> bool:
        """Whether the supernet of a part that comes from a split begins with initial weights and a new schedule."""
        return False

    def supernets_per_epoch(self, parts: int) -> float:
        """How many supernets train per epoch, on average: as many as there are parts, and more if these split.

        Presets of equal passes divide the epochs by it.
        """
        return parts

    def own_sampler(self) -> Sampler | None:
        """The sampler that the method brings; None for the configured one."""
        return None

    def check(self, space: Space, clustering: Clustering, sampler: Sampler) -> None:
        """Raise an error with the reason for a combination that cannot be trained. Called before anything runs."""

    def check_schedule(self, schedule: Schedule) -> None:
        """The same for a learning-rate schedule, with its options."""

    def paths_per_step(self, space: Space) -> int:
        """How many paths one step trains: the cost of a step in forward-backward passes."""
        return 1

    def begin(self, training: SupernetTraining) -> None:
        """Called once before the first step, and before a stored state is restored: the place to fill
        `training.modules`. Torch's global generator is seeded for it."""

    def begin_epoch(self, training: SupernetTraining, epoch: int) -> None:
        """Called before the first step of an epoch, counted from 0."""

    def paths(self, training: SupernetTraining) -> list[Architecture]:
        """The paths of the next step. All must be in one cluster."""
        raise InvalidConfiguration(f"{type(self).__name__} defines neither `paths` nor `train_step`; it needs one")

    def train_step(self, training: SupernetTraining, batch: Batch, step: int) -> torch.Tensor | Step:
        """Make one update of the weights; returns the paths' losses (detached, one value per path).

        Each loss counts as one pass over the batch; a step that makes other passes returns a `Step`.
        """
        return training.descend(batch, self.paths(training), step)

    def score(self, trainings: Sequence[SupernetTraining], architecture: Architecture) -> float | None:
        """The method's own score of an architecture, by which it is ranked; None for the accuracy of its supernet.

        For methods that learn what an architecture is worth (DARTS and GDAS rank by the learned distribution). It
        may use what the trainings hold (`training.modules`); a higher score is better.
        """
        return None

    def found(self, training: SupernetTraining) -> Sequence[Architecture]:
        """What the method itself has found with a supernet that is now trained, the best first; empty for nothing.

        Not used if the configuration has a search.
        """
        return ()

    def data_order(self, training: SupernetTraining, epoch: int) -> Sequence[int] | None:
        """The samples of an epoch in order; None for a random permutation. Once per epoch, after `begin_epoch`."""
        return None


PER_RANK = ("train_step", "begin_epoch", "divide", "data_order")
"""Hooks that may look at a batch, or at what was computed from one. With several ranks each sees its part."""


def reason_against_ranks(method: Method) -> str | None:
    """Why several processes cannot train it together; None if they can."""
    lineage = type(method).__mro__
    declared = next(place for place, kind in enumerate(lineage) if "ranks_reason" in vars(kind))
    if method.ranks_reason is not None:
        return method.ranks_reason
    for hook in PER_RANK:
        owner = next(place for place, kind in enumerate(lineage) if hook in vars(kind))
        if owner < declared:
            return (
                f"{lineage[owner].__name__} has a {hook} of its own, and does not say that it computes the same from "
                "parts of a batch; set `ranks_reason = None` in the class if it does (docs/own_method.md, Several "
                "processes)"
            )
    return None


def sampler_of(method: Method, space: Space, configured: Sampler) -> Sampler:
    """The method's own sampler, or the configured one. Raises `InvalidConfiguration` if both would choose paths."""
    own = method.own_sampler()
    if own is not None and not configured.bind(space, {}).uniform:
        raise InvalidConfiguration(
            f"{type(method).__name__} samples paths in its own way, which {type(configured).__name__} would replace; "
            "use sampler.name=uniform"
        )
    return own or configured


@dataclass
class _Drawing:
    """As much of a training as most methods need to draw paths: there is no network."""

    space: Space
    part: Part
    clustering: Clustering
    source: PathSource
    rng: random.Random
    memory: dict[str, Any] = field(default_factory=dict)
    step: int = 0

    def draw(self, count: int = 1) -> list[Architecture]:
        return draw_together(self.source, self.clustering, self.rng, count)

    def sampling(self, passes: int = 0, images: int = 0) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def check_clusters(
    method: Method, space: Space, part: Part, clustering: Clustering, source: PathSource, rng: random.Random
) -> None:
    """Raise `InvalidConfiguration` for several paths per step that do not keep to one cluster, if that can be known.

    A few steps are drawn without a network. A method that needs more of the training to draw is left to its first step.
    """
    several = method.paths_vary or method.paths_per_step(space) > 1
    if clustering.count == 1 or not several or type(method).train_step is not Method.train_step:
        return
    drawing: Any = _Drawing(space, part, clustering, source, rng)
    drawing.source = informed(source, drawing)
    for _ in range(_TRIED):
        try:
            paths = method.paths(drawing)
            separate = len({clustering.of(path) for path in paths}) > 1
        except Exception:  # whatever it needs that is not there
            return
        if separate:
            try:
                one_cluster(clustering, paths)
            except InvalidConfiguration as error:
                raise InvalidConfiguration(f"{place(type(method).paths, type(method).__name__)}: {error}") from error
        drawing.step += 1
