"""The static site: complete, without a server, with the report's numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from harness import results
from harness.cli import main
from tests.view.conftest import NASTY

Capture = pytest.CaptureFixture[str]


def data_of(page: Path) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found
    return dict(json.loads(found[1]))


def test_it_has_a_page_for_every_study_and_run(stored: list[str], capsys: Capture) -> None:
    assert main(["view", "mine", "--store", "runs", "--export", "site"]) == 0
    assert "wrote 8 pages" in capsys.readouterr().out
    site = Path("site")
    for name in ("index.html", "runs.html", "compare.html", "study/tiny/mine.html", f"run/{stored[0]}.html"):
        assert (site / name).is_file()
    text = "".join(page.read_text() for page in site.rglob("*.html"))
    assert NASTY not in text and "http://" not in re.sub(r"http://www\.w3\.org/\S+", "", text)
    for page in site.rglob("*.html"):
        for target in re.findall(r'(?:src|href)="([^"#?]+)"', page.read_text()):
            if not target.startswith("data:"):
                assert (page.parent / target).resolve().is_file(), (page, target)


def test_its_numbers_are_those_of_the_report(stored: list[str]) -> None:
    assert main(["view", "mine", "--store", "runs", "--export", "site"]) == 0
    table = results.table("mine", store="runs", preset="tiny")
    shown = str(data_of(Path("site/study/tiny/mine.html"))["html"])
    means = table.xs("mean", axis=1, level=-1) if table.columns.nlevels > 1 else table[["mean"]]
    assert len(means) == 2
    for mean in means.to_numpy().ravel():
        assert f"{mean:.3f}" in shown


def test_curves_with_statistics_and_each_run_are_inside(stored: list[str]) -> None:
    assert main(["view", "--store", "runs", "--export", "site"]) == 0
    curves = data_of(Path("site/study/tiny/mine.html"))["curves"]
    assert curves["kendall_tau"]["step"]["groups"][0]["mean"] == [0.3, 0.6]  # type: ignore[index]
    script = Path(f"site/data/{stored[0]}.js").read_text()
    assert script.startswith("globalThis.harnessRuns[") and '"schedule.name": "cosine"' in script


def test_it_overwrites_nothing(stored: list[str], capsys: Capture) -> None:
    Path("site").mkdir()
    Path("site/mine.txt").write_text("mine")
    assert main(["view", "--store", "runs", "--export", "site"]) == 2
    assert "not an empty folder" in capsys.readouterr().err and [*Path("site").iterdir()] == [Path("site/mine.txt")]


def test_wrong_requests_are_named(folder: Path, stored: list[str], capsys: Capture) -> None:
    assert main(["view", "mina", "--store", "runs", "--export", "site"]) == 2
    assert "did you mean 'mine'" in capsys.readouterr().err
    assert main(["view", "--store", "nowhere", "--export", "site"]) == 2
    assert main(["view", "--store", "runs", "--bind", "192.0.2.1", "--port", "1"]) == 2
    assert "cannot listen on 192.0.2.1, port 1" in capsys.readouterr().err
    Path("empty").mkdir()
    assert main(["view", "--store", "empty", "--export", "site"]) == 2
    assert "holds no runs" in capsys.readouterr().err
