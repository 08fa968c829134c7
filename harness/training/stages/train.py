"""The training stage: a configuration in, trained supernets out.

The loop can be read from top to bottom; the method defines what a step does. All randomness comes
from the configuration's seed, by name: initial weights, data order, paths, clusters, split.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import torch

from harness.components.augmentation import Augmentation
from harness.components.dataset import DataSet
from harness.components.method import Method, Part, Step, check_partition
from harness.components.registries import AUGMENTATIONS, ORDERS, SPACES
from harness.components.space import Architecture, Space, network_settings
from harness.data.devices import placed
from harness.data.loader import Batch, Loader
from harness.data.loading import loader_for
from harness.data.randomness import step_randomness
from harness.errors import Diverged, InvalidConfiguration
from harness.seeds import derive
from harness.study.configuration import COMPONENTS, SHUFFLED, RunConfig
from harness.study.edges import split_rng
from harness.study.parallel import check_last_batch
from harness.training.agreement import compare
from harness.training.compilation import compile_if_wanted
from harness.training.cost import Meter
from harness.training.first_step import WrongPath, checked, whose
from harness.training.parts import divided
from harness.training.preparation import make_training
from harness.training.preparation import prepare as prepare
from harness.training.profiling import phase, step_done
from harness.training.ranks import ALONE, Ranks
from harness.training.supernet import SupernetTraining
from harness.training.weights import start_from


@dataclass(frozen=True)
class Supernets:
    """The supernets of a run, by the part of the space that each covers."""

    space: Space
    parts: tuple[Part, ...]
    networks: tuple[torch.nn.Module, ...]
    found: tuple[Architecture, ...] = ()
    """What the method itself has found."""
    augment: tuple[Augmentation, ...] = ()
    """How training images are augmented."""
    own_score: Callable[[Architecture], float | None] | None = None
    """The method's own score of an architecture; None where it is ranked by accuracy."""

    def part_of(self, architecture: Architecture) -> int:
        """The number of the supernet that holds the architecture."""
        return next(number for number, part in enumerate(self.parts) if architecture in part)


@dataclass(frozen=True)
class Progress:
    """The progress of training, reported after each epoch."""

    part: int
    parts: int
    epoch: int
    epochs: int
    loss: float
    measured: Mapping[str, float] = field(default_factory=dict)
    """Values that the steps measured over the epoch, by name."""


@dataclass
class Course:
    """Training between two steps: all state that is needed to resume as if there had been no interruption.

    After the last step of an epoch, its losses are still present: they are not checked yet.
    """

    supernets: Supernets
    trainings: list[SupernetTraining]
    source: Callable[[SupernetTraining, int], Sequence[int] | None]
    """The method's `data_order`."""
    make: Callable[[Part, torch.nn.Module, int], SupernetTraining] | None = None
    """Makes the training of a supernet that comes from a split."""
    part: int = 0
    step: int = 0
    """Steps done in this part."""
    losses: list[torch.Tensor] = field(default_factory=list)
    """Losses of the steps of the unfinished epoch, one value per path."""
    found: list[Architecture] = field(default_factory=list)
    """What the method has found with the finished supernets."""
    splits: list[tuple[int, tuple[Part, ...]]] = field(default_factory=list)
    """The splits so far: the place of the supernet that was split, and its parts."""
    _order: tuple[int, Sequence[int] | None] | None = None

    def data_order(self, epoch: int) -> Sequence[int] | None:
        """The method's data order of the epoch. Requested once per epoch: a second random draw would differ."""
        if self._order is None or self._order[0] != epoch:
            training = self.trainings[self.part]
            with training.sampling():
                self._order = epoch, self.source(training, epoch)
        return self._order[1]

    @property
    def is_over(self) -> bool:
        return self.part == len(self.trainings)

    def end_part(self) -> None:
        self.trainings[self.part].release()
        self.part, self._order = self.part + 1, None
        self.step = self.trainings[self.part].start if self.part < len(self.trainings) else 0

    def split(self, parts: tuple[Part, ...], place: int, step: int) -> None:
        """Put copies of a supernet, one per part, in its place. They train from that step on."""
        assert self.make is not None, "a course that cannot split"
        parent = self.trainings[place]
        parent.release()
        first = 1 + max(training.number for training in self.trainings)
        networks = [parent.network, *(copy.deepcopy(parent.network) for _ in parts[1:])]
        made = [
            self.make(part, network, first + n) for n, (part, network) in enumerate(zip(parts, networks, strict=True))
        ]
        for training in made:
            training.start = step
        self.trainings[place : place + 1] = made
        before, behind = self.supernets.parts[:place], self.supernets.parts[place + 1 :]
        networks = [training.network for training in self.trainings]
        self.supernets = replace(self.supernets, parts=(*before, *parts, *behind), networks=tuple(networks))
        self.splits.append((place, parts))
        self._order = None

    def state(self) -> dict[str, Any]:
        """Weights of the finished supernets, all state of the one in training. Store it before the next step."""
        if self.losses:
            self.trainings[self.part].ranks.settle()
        order: tuple[int, torch.Tensor | None] | None = None
        if self._order is not None:  # a method that has left the epoch to chance is not asked again, either
            epoch, chosen = self._order
            order = epoch, None if chosen is None else torch.as_tensor(chosen, dtype=torch.long)
        return {
            "part": self.part,
            "step": self.step,
            "finished": [network.state_dict() for network in self.supernets.networks[: self.part]],
            "training": self.trainings[self.part].state() if self.part < len(self.trainings) else None,
            "modules": [training.modules_state() for training in self.trainings[: self.part]],
            "losses": torch.cat(self.losses) if self.losses else None,
            "paths": [len(losses) for losses in self.losses],
            "order": order,
            "found": [list(architecture) for architecture in self.found],
            **({"splits": self._splits_state()} if self.splits else {}),
        }

    def _splits_state(self) -> dict[str, Any]:
        """The splits, and the weights of supernets that wait for their turn."""
        waiting = self.trainings[self.part + 1 :]
        return {
            "made": [(place, [(dict(p.fixed), dict(p.allowed)) for p in parts]) for place, parts in self.splits],
            "starts": [training.start for training in self.trainings],
            "waiting": [training.network.state_dict() if training.start else None for training in waiting],
        }

    def _restore_splits(self, state: dict[str, Any]) -> None:
        for place, parts in state["made"]:
            self.split(tuple(Part(fixed, allowed) for fixed, allowed in parts), place, 0)
        for training, start in zip(self.trainings, state["starts"], strict=True):
            training.start = start
        for training, weights in zip(self.trainings[self.part + 1 :], state["waiting"], strict=True):
            if weights is not None:
                training.network.load_state_dict(weights)

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        """Resume from a stored state."""
        self.part, self.step = state["part"], state["step"]
        self.found = [tuple(architecture) for architecture in state.get("found", ())]
        if "splits" in state:
            self._restore_splits(state["splits"])
        for network, weights in zip(self.supernets.networks, state["finished"], strict=False):
            network.load_state_dict(weights)
        for training, modules in zip(self.trainings, state.get("modules", ()), strict=False):
            training.restore_modules(modules)
        if state["training"] is not None:
            self.trainings[self.part].restore(state["training"])
        self.losses = []
        if state["losses"] is not None:
            self.losses = [part.clone() for part in state["losses"].to(device).split(state["paths"])]
        self._order = None
        if state["order"] is not None:
            epoch, chosen = state["order"]
            self._order = epoch, None if chosen is None else chosen.tolist()


class Resumable(Protocol):
    """A training between two steps, as a keeper sees it."""

    @property
    def is_over(self) -> bool:
        """Whether all its steps are done, so that what follows is evaluation alone."""

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any], device: torch.device) -> None: ...


class Keeper(Protocol):
    """Stores the state of the course, and restores it."""

    def start(self, course: Resumable) -> None:
        """Called before training begins; may restore the course to the state where an earlier one ended."""

    def between_steps(self) -> None:
        """Called after each step; the course is consistent until the next one."""

    def part_done(self) -> None:
        """Called when a supernet is trained."""


def build_supernets(config: RunConfig, dataset: DataSet, device: torch.device | str = "cpu") -> Supernets:
    """The configuration's supernets with their initial weights. They are also the untrained reference."""
    settings = network_settings(config.network, **dataset.inputs)
    space = SPACES.get(config.space)().at(settings)
    method: Method = config.method.build(COMPONENTS["method"], "method")
    parts = method.parts(space, split_rng(config))
    networks = [_new_network(config, space, settings, number, device) for number in range(len(parts))]
    return Supernets(space, parts, tuple(networks), augment=augmentations(config))


def _new_network(
    config: RunConfig, space: Space, settings: Any, number: int, device: torch.device | str
) -> torch.nn.Module:
    """The network of a supernet with its initial weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(config.seed, "weights", number))
        return compile_if_wanted(placed(space.supernet(settings), device))


def _make_part(
    config: RunConfig,
    method: Method,
    space: Space,
    steps_per_epoch: int,
    dataset: DataSet,
    ranks: Ranks,
    part: Part,
    network: torch.nn.Module,
    number: int,
) -> SupernetTraining:
    """The training of a supernet that comes from a split, with that network or, if it restarts, with a new one."""
    if restarted := method.restarts(part):
        device = next(network.parameters()).device
        settings = network_settings(config.network, **dataset.inputs)
        network = _new_network(config, space, settings, number, device)
    training = make_training(config, method, space, steps_per_epoch, dataset, part, network, number, ranks)
    training.restarted = restarted
    return training


def make_step(method: Method, training: SupernetTraining, batch: Batch, step: int) -> Step:
    """One step of the method. Refuses one that trains other paths, or other numbers of them, than it should.

    With several ranks, losses and images are those of the whole batch; `training.ranks.settle` waits for the losses.
    """
    training.begin_step(step, batch)
    try:
        with divided(training.division, batch):
            done = checked(method, training.space, batch, method.train_step(training, batch, step))
    except WrongPath as error:
        raise InvalidConfiguration(f"{whose(method)} {error}") from error
    if (weight := training.weight(batch)) != 1:
        images, forward = (round(count / weight) for count in (done.images, done.forward_images))
        done = replace(done, losses=done.losses * weight, images=images, forward_images=forward)
        training.ranks.soon_(done.losses)
    training.end_step(done.losses)
    return done


def train(
    config: RunConfig,
    dataset: DataSet,
    meter: Meter,
    report: Callable[[Progress], None] = lambda progress: None,
    observe: Callable[[Supernets, Progress], None] = lambda supernets, progress: None,
    keeper: Keeper | None = None,
    ranks: Ranks = ALONE,
) -> Supernets:
    """Train all supernets of the configuration. Raises `Diverged` when a loss is not finite.

    After each epoch `observe` may measure the supernets; it must not change them.
    """
    supernets = build_supernets(config, dataset, meter.device)
    if config.train.weights is not None:
        start_from(config.train.weights, config.space, supernets.networks)
    steps_per_epoch = -(-len(dataset.train) // config.train.batch_size)
    method, trainings = prepare(config, supernets, steps_per_epoch, dataset, ranks)
    division = trainings[0].division
    check_last_batch(len(dataset.train), config.train.batch_size, division.groups, ranks.size, "train")
    make = partial(_make_part, config, method, supernets.space, steps_per_epoch, dataset, ranks)
    course = Course(supernets, trainings, method.data_order, make)
    if has_own_score(method):
        course.supernets = replace(supernets, own_score=lambda one: method.score(course.trainings, one))
    if keeper is not None:
        keeper.start(course)
    ranks.agree({"parts": course.part, "steps": course.step}, "when training begins")
    while course.part < len(trainings):
        training = trainings[course.part]
        loader = _training_batches(config, dataset, course, meter.device)
        randomness = step_randomness(training.network, derive(config.seed, "network", training.number), meter.device)
        for epoch in range((course.step - len(course.losses)) // steps_per_epoch, config.train.epochs):
            if course.step == epoch * steps_per_epoch:
                training.begin_epoch()
                method.begin_epoch(training, epoch)
            for step in range(course.step, (epoch + 1) * steps_per_epoch):
                with phase("data"):
                    batch = loader.batch(step)
                with randomness(step):
                    done = make_step(method, training, batch, step)
                compare(training, step, last=step + 1 == (epoch + 1) * steps_per_epoch)
                step_done()
                course.losses.append(done.losses)
                course.step = step + 1
                meter.count(done, training.sampled)
                if keeper is not None:
                    keeper.between_steps()
            ranks.settle()
            mean = check_finite(course.losses, epoch * steps_per_epoch)
            progress = Progress(course.part, len(trainings), epoch + 1, config.train.epochs, mean, training.measured())
            meter.steps_done(training.observers_bytes())
            if (spread := training.momentum.spread) is not None:
                meter.measured_in_steps(spread.seconds)
                spread.seconds = 0.0
            with meter.observation() if config.observe.evaluates else nullcontext():
                observe(course.supernets, progress)
            report(progress)
            course.losses = []
            if epoch + 1 < config.train.epochs:
                with randomness(course.step), divided(training.division):
                    parts = method.divide(training, epoch + 1)
                meter.count_sampling(training.sampled)
                if parts:
                    check_partition(supernets.space, training.part, parts)
                    course.split(parts, course.part, course.step)
                    break
        else:
            if config.search is None:
                course.found += map(supernets.space.check, method.found(training))
            course.end_part()
        loader.close()
        ranks.barrier()
        if keeper is not None:
            keeper.part_done()
    meter.stage("train")
    return replace(course.supernets, found=tuple(course.found))


def augmentations(config: RunConfig) -> tuple[Augmentation, ...]:
    """What changes the training images of a supernet."""
    return tuple(one.build(AUGMENTATIONS, "train.augment") for one in config.train.augment)


def _training_batches(config: RunConfig, dataset: DataSet, course: Course, device: torch.device) -> Loader:
    """The batches of the supernet in training: this rank's part of each."""
    training = course.trainings[course.part]
    return loader_for(
        dataset,
        "train",
        config.train.batch_size,
        derive(config.seed, "data", training.number),
        device,
        own_order=course.data_order,
        order=None if config.train.order == SHUFFLED else config.train.order.build(ORDERS, "train.order"),
        augment=augmentations(config),
        share=training.division.share,
        without=training.left_out,
    )


def has_own_score(method: Method) -> bool:
    """Whether the method scores architectures itself."""
    return type(method).score is not Method.score


def check_finite(losses: list[torch.Tensor], first_step: int) -> float:
    """The mean of an epoch's losses. Raises `Diverged` with the first step whose loss is not finite.

    Checked once per epoch, so that no step waits for the device.
    """
    by_step = torch.stack([step.sum() / len(step) for step in losses]).cpu()
    bad = torch.nonzero(~torch.isfinite(by_step)).flatten()
    if len(bad):
        position = int(bad[0])
        raise Diverged(first_step + position, float(by_step[position]))
    return float(by_step.mean())
