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


def _why_missing(name: str) -> list[str]:
    from harness.components.discovery import why_missing

    return why_missing(name)


METHODS: Registry[Any] = Registry("method", _discover, _why_missing)
SPACES: Registry[type[Space]] = Registry("space", _discover, _why_missing)
DATASETS: Registry[Any] = Registry("data set", _discover, _why_missing, ())
BENCHMARKS: Registry[Any] = Registry("benchmark", _discover, _why_missing, ())
IMPORTERS: Registry[Any] = Registry("importer", _discover, _why_missing)
SCHEDULES: Registry[Any] = Registry("learning-rate schedule", _discover, _why_missing)
CLUSTER_RULES: Registry[Any] = Registry("cluster rule", _discover, _why_missing)
SAMPLERS: Registry[Any] = Registry("sampler", _discover, _why_missing)
ORDERS: Registry[Any] = Registry("order of samples", _discover, _why_missing)
AUGMENTATIONS: Registry[Any] = Registry("augmentation", _discover, _why_missing)
SEARCHES: Registry[Any] = Registry("search", _discover, _why_missing)
PROXIES: Registry[Any] = Registry("proxy", _discover, _why_missing)
METRICS: Registry[Any] = Registry("metric", _discover, _why_missing, ("predicted", "truth", "complexity"))
"""Functions of predicted accuracies, true accuracies and complexity of some architectures that return a number."""
OBSERVATIONS: Registry[Any] = Registry("observation", _discover, _why_missing, ("supernets", "progress", "dataset"))
"""Functions of the supernets and the progress of training that return numbers by name; see `observers/curves.py`."""
OPTIMISERS: Registry[Any] = Registry("optimiser", _discover, _why_missing)
RENDERERS: Registry[Any] = Registry("report format", _discover, _why_missing)
PRESETS: Registry[Any] = Registry("preset", _discover, _why_missing, parts=True)

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
    "proxies": PROXIES,
    "metrics": METRICS,
    "observations": OBSERVATIONS,
    "optimisers": OPTIMISERS,
    "formats": RENDERERS,
    "presets": PRESETS,
}
"""All registries, by the word that the command line uses."""
