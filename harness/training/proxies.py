"""Runs proxies: the predictors that train no supernet, on the networks and images of one configuration.

Proxies of stand-alone networks share the network: each is built once for all of them, with the initial weights that
stand-alone training has. The seconds of a proxy are those that it takes alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.components.benchmark import Benchmark
from harness.components.dataset import DataSet
from harness.components.proxy import NetworkProxy, NotApplicable, Scores
from harness.components.registries import SPACES
from harness.components.space import Architecture, Space, network_settings
from harness.data.devices import placed
from harness.data.loading import loader_for
from harness.seeds import derive
from harness.study.configuration import RunConfig
from harness.study.expansion import passes_per_step
from harness.study.judging import Prediction
from harness.training.cost import Meter
from harness.training.stages.rank import predict
from harness.training.stages.standalone import StandaloneRecipe, initialise, train_standalone
from harness.training.stages.train import Supernets, build_supernets

T = TypeVar("T")

BATCH = 64
"""Images of the batch, as published for most proxies; fewer where there are fewer."""


TRIED = 8
"""A proxy that does not apply to any of so many networks is not tried on others."""


class InitialNetwork:
    """One network for all proxies (`harness.components.proxy.Initial`)."""

    def __init__(self, network: nn.Module, images: Tensor, labels: Tensor, seed: int) -> None:
        self.network, self.images, self.labels, self.seed = network, images, labels, seed
        self.shared = 0.0
        """Seconds that another proxy has spent on what the present one uses, too."""
        self._known: dict[str, tuple[Any, float]] = {}
        parameters = list(network.parameters())
        self.weights = [one for one in parameters if one.ndim > 1]
        self._tensors: list[Tensor] = [*parameters, *network.buffers()]
        self._initial = [tensor.detach().clone() for tensor in self._tensors]

    def once(self, name: str, compute: Callable[[], T]) -> T:
        if name in self._known:
            known, seconds = self._known[name]
            self.shared += seconds
            return known  # type: ignore[no-any-return]
        begun = time.perf_counter()
        found = compute()
        self._known[name] = found, time.perf_counter() - begun
        return found

    def gradients(self) -> Sequence[tuple[Tensor, Tensor]]:
        return self.once("gradients", self._gradients)

    def _gradients(self) -> list[tuple[Tensor, Tensor]]:
        loss = functional.cross_entropy(self.network(self.images), self.labels)
        found = torch.autograd.grad(loss, self.weights, allow_unused=True)
        # A weight that no output depends on has no gradient.
        return [
            (weight.detach().clone(), torch.zeros_like(weight) if gradient is None else gradient)
            for weight, gradient in zip(self.weights, found, strict=True)
        ]

    def generator(self, purpose: str) -> torch.Generator:
        return torch.Generator(self.images.device).manual_seed(derive(self.seed, "proxy", purpose))

    @torch.no_grad()
    def restore(self) -> None:
        """Set the weights, and the statistics of batch normalisation, to what they were at first."""
        torch._foreach_copy_(self._tensors, self._initial)


class ProxyScene:
    """The networks, images and truth that proxies look at (`harness.components.proxy.Scene`)."""

    def __init__(
        self,
        config: RunConfig,
        dataset: DataSet,
        benchmark: Benchmark | None,
        device: torch.device | str = "cpu",
        together: Sequence[NetworkProxy] = (),
        report: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """`together` are the proxies that share one network; `report` gets the number of networks done, and of all."""
        self.config, self.dataset, self.report, self._benchmark = config, dataset, report, benchmark
        self.space: Space = SPACES.get(config.space)() if benchmark is None else benchmark.space
        self.device, self.seed = torch.device(device), config.seed
        self.meter = Meter(self.device)
        self.together = {type(one): one for one in together}
        self._scores: dict[type[NetworkProxy], dict[Architecture, float] | NotApplicable] = {}
        self.seconds: dict[type[NetworkProxy], float] = {}
        """By proxy, what its scores took."""

    @cached_property
    def supernets(self) -> Supernets:
        return build_supernets(self.config, self.dataset, self.device)

    @property
    def benchmark(self) -> Benchmark:
        if self._benchmark is None:
            raise NotApplicable("there is no table of truth")
        return self._benchmark

    @property
    def truth(self) -> str:
        return self.config.rank.truth_of(self.config.dataset)

    @property
    def budget(self) -> float:
        return self.config.train.epochs * passes_per_step(self.config)

    def trained(self, architecture: Architecture, epochs: int) -> float:
        options = self.config.optimiser.options
        recipe = StandaloneRecipe(
            epochs=epochs,
            batch_size=self.config.train.batch_size,
            **{name: options[name] for name in ("learning_rate", "momentum", "weight_decay") if name in options},
        )
        seed = derive(self.seed, "equal cost")
        made = (self.space, architecture, self.dataset, recipe, seed)
        correct = train_standalone(*made, device=self.device, network=self.config.network)
        return 100 * correct.valid[0] / len(self.dataset.valid)

    def untrained(self, architectures: Sequence[Architecture]) -> dict[Architecture, Prediction]:
        return predict(self.supernets, architectures, self.dataset, self.config.rank, self.meter)

    def scored(self, proxy: NetworkProxy, architectures: Sequence[Architecture]) -> Scores:
        classes = {one: self.space.network_class(one) for one in architectures}
        if type(proxy) not in self._scores:
            self._score(list(dict.fromkeys(classes.values())), {type(proxy): proxy, **self.together})
        found = self._scores[type(proxy)]
        if isinstance(found, NotApplicable):
            raise found
        return {one: found[own] for one, own in classes.items()}

    def _score(self, architectures: Sequence[Architecture], proxies: dict[type[NetworkProxy], NetworkProxy]) -> None:
        scores: dict[type[NetworkProxy], dict[Architecture, float]] = {one: {} for one in proxies}
        failed: dict[type[NetworkProxy], NotApplicable] = {}
        seconds = dict.fromkeys(proxies, 0.0)
        images, labels = self._batch()
        for number, architecture in enumerate(architectures):
            begun = time.perf_counter()
            initial = self._initial(architecture, images, labels)
            building = time.perf_counter() - begun
            for kind, proxy in proxies.items():
                if kind in failed and not scores[kind] and number >= TRIED:
                    continue
                begun, initial.shared = time.perf_counter(), building
                try:
                    scores[kind][architecture] = float(proxy.score(initial))
                except NotApplicable as error:
                    failed[kind] = error
                initial.restore()
                seconds[kind] += time.perf_counter() - begun + initial.shared
            self.report(number + 1, len(architectures))
        for kind, own in scores.items():
            known = {one: own.get(one, math.nan) for one in architectures}
            self._scores[kind] = _finite(known) if own or kind not in failed else failed[kind]
        self.seconds |= seconds

    def _batch(self) -> tuple[Tensor, Tensor]:
        size = min(BATCH, len(self.dataset.train))
        batch = loader_for(self.dataset, "train", size, derive(self.seed, "proxy data"), self.device).batch(0)
        return batch.images, batch.labels

    def _initial(self, architecture: Architecture, images: Tensor, labels: Tensor) -> InitialNetwork:
        settings = network_settings(self.space.alone(self.config.network), **self.dataset.inputs)
        with torch.random.fork_rng(devices=[]):
            network = self.space.standalone(architecture, settings)
        initialise(network, self.seed)
        return InitialNetwork(placed(network, self.device).train(), images, labels, self.seed)


def _finite(scores: dict[Architecture, float]) -> dict[Architecture, float]:
    """The scores, with those that are not finite below all others: such a network has no score."""
    known = [value for value in scores.values() if math.isfinite(value)]
    last = min(known, default=0.0) - 1.0
    return {one: value if math.isfinite(value) else last for one, value in scores.items()}


def as_predictions(scores: Scores) -> dict[Architecture, Prediction]:
    """Scores as predictions, which are judged."""

    def prediction(score: Any) -> Prediction:
        return Prediction(*score) if isinstance(score, tuple) else Prediction(float(score))

    return {architecture: prediction(score) for architecture, score in scores.items()}
