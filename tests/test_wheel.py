"""The installed wheel, away from the checkout: it brings `harness` and nothing else, and works in an empty folder."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

from harness import __version__
from harness.components.preset import get_preset
from harness.environment import PROJECT
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from tests import wheel
from tests.wheel import install

METHOD = '''from harness.components.method import Method
from harness.components.registries import METHODS


@METHODS.register("mine")
class Mine(Method):
    """A method of the user's own."""

    def paths(self, training):
        return [training.source.draw(training.rng)]
'''
ONE_TRIAL = ["--preset", "tiny", "--seeds", "1", "--only", "method.name=spos,schedule.name=cosine,clusters.name=none"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Site-packages with the wheel in it."""
    return install(tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site"))


def harness(site: Path, folder: Path, *arguments: str) -> str:
    """What a command prints."""
    done = wheel.harness(site, folder, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_installs_nothing_but_the_package(site: Path) -> None:
    assert sorted(path.name for path in site.iterdir()) == ["bin", "harness", f"nas_harness-{__version__}.dist-info"]
    kept = {path.relative_to(site / "harness" / "_shipped") for path in site.glob("harness/_shipped/**/*.*")}
    for folder in ("methods", "spaces", "studies", "reports"):
        ours = [path for path in (PROJECT / folder).rglob("*.*") if "__pycache__" not in path.parts]
        missing = {path.relative_to(PROJECT) for path in ours if "measured" not in path.parts} - kept
        assert not missing, f"the wheel lacks {missing}"
    assert Path("constraints.txt") in kept
    assert not [path for path in kept if "measured" in path.parts]  # archives and pieces are for the repository
    templates = {path.name for path in (PROJECT / "harness" / "cli" / "_templates").glob("*.template")}
    assert (site / "harness" / "py.typed").is_file()  # counts for all packages inside it
    assert len(templates) == 5 and templates == {path.name for path in site.glob("harness/cli/_templates/*.template")}


def test_its_metadata_says_what_it_is(site: Path) -> None:
    (about,) = (metadata.PathDistribution(path).metadata for path in site.glob("*.dist-info"))
    assert about["Author"] == "the nas-harness developers" and about["License-Expression"] == "MIT"
    assert str(about.json["description"]).startswith("# ") and "neural architecture search" in about["Keywords"]
    assert about["Requires-Python"] == ">=3.11" and "Typing :: Typed" in about.get_all("Classifier", [])


def test_it_lists_runs_and_reports_in_an_empty_folder_beside_a_users_own_method(site: Path, tmp_path: Path) -> None:
    for name in ("methods", "reports", "studies", "spaces"):
        foreign = site / name
        foreign.mkdir(exist_ok=True)
        (foreign / "__init__.py").write_text("raise RuntimeError('a foreign package was imported')\n")
        (foreign / "broken.py").write_text("raise RuntimeError('a foreign file was imported')\n")
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "mine.py").write_text(METHOD)
    assert "written: methods/my_own.py" in harness(site, tmp_path, "new", "method", "my-own")
    listed = harness(site, tmp_path, "list")
    assert str(site / "harness" / "_shipped" / "methods" / "spos.py") in harness(site, tmp_path, "explain", "spos")
    assert "A method of the user's own." in listed and "broken" not in listed and str(PROJECT) + "/" not in listed
    assert "1 of 1 trials done" in harness(site, tmp_path, "run", "ablation_calr_ms", *ONE_TRIAL)
    (run,) = DirectoryStore(tmp_path / "runs").runs()
    asked = expand(find_studies("ablation_calr_ms")[0], get_preset("tiny"), 1)
    assert run.key == asked[0].trial.key, "an installed package must know the runs of a checkout"
    record = json.loads((tmp_path / "runs" / run.id / "run.json").read_text())
    assert record["experiment"]["name"] == "ablation_calr_ms: SPOS"
    info = json.loads((tmp_path / "runs" / run.id / "info.json").read_text())
    assert info["asked"]["rows"] == {"ablation_calr_ms": "SPOS"} and info["asked"]["metrics"][0] == "kendall_tau"
    (origin,) = record["experiment"]["repositories"]
    assert (origin["commit"], origin["version"]) == (None, __version__)
    assert "| SPOS" in harness(site, tmp_path, "report", "ablation_calr_ms", *ONE_TRIAL[:4])
