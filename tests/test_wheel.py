"""The installed wheel, away from the checkout: it brings `harness` and nothing else, and works in an empty folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from harness import __version__
from harness.components.preset import get_preset
from harness.environment import PROJECT
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.expansion import expand

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
    """Site-packages with the wheel in it, and with foreign packages whose names our folders have."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    for name in ("harness", "methods", "spaces", "studies", "reports"):
        shutil.copytree(PROJECT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(PROJECT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*build, "--no-deps", "--no-build-isolation", "-w", str(source), str(source)], check=True)
    (wheel,) = source.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def harness(site: Path, folder: Path, *arguments: str) -> str:
    """What a command prints, run in a folder with nothing but the site-packages."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HARNESS_")}
    done = subprocess.run(
        [sys.executable, "-m", "harness", *arguments],
        cwd=folder,
        env={**clean, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_installs_nothing_but_the_package(site: Path) -> None:
    assert sorted(path.name for path in site.iterdir()) == ["harness", f"nas_harness-{__version__}.dist-info"]
    kept = {path.relative_to(site / "harness" / "_shipped") for path in site.glob("harness/_shipped/**/*.*")}
    for folder in ("methods", "spaces", "studies", "reports"):
        ours = [path for path in (PROJECT / folder).rglob("*.*") if "__pycache__" not in path.parts]
        missing = {path.relative_to(PROJECT) for path in ours if "measured" not in path.parts} - kept
        assert not missing, f"the wheel lacks {missing}"
    templates = {path.name for path in (PROJECT / "harness" / "cli" / "_templates").glob("*.template")}
    assert len(templates) == 5 and templates == {path.name for path in site.glob("harness/cli/_templates/*.template")}


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
    (origin,) = record["experiment"]["repositories"]
    assert (origin["commit"], origin["version"]) == (None, __version__)
    assert "| SPOS" in harness(site, tmp_path, "report", "ablation_calr_ms", *ONE_TRIAL[:4])
