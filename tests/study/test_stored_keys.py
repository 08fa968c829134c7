"""The keys of configurations as earlier versions stored them. A key that changes here loses its users' runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.components import discovery, method, registries
from harness.components.code import text_digest
from harness.study.trial import Trial

STORED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("stored_keys.json").read_text())

TWO_PATHS = '''from harness.method import Method
from harness.registries import METHODS

@METHODS.register("two-paths")
class TwoPaths(Method):
    """Two uniform paths a step, their gradients summed."""
    def paths_per_step(self, space):
        return 2
    def paths(self, training):
        return [training.source.draw(training.chance) for _ in range(2)]
'''
"""A user's method, written for modules of an earlier version, for which its text was part of its trials' identity."""


@pytest.mark.parametrize("name", list(STORED))
def test_a_configuration_keeps_the_key_that_it_was_stored_under(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "two_paths.py").write_text(TWO_PATHS)
    monkeypatch.chdir(tmp_path)
    for old, new in {"harness.method": method, "harness.registries": registries}.items():
        monkeypatch.setitem(sys.modules, old, new)
    stored = STORED[name]
    with discovery.fresh():
        of_user = stored["config"].get("method") == "two-paths"
        recorded = {"method": text_digest(TWO_PATHS.encode())} if of_user else {}
        document = {"config": stored["config"], "parent": None, "recorded": recorded}
        trial = Trial.from_json(document | ({"images": stored["images"]} if stored["images"] else {}))
        trial = Trial.of(trial.config) if trial.config.retrain is not None else trial
        assert trial.key == stored["key"]
        if "ranking_key" in stored:
            assert trial.ranking_key_here() == stored["ranking_key"]
