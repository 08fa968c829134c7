"""A few real steps of training at a tiny size: they run, repeat, cost what is promised, and resume. Stores nothing."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from harness.components.dataset import DataSet
from harness.components.method import Method
from harness.components.preset import Preset, default_preset, presets_of
from harness.components.registries import DATASETS
from harness.data.randomness import seed_globals
from harness.stores.checkpoints import check_plain
from harness.study.configuration import COMPONENTS, RunConfig
from harness.study.fingerprints import are_here
from harness.study.layout import Row
from harness.study.study import Study
from harness.training.cost import Meter
from harness.training.stages.train import Resumable, Supernets, train
from harness.training.state import random_state, set_random_state
from harness.work.findings import Checks, Unfit
from harness.work.plan import make_plan

TINY = "tiny"
"""The preset for tests, by its usual name."""

BATCH, BATCHES, EPOCHS = 16, 3, 2
RESUMED_AFTER = 4
"""Steps before the checkpoint: within an epoch."""

CPU = torch.device("cpu")


class _Enough(Exception):
    """Ends a training from outside."""


@dataclass
class Tried:
    """A tiny training, and what it did. A `harness.training.stages.train.Keeper`."""

    resumed: bytes | None = None
    """The state to start from."""
    enough: int | None = None
    """Steps after which it ends; None for all."""
    losses: list[torch.Tensor] = field(default_factory=list)
    """Those of each step."""
    state: bytes = b""
    """The checkpoint after some steps."""
    passes: int = 0
    supernets: Supernets | None = None
    device: torch.device = CPU
    _first: list[dict[str, torch.Tensor]] = field(default_factory=list)

    def start(self, course: Any) -> None:
        self.course: Resumable = course
        self._first = [_copied(network) for network in course.supernets.networks]
        if self.resumed is not None:
            state = torch.load(io.BytesIO(self.resumed), weights_only=True)
            course.restore(state["course"], self.device)
            set_random_state(state["random"], self.device)

    def between_steps(self) -> None:
        course: Any = self.course
        self.losses.append(course.losses[-1].clone())
        if len(self.losses) == self.enough:
            raise _Enough
        if len(self.losses) == RESUMED_AFTER and self.resumed is None:
            state = {"course": course.state(), "random": random_state(self.device)}
            check_plain(state, "state")
            torch.save(state, file := io.BytesIO())
            self.state = file.getvalue()

    def part_done(self) -> None:
        pass

    def weights(self) -> list[dict[str, torch.Tensor]]:
        return [_copied(network) for network in self.supernets.networks] if self.supernets else []

    def learnt(self) -> bool:
        """Whether a weight of every supernet has changed."""
        pairs = zip(self._first, self.weights(), strict=False)
        return all(any(not torch.equal(one[name], other[name]) for name in one) for one, other in pairs)


def attempt(
    config: RunConfig,
    dataset: DataSet,
    resumed: bytes | None = None,
    enough: int | None = None,
    device: torch.device = CPU,
) -> Tried:
    """Train as a trial does, from its seed or from a state."""
    tried, meter = Tried(resumed, enough, device=device), Meter(device)
    seed_globals(config.seed)
    with contextlib.suppress(_Enough):
        tried.supernets = train(config, dataset, meter, keeper=tried)
    tried.passes = meter.passes
    return tried


def tiny_preset(space: str) -> Preset:
    """The smallest scale of a space: the preset for tests if it has one."""
    known = presets_of(space)
    return known.get(TINY) or known.get(default_preset().name) or next(iter(known.values()))


def tiny_config(settings: Mapping[str, Any], overrides: Mapping[str, Any]) -> RunConfig:
    """A configuration with these settings, without a table of truth, checked as `plan` does, and then made tiny."""
    asked = {**settings, **overrides}
    default = default_preset().settings
    preset = tiny_preset(str(asked.get("space", default["space"])))
    dataset = str(asked.get("dataset", preset.datasets[0] if are_here(preset.datasets[0]) else default["dataset"]))
    preset = replace(preset, datasets=(dataset,), trained_on=None)
    row = Row({"": "trial"}, {"benchmark": None, "rank.images": None, "rank.candidates": 4, **settings})
    plan = make_plan([Study("check", "check", [row], [])], preset, [], seeds=1, overrides=overrides)
    return shrunk(next(work.trial.config for work in plan.work if work.trial.start is None))


def shrunk(config: RunConfig) -> RunConfig:
    """The same with few steps, and few images to rank on."""
    return config.with_valid(
        train=replace(config.train, epochs=EPOCHS, batch_size=BATCH),
        rank=replace(config.rank, images=None, batch_size=BATCH),
    )


def few_images(name: str) -> DataSet:
    """A data set with its first images only: as many as a tiny training needs."""
    whole: DataSet = DATASETS.get(name)()
    train, rest = BATCH * BATCHES, 2 * BATCH
    return replace(whole, train=whole.train.head(train), valid=whole.valid.head(rest), test=whole.test.head(rest))


def check_training(found: Checks, config: RunConfig, dataset: DataSet) -> Tried | None:
    """Check that it trains, costs what the method promises, repeats, and resumes. None if it does not train."""
    first: Tried | None = None
    with found.check(f"trains {EPOCHS * BATCHES} steps in {config.space} on {config.dataset}"):
        tried = attempt(config, dataset)
        _require_losses(tried)
        first = tried
    if first is None:
        return None
    _check_budget(found, config, first)
    with found.check("repeats: the same seed gives the same weights"):
        _require_equal(
            first,
            attempt(config, dataset),
            "two trainings with the same seed",
            "random numbers must come from the rng that is given (training.rng, or `rng` of bind and draw), and state "
            "must not outlive a training",
        )
    with found.check(f"resumes: from a checkpoint after {RESUMED_AFTER} steps, the same weights"):
        _require_equal(
            first,
            attempt(config, dataset, first.state),
            "a resumed training and an uninterrupted one",
            "what changes from step to step must be in training.memory or training.modules (for a sampler: state and "
            "restore)",
        )
    if found.gpu:
        _check_on_gpu(found, config, dataset)
    return first


def _check_on_gpu(found: Checks, config: RunConfig, dataset: DataSet) -> None:
    """Check on the emulated GPU that it trains and resumes, and name lines that would slow a GPU down."""
    from harness.training import emulated_device

    gpu = torch.device(emulated_device.NAME)
    trains = found.check("trains on a GPU, and resumes there to the same weights (emulated)")
    with emulated_device.emulated(), trains:
        first = attempt(config, dataset, device=gpu)
        _require_losses(first)
        waits, unordered = list(_own_lines(emulated_device.waits)), list(_own_lines(emulated_device.unordered))
        _require_equal(
            first,
            attempt(config, dataset, first.state, device=gpu),
            "a resumed training and an uninterrupted one",
            "what changes from step to step must be in training.memory or training.modules",
        )
        for place, times in waits:
            found.note(f"{place}: the CPU waits for the GPU {times} times in {EPOCHS * BATCHES} steps, which is slow")
        for place, _ in unordered:
            found.note(f"{place}: a GPU adds or writes in no fixed order here, so results differ from run to run")


def _own_lines(counts: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Lines of the user's folder, each with how often it was counted."""
    for name, count in sorted(counts.items()):
        operation, _, place = name.partition(" ")
        if place.startswith("./"):
            yield f"{place[2:]} ({operation})", count


def _require_losses(tried: Tried) -> None:
    for step, losses in enumerate(tried.losses):
        if losses.ndim != 1 or losses.requires_grad:
            raise Unfit(
                f"step {step} gave losses of shape {tuple(losses.shape)}{', with gradients' * losses.requires_grad}; "
                "expected one value per path, detached: torch.stack([...]).detach()"
            )
        if not bool(torch.isfinite(losses).all()):
            raise Unfit(f"step {step} gave the loss {losses.tolist()}, which is not finite")
    if not tried.learnt():
        raise Unfit(
            "no weight has changed: a step must make an update, by training.descend or by training.backward and "
            "training.update"
        )


def _check_budget(found: Checks, config: RunConfig, tried: Tried) -> None:
    """Passes per step against the promised ones. A step with another number of losses was refused already."""
    method: Method = config.method.build(COMPONENTS["method"], "method")
    assert tried.supernets is not None, "a training that ended early"
    promised, made = method.paths_per_step(tried.supernets.space), tried.passes / len(tried.losses)
    if made != promised:
        found.note(
            f"a step makes {made:g} passes, and paths_per_step says {promised}: presets of equal passes count "
            f"{promised}, so the method trains {made / promised:g} times as much as others"
        )
        return
    found.ok(f"costs {promised} {'pass' if promised == 1 else 'passes'} per step, as paths_per_step says")


def _require_equal(one: Tried, other: Tried, what: str, advice: str) -> None:
    """Raise unless losses and weights are equal bit for bit; the second may have the last steps only."""
    skipped = len(one.losses) - len(other.losses)
    for step, (mine, its) in enumerate(zip(one.losses[skipped:], other.losses, strict=False), skipped):
        if not torch.equal(mine, its):
            raise Unfit(f"{what} differ from step {step} on: {advice}")
    for left, right in zip(one.weights(), other.weights(), strict=True):
        for name in left:
            if not torch.equal(left[name], right[name]):
                raise Unfit(f"{what} end with different weights ({name}): {advice}")


def _copied(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}
