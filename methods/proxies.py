"""Proxies that need no pass of a stand-alone network: sizes, random numbers, and the supernet before training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from harness.components.proxy import NotApplicable, Proxy, Scene, Scores
from harness.components.registries import PROXIES
from harness.components.space import Architecture
from harness.seeds import make_rng


@PROXIES.register("untrained")
class Untrained(Proxy):
    """The supernet with its initial weights."""

    label: ClassVar[str] = "Untrained supernet"
    order: ClassVar[int] = 0
    supernet: ClassVar[bool] = True
    accuracies: ClassVar[bool] = True

    def predict(self, scene: Scene, architectures: Sequence[Architecture]) -> Scores:
        return scene.untrained(architectures)


@PROXIES.register("parameters")
class Parameters(Proxy):
    """The number of parameters of the stand-alone network, at the space's published size."""

    label: ClassVar[str] = "Number of parameters"
    order: ClassVar[int] = 1

    def predict(self, scene: Scene, architectures: Sequence[Architecture]) -> Scores:
        return {one: scene.space.complexity(one) for one in architectures}


@PROXIES.register("random")
class Random(Proxy):
    """Random numbers, one per architecture."""

    label: ClassVar[str] = "Random numbers"
    order: ClassVar[int] = 2

    def predict(self, scene: Scene, architectures: Sequence[Architecture]) -> Scores:
        rng = make_rng(scene.seed, "random reference")
        return {one: rng.random() for one in architectures}


@PROXIES.register("flops")
class Flops(Proxy):
    """The multiply-adds of the stand-alone network for one image, at the space's published size."""

    label: ClassVar[str] = "FLOPs"
    order: ClassVar[int] = 3

    def predict(self, scene: Scene, architectures: Sequence[Architecture]) -> Scores:
        if "flops" not in scene.space.complexity_counts:
            raise NotApplicable(f"{scene.space.name} counts no FLOPs")
        return {one: scene.space.complexity(one, "flops") for one in architectures}
