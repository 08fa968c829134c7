"""The registries: one instance per kind. The engine reaches every component through them.

A lookup loads the component files first (`harness.components.discovery`). This module must not
import a component, nor anything heavy: component files import it to register themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.components.registry import Registry

if TYPE_CHECKING:
    from harness.components.space import Space


def _discover() -> None:
    from harness.components.discovery import discover

    discover()


METHODS: Registry[Any] = Registry("method", _discover)
SPACES: Registry[type[Space]] = Registry("space", _discover)
DATASETS: Registry[Any] = Registry("data set", _discover, takes=())
BENCHMARKS: Registry[Any] = Registry("benchmark", _discover, takes=())
IMPORTERS: Registry[Any] = Registry("importer", _discover)
SCHEDULES: Registry[Any] = Registry("learning-rate schedule", _discover)
CLUSTER_RULES: Registry[Any] = Registry("cluster rule", _discover)
SAMPLERS: Registry[Any] = Registry("sampler", _discover)
ORDERS: Registry[Any] = Registry("order of samples", _discover)
AUGMENTATIONS: Registry[Any] = Registry("augmentation", _discover)
SEARCHES: Registry[Any] = Registry("search", _discover)
METRICS: Registry[Any] = Registry("metric", _discover, takes=("predicted", "truth", "complexity"))
"""Functions of predicted accuracies, true accuracies and complexity of some architectures that return a number."""
OBSERVATIONS: Registry[Any] = Registry("observation", _discover, takes=("supernets", "progress", "dataset"))
"""Functions of the supernets and the progress of training that return numbers by name; see `observers/curves.py`."""
OPTIMISERS: Registry[Any] = Registry("optimiser", _discover)
PRESETS: Registry[Any] = Registry("preset", _discover)

REGISTRIES: Mapping[str, Registry[Any]] = {
    "methods": METHODS,
    "spaces": SPACES,
    "datasets": DATASETS,
    "benchmarks": BENCHMARKS,
    "importers": IMPORTERS,
    "schedules": SCHEDULES,
    "cluster-rules": CLUSTER_RULES,
    "samplers": SAMPLERS,
    "orders": ORDERS,
    "augmentations": AUGMENTATIONS,
    "searches": SEARCHES,
    "metrics": METRICS,
    "observations": OBSERVATIONS,
    "optimisers": OPTIMISERS,
    "presets": PRESETS,
}
"""All registries, by the word that the command line uses."""
