"""The retraining stage: trains the architecture that a search has found as a stand-alone network.

Works on every space that builds stand-alone networks. The steps are those of `stages/standalone.py`; here training can
stop between any two steps and resume from the state that a keeper has stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from harness.components.dataset import DataSet, joined
from harness.components.method import Part
from harness.components.registries import AUGMENTATIONS, ORDERS, SPACES
from harness.components.schedule import Schedule, warmed
from harness.components.space import Architecture, network_settings
from harness.seeds import derive
from harness.study.configuration import COMPONENTS, SHUFFLED, RunConfig
from harness.training.agreement import of_network
from harness.training.cost import Meter
from harness.training.parts import Division
from harness.training.ranks import ALONE, Ranks
from harness.training.stages.recipe import RecipeTraining
from harness.training.stages.standalone import StandaloneRecipe, count_among
from harness.training.stages.train import Keeper, Progress, Supernets, check_finite

TOP = (1, 5)
"""An answer counts if the class is among so many most probable ones."""


def retrain(
    config: RunConfig,
    architecture: Architecture,
    dataset: DataSet,
    meter: Meter,
    report: Callable[[Progress], None] = lambda progress: None,
    keeper: Keeper | None = None,
    ranks: Ranks = ALONE,
) -> tuple[Supernets, float, float]:
    """Train the architecture as `config.retrain` says; returns the network and its top-1 and top-5 on the test images.

    The network is returned as the only supernet, for the part of the space that holds this architecture alone.
    Raises `Diverged` when a loss is not finite.
    """
    settings = config.retrain
    assert settings is not None, "the configuration does not retrain"
    network = settings.network or config.network
    space = SPACES.get(config.space)().at(network_settings(network, **dataset.inputs))
    schedule: Schedule = settings.schedule.build(COMPONENTS["schedule"], "retrain.schedule")
    recipe = StandaloneRecipe(
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )
    seen = with_valid(dataset) if settings.with_valid else dataset
    augment = [one.build(AUGMENTATIONS, "retrain.augment") for one in settings.augment]
    order = None if settings.order == SHUFFLED else settings.order.build(ORDERS, "retrain.order")
    seed, factor = derive(config.seed, "retrain"), schedule.of_trial(space, config.seed)
    factor = warmed(factor, settings.warmup_epochs / settings.epochs, 0.0)
    division = Division(settings.batch_size // (settings.bn_group or settings.batch_size), ranks)
    make = partial(RecipeTraining, factor=factor, augment=augment, network=network, order=order, division=division)
    training = make(space, architecture, seen, recipe, seed, 1, meter.device)
    training.equip(settings, seed)
    if keeper is not None:
        keeper.start(training)
    ranks.agree({"steps": training.step}, "when training begins")
    steps = training.steps_per_epoch
    for epoch in range((training.step - len(training.losses)) // steps, settings.epochs):
        while training.step < (epoch + 1) * steps:
            training.advance()
            meter.passes += 1
            meter.images += training.images
            if keeper is not None:
                keeper.between_steps()
        ranks.settle()
        if ranks.size > 1:
            ranks.agree(of_network(training.network), f"after epoch {epoch + 1}")
        mean = check_finite([loss[None] for loss in training.losses], epoch * steps)
        meter.steps_done(0)
        report(Progress(0, 1, epoch + 1, settings.epochs, mean))
        training.losses = []
    meter.stage("train")
    counts, total = count_among(training.judged, dataset.test, dataset, 1, meter.device, TOP)
    meter.stage("rank")
    part = Part(dict(enumerate(architecture)))
    top1, top5 = (100 * correct / total for (correct,) in counts)
    return Supernets(space, (part,), (training.judged,)), top1, top5


def with_valid(dataset: DataSet) -> DataSet:
    """The same data set, with the validation images added to the training images."""
    return replace(dataset, train=joined([dataset.train, dataset.valid]))


def best_found(ranking: Mapping[str, Any], which: int = 0) -> Architecture | None:
    """What the stored stage before has found: by a search, by the method, or else the best-ranked architecture.

    `which` counts from the best. None if the stage diverged, found fewer, or top-1 was not requested.
    """
    if ranking.get("found") is not None:
        found = [one["architecture"] for one in ranking["found"]]
        return tuple(found[which]) if which < len(found) else None
    top1 = ranking.get("top1")
    return tuple(int(choice) for choice in top1) if isinstance(top1, list) else None
