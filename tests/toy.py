"""A real miniature project: a user's folder as the current directory, the toy space's configurations, own methods."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.components import discovery
from harness.study.configuration import RunConfig

TOY: dict[str, Any] = {
    "space": "toy",
    "dataset": "toy",
    "benchmark": "toy",
    "network": {"width": 4},
    "train": {"epochs": 4, "batch_size": 16},
    "optimiser": {"learning_rate": 0.1},
}
"""A configuration of the toy space that trains in a moment."""

SINGLE_PATH = """from dataclasses import dataclass
from harness.components.method import Method
from harness.components.registries import METHODS

@METHODS.register("{name}")
@dataclass(frozen=True)
class {type}(Method):
    '''As SPOS.'''

    def paths(self, training):
        return [training.source.draw(training.rng)]
"""
"""A method of a user's own, to be given a name."""


def toy_config(**more: Any) -> RunConfig:
    """`TOY` with these sections in place of its own."""
    return RunConfig.from_json(TOY | more)


@contextmanager
def user_folder(folder: Path, files: Mapping[str, str] | None = None) -> Iterator[Path]:
    """Within, the folder with these files in it is the current directory of a user who has set no variable of ours.

    Components are discovered in it; afterwards all is as it was.
    """
    for name, text in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with discovery.fresh(), pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for variable in [name for name in os.environ if name.startswith("HARNESS_")]:
            patch.delenv(variable)
        yield folder
