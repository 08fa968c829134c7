"""Names that have moved: what earlier versions taught works for one more version, with a warning that says where it is.

A user's component is known by the text of its file, so an edit that only follows a move would lose its runs. One
import hook serves all old modules: it answers only for those that no file answers for any more. To be removed with
version 2.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULES: Mapping[str, Sequence[str]] = {
    "harness.method": ("components.method", "components.schedule", "components.clustering", "components.sampler"),
    "harness.registries": ("components.registries",),
    "harness.space": ("components.space",),
    "harness.config": ("study.configuration", "study.reader"),
    "harness.layout": ("study.layout",),
    "harness.cell": ("training.trial",),
    "harness.benchmarks": ("components.benchmark",),
    "harness.benchmarks.table": ("truth.table",),
    "harness.benchmarks.accuracies": ("truth.imported",),
    "harness.benchmarks.selection": ("components.selection",),
}
"""Old modules, and where what they held is now, in the order in which it is looked for."""

RENAMED: Mapping[str, str] = {"run_cell": "run_trial", "retrain_cell": "retrain_trial"}
"""Names of these modules that changed, too."""


class _Moved(ModuleType):
    """An old module: its names are those of the new ones."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        wanted = RENAMED.get(name, name)
        for place in MODULES[self.__name__]:
            module = importlib.import_module(f"harness.{place}")
            if hasattr(module, wanted):
                return getattr(module, wanted)
        raise AttributeError(f"module {self.__name__!r}, which has moved to {_places(self.__name__)}, has no {name!r}")


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name not in MODULES:
            return None
        return ModuleSpec(name, self, is_package=any(old.startswith(f"{name}.") for old in MODULES))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Moved(spec.name, f"Moved to {_places(spec.name)}.")

    def exec_module(self, module: ModuleType) -> None:
        # Past this module and the import system's own frames, to the line that imports.
        warnings.warn(f"{module.__name__} has moved to {_places(module.__name__)}", FutureWarning, stacklevel=2)


def install() -> None:
    """Have old names answered, once per process."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())


def _places(module: str) -> str:
    return " and ".join(f"harness.{place}" for place in MODULES[module])
