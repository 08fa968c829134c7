"""What earlier versions taught still works, with a warning: imports, names, a method and the README's snippet."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.components import discovery, moved
from harness.stores.directory.store import DirectoryStore
from tests.study.test_stored_keys import TWO_PATHS

TAUGHT = {
    "harness.method": ("Method", "Part", "Schedule", "ClusterRule", "Clustering", "Sampler", "PathSource"),
    "harness.registries": ("METHODS", "SPACES", "DATASETS", "SCHEDULES", "CLUSTER_RULES", "SAMPLERS", "BENCHMARKS"),
    "harness.space": ("Space", "Architecture", "NetworkSettings"),
    "harness.cell": ("run_cell", "retrain_cell", "run_reference"),
    "harness.config": ("RunConfig",),
}

STUDY = """from harness.study import Column, Row, Study

study = Study(
    name="mine",
    title="One path or two",
    rows=[Row({"Method": name}, {"method.name": name}) for name in ("spos", "two-paths")],
    columns=[Column("Kendall's τ", "kendall_tau")],
)
"""

SNIPPET = """from harness.cell import run_cell, run_reference
from harness.config import RunConfig

config = RunConfig.from_json({
    "method": "spos",
    "schedule": {"name": "calr", "gamma_prime": 4},     # or "cosine", "constant", "polynomial"
    "clusters": "operation",                            # momentum separation; "none" without
    "network": {"width": 4, "depth": 1},
    "train": {"epochs": 20},
    "rank": {"images": 256, "candidates": 200},
})
trained = run_cell(config).result                       # Kendall's τ, top-1 accuracy looked up
untrained = run_reference(config, "untrained").result   # the same judgement of an untrained supernet
"""


@pytest.mark.parametrize("old", list(TAUGHT))
def test_an_old_module_gives_the_same_objects_and_says_where_they_are(old: str) -> None:
    sys.modules.pop(old, None)
    with pytest.warns(FutureWarning, match=f"{old} has moved to harness.{moved.MODULES[old][0]}"):
        module = importlib.import_module(old)
    for name in TAUGHT[old]:
        places = [importlib.import_module(f"harness.{place}") for place in moved.MODULES[old]]
        new = moved.RENAMED.get(name, name)
        assert any(getattr(place, new, None) is getattr(module, name) for place in places), name
    with pytest.raises(AttributeError, match="has moved to"):
        _ = module.never_there


def test_what_did_not_move_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("harness.study", "harness.results"):
            importlib.import_module(name)
        from harness.study import Bars, Column, Curves, Figure, Row, Study  # noqa: F401
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("harness.never_there")


def test_a_method_as_the_readme_printed_it_keeps_its_key_and_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers are those of the version before the move."""
    for name, text in (("methods/two_paths.py", TWO_PATHS), ("studies/mine.py", STUDY)):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARNESS_STORE", raising=False)
    with discovery.fresh(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        assert main(["run", "mine", "--preset", "tiny", "--seeds", "1", "--jobs", "1", "--no-references"]) == 0
    found = {run.key[:16]: run for run in DirectoryStore(tmp_path / "runs").runs()}
    assert found.keys() == {"6b50344f4df9159b", "aa554b2070d7aaa4"}
    # Another kind of machine adds in another order: there the last digits may differ.
    assert _tau(found["6b50344f4df9159b"].result) == pytest.approx(0.3165, abs=0.05)
    assert _tau(found["aa554b2070d7aaa4"].result) == pytest.approx(0.3843, abs=0.05)


def test_the_readmes_snippet_without_the_command_line() -> None:
    """Its numbers are those of the version before the move."""
    scope: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        exec(SNIPPET, scope)
    assert _tau(scope["trained"]) == pytest.approx(0.49297, abs=0.05)
    assert _tau(scope["untrained"]) == pytest.approx(0.05187, abs=0.05)
    assert (scope["trained"]["selected"], scope["trained"]["ranked"]) == (218, 418)


def _tau(result: dict[str, Any] | None) -> float:
    assert result is not None
    return float(result["kendall_tau"])
