"""From a configuration to the training of a supernet: components are built, bound and checked.

All randomness is seeded by name and by the number of the supernet.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from harness.components.clustering import Clustering, ClusterRule
from harness.components.dataset import DataSet
from harness.components.loader import Loader
from harness.components.method import Method, Part, sampler_of
from harness.components.optimiser import Optimiser
from harness.components.registries import CLUSTER_RULES, DATASETS
from harness.components.sampler import Sampler
from harness.components.schedule import Schedule, warmed
from harness.components.space import Space
from harness.data.loading import EvaluationBatches, loader_for
from harness.errors import InvalidConfiguration
from harness.seeds import derive, make_rng
from harness.study.configuration import COMPONENTS, RunConfig
from harness.study.edges import clusters_rng
from harness.study.parallel import check_last_batch
from harness.training.observers.similarity import GradientSimilarity
from harness.training.observers.spread import Spread
from harness.training.parts import Division
from harness.training.precision import make_scaler
from harness.training.ranks import ALONE, Ranks
from harness.training.separation import SeparatedMomentum
from harness.training.supernet import SupernetTraining

if TYPE_CHECKING:
    from harness.training.stages.train import Supernets

SEPARATED_BY = "operation"
"""The cluster rule of momentum separation, for observing it where momentum is not separated."""


def prepare(
    config: RunConfig,
    supernets: Supernets,
    steps_per_epoch: int,
    dataset: DataSet | None = None,
    ranks: Ranks = ALONE,
) -> tuple[Method, list[SupernetTraining]]:
    """The method, and one training per supernet. Refuses combinations that cannot be trained."""
    method: Method = config.method.build(COMPONENTS["method"], "method")
    make = partial(make_training, config, method, supernets.space, steps_per_epoch, dataset, ranks=ranks)
    pairs = zip(supernets.parts, supernets.networks, strict=True)
    return method, [make(part, network, number) for number, (part, network) in enumerate(pairs)]


def make_training(
    config: RunConfig,
    method: Method,
    space: Space,
    steps_per_epoch: int,
    dataset: DataSet | None,
    part: Part,
    network: torch.nn.Module,
    number: int,
    ranks: Ranks = ALONE,
) -> SupernetTraining:
    """The training of one supernet."""
    division = Division(config.train.batch_size // (config.train.bn_group or config.train.batch_size), ranks)
    division.prepare(network)
    schedule: Schedule = config.schedule.build(COMPONENTS["schedule"], "schedule")
    rule: ClusterRule = config.clusters.build(COMPONENTS["clusters"], "clusters")
    sampler = sampler_of(method, space, config.sampler.build(COMPONENTS["sampler"], "sampler"))
    optimiser: Optimiser = config.optimiser.build(COMPONENTS["optimiser"], "optimiser")
    steps = config.train.epochs * steps_per_epoch
    warmup = (config.train.warmup_epochs * steps_per_epoch + config.train.warmup_steps) / max(1, steps)
    factor = warmed(schedule.of_trial(space, config.seed), warmup, config.train.least_rate)
    clustering = rule.bind(space, part.fixed, clusters_rng(config))
    method.check(space, clustering, sampler)
    method.check_schedule(schedule)
    left_out = _left_out(config, sampler, dataset)
    momentum = SeparatedMomentum(space.parameter_groups(network), optimiser, ranks)
    parameters = momentum.parameters
    if config.observe.spread or config.observe.spread_within:
        momentum.spread = Spread(parameters, _observed_clusters(config, space, part, clustering))
    momentum.scaler = make_scaler(config.train.precision, parameters[0].device)
    alike = config.observe.gradient_similarity
    training = SupernetTraining(
        space=space,
        part=part,
        network=network,
        momentum=momentum,
        clustering=clustering,
        source=sampler.bind(space, part.fixed),
        factor=factor,
        factor_depends_on_path=schedule.depends_on_path,
        rng=make_rng(config.seed, "paths", number),
        total_steps=steps,
        steps_per_epoch=steps_per_epoch,
        samples=0 if dataset is None else len(dataset.train),
        classes=0 if dataset is None else dataset.classes,
        first_step=config.train.first_step,
        weighting=config.train.weighting,
        label_smoothing=config.train.label_smoothing,
        precision=config.train.precision,
        similarity=GradientSimilarity(parameters[0], steps - steps_per_epoch, ranks) if alike else None,
        make_validation=partial(
            _loader, config, dataset, "valid", "validation", number, parameters[0].device, division
        ),
        make_unaugmented=partial(
            _loader, config, dataset, "train", "unaugmented", number, parameters[0].device, division
        ),
        make_held_out=partial(_held_out, config, dataset, left_out, parameters[0].device) if left_out else None,
        left_out=left_out,
        number=number,
        division=division,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(config.seed, "modules", number))
        method.begin(training)
    return training


def _observed_clusters(config: RunConfig, space: Space, part: Part, own: Clustering) -> Clustering | None:
    """The clusters within which spread is observed: the run's, or those that momentum separation would draw."""
    if not config.observe.spread_within or own.count > 1:
        return own if config.observe.spread_within else None
    rule: ClusterRule = CLUSTER_RULES.get(SEPARATED_BY)()
    return rule.bind(space, part.fixed, make_rng(config.seed, "clusters"))


def _left_out(config: RunConfig, sampler: Sampler, dataset: DataSet | None) -> tuple[int, ...]:
    """The numbers of the training images that are set aside for the sampler, the same for all supernets of a run."""
    if not (wanted := sampler.held_out()):
        return ()
    samples = len((dataset or DATASETS.get(config.dataset)()).train)
    count = min(wanted, samples // 10)
    if not count:
        raise InvalidConfiguration(f"{config.dataset} has {samples} training images: too few to set a tenth aside")
    return tuple(sorted(make_rng(config.seed, "held out").sample(range(samples), count)))


def _held_out(
    config: RunConfig, dataset: DataSet | None, numbers: tuple[int, ...], device: torch.device
) -> EvaluationBatches:
    dataset = dataset or DATASETS.get(config.dataset)()
    return EvaluationBatches(dataset, dataset.train.chosen(numbers), config.train.batch_size, device)


def _loader(
    config: RunConfig,
    dataset: DataSet | None,
    split: str,
    order: str,
    number: int,
    device: torch.device,
    division: Division,
) -> Loader:
    """Batches of a split without augmentation; `order` names the seed of their order."""
    dataset, size = dataset or DATASETS.get(config.dataset)(), config.train.batch_size
    check_last_batch(len(getattr(dataset, split)), size, division.groups, division.ranks.size, split)
    return loader_for(dataset, split, size, derive(config.seed, order, number), device, share=division.share)
