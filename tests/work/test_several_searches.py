"""Several searches with one supernet: trained once, each search killed and resumed, what each found retrained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest

from harness import results
from harness.cli import main
from harness.components.discovery import component
from harness.components.preset import get_preset
from harness.components.registries import SPACES
from harness.stores.directory.store import DirectoryStore
from harness.stores.stored import StoredRun
from harness.study.catalogue import find_studies
from harness.work.plan import Plan, make_plan
from harness.work.states import State
from tests.huge import SPACE
from tests.jobs import died, job
from tests.toy import user_folder

LIMITS = (270, 300, 330)
STUDY = """
from harness.study import Column, Figure, Row, SearchPlot, Study

common = {
    "benchmark": None, "network.channels": 6, "train.epochs": 1,
    "rank.images": 64, "rank.batch_size": 16, "rank.candidates": 2,
    "search": {"name": "evolution", "population": 6, "generations": 3, "parents": 2, "mutations": 3, "crossovers": 2},
}
rows = [
    Row({"Limit": str(most)}, common | {"search.limits.parameters": [None, most], "retrain.epochs": 1})
    for most in (270, 300, 330)
]
plots = [SearchPlot(f"At most {most}", {"Limit": str(most)}, "parameters", "Parameters") for most in (270, 300, 330)]
study = Study(
    "limits", "Three limits", rows, [Column("Retrained", "retrained_accuracy", digits=2)], space="huge",
    figures=[Figure("searches", "Three searches", plots)],
)
"""
ASKED = ["limits", "--preset", "tiny", "--seeds", "1"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    files = {"spaces/huge.py": SPACE, "studies/limits.py": STUDY}
    with user_folder(tmp_path_factory.mktemp("limits"), files) as folder:
        yield folder


@pytest.fixture(scope="module")
def store(project: Path) -> str:
    """A store of the whole study, made job by job."""
    whole = "whole"
    assert job(planned(whole).work[0].trial, whole)["status"] == "done"
    for work in planned(whole).work[0].unranked:
        assert job(work.trial, whole, "rank")["status"] == "done"
    for work in planned(whole).work[1:]:
        assert job(work.trial, whole)["status"] == "done"
    return whole


def planned(store: str) -> Plan:
    runs = DirectoryStore(Path(store)).runs() if Path(store).exists() else []
    return make_plan(find_studies("limits"), "tiny", runs, seeds=1)


def supernet(store: str) -> StoredRun:
    """The one run that trained a supernet."""
    runs = [run for run in DirectoryStore(Path(store)).runs() if run.counts]
    (run,) = [run for run in runs if "retrain" not in run.trial["config"]]
    return run


def test_the_plan_counts_one_training_and_three_searches(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plan = planned("nowhere")
    assert len(plan.work) == 4 and plan.searches == 3  # one supernet, three retrainings
    assert [work.trial.config.retrain is None for work in plan.work] == [True, False, False, False]
    assert main(["plan", *ASKED]) == 0
    text = capfd.readouterr().out
    assert "4 trials" in text and "3 searches with trained supernets" in text


def test_each_limit_has_its_own_search_of_the_same_weights(store: str, project: Path) -> None:
    run, space = supernet(store), SPACES.get("huge")()
    assert run.attempt == 1 and len(run.rankings) == 3
    asked = {run.own_ranking: run.trial["config"]} | run.asked
    most = {key: asked[key]["search"]["limits"]["parameters"][1] for key in run.rankings}
    assert sorted(most.values()) == list(LIMITS)
    for key, ranking in run.rankings.items():
        (found,) = ranking["found"]
        assert space.complexity(tuple(found["architecture"])) * 6 // 4 <= most[key]
        assert ranking["scored"] == {"0": 18}
    retrained = [one.result or {} for one in DirectoryStore(Path(store)).runs() if "retrain" in one.trial["config"]]
    found = sorted(ranking["found"][0]["architecture"] for ranking in run.rankings.values())
    assert sorted(one["top1"] for one in retrained) == found
    assert all(work.state is State.DONE for work in planned(store).work)


def test_all_scores_are_a_table(store: str, project: Path) -> None:
    run = supernet(store)
    table = results.searches(results.runs(store=store))
    assert list(table)[:7] == ["run_id", "ranking", "order", "generation", "architecture", "images", "accuracy"]
    assert set(table.run_id) == {run.id} and set(table.ranking) == set(run.rankings) and len(table) == 3 * 18
    for key, own in table.groupby("ranking"):
        assert list(own.order) == list(range(18)) and own.generation.is_monotonic_increasing
        assert set(own.generation) == {0, 1, 2} and set(own.images) == {64}
        best = run.rankings[str(key)]["found"][0]
        assert own.accuracy.max() == best["score"] and own.parameters.max() <= max(LIMITS)
    assert results.searches(results.runs(store=store, where="attempt > 1"), store).empty


def test_a_supernet_stands_once_for_every_search_of_a_study(store: str, project: Path) -> None:
    """Rows of a study without retraining are the searches themselves."""
    (study,) = find_studies("limits")
    rows = [replace(row, settings={k: v for k, v in row.settings.items() if "retrain" not in k}) for row in study.rows]
    table = results.runs(study=replace(study, rows=rows), store=store)
    assert set(table.run_id) == {supernet(store).id} and list(table.row) == [0, 1, 2]
    assert [ends[1] for ends in table.search_limits_parameters] == list(LIMITS)
    found = [ranking["found"] for ranking in supernet(store).rankings.values()]
    assert sorted(map(json.dumps, table.found)) == sorted(map(json.dumps, found))


def built(store: str) -> Any:
    """The study's figure, as values."""
    opened, (study,) = DirectoryStore(Path(store)), find_studies("limits")
    found = component("reports.evidence").find(study, get_preset("tiny", "huge"), opened, 1)
    (figure,) = component("reports.figures").build(found, opened)
    return figure


def test_the_report_draws_every_search_the_same_each_time(store: str, project: Path) -> None:
    assert main(["report", *ASKED, "--store", store, "--out", "out", "--strict"]) == 0
    figure, draw = built(store), component("reports.render.drawing").draw
    for kind in ("svg", "pdf"):
        assert Path(f"out/limits-searches.{kind}").read_bytes() == draw(figure, kind)
    table = pandas.read_csv("out/limits-searches.csv", dtype={"label": str})
    assert list(table.groupby("panel").size()) == [18] * 3 and set(table.generation) == {0, 1, 2}
    own = results.searches(supernet(store).id, store)
    assert sorted(table.y) == sorted(own.accuracy) and sorted(table.x) == sorted(own.parameters)
    assert set(table.label) == set(own.architecture)
    assert [panel.limits for panel in figure.panels] == [(float(most),) for most in LIMITS]
    assert all(len(panel.found) == 1 and panel.found[0].y == max(p.y for p in panel.points) for panel in figure.panels)
    assert figure.runs == (supernet(store).id,) and not figure.missing
    assert "<image" not in Path("out/limits-searches.svg").read_text()  # colours are drawn as areas, too


def test_a_search_that_is_not_there_is_named_under_its_figure(project: Path) -> None:
    assert job(planned("first").work[0].trial, "first")["status"] == "done"
    figure = built("first")
    assert [len(panel.points) for panel in figure.panels] == [18, 0, 0]
    assert len(figure.missing) == 2 and "At most 300: trained, but not ranked as requested" in figure.missing[0]


def test_killed_in_each_they_end_with_the_same_bytes(store: str, project: Path) -> None:
    killed, trial = "killed", planned("nowhere").work[0].trial
    for stage, calls in (("train", 2), ("search", 50)):  # the first search is made with the training
        Path(f"die-{stage}").write_text(str(calls))
        assert died(trial, killed) and not list(project.glob("die-*"))
    assert job(trial, killed)["status"] == "done"
    for work in planned(killed).work[0].unranked:
        Path("die-search").write_text("10")
        assert died(work.trial, killed, "rank") and not list(project.glob("die-*"))
        assert job(work.trial, killed, "rank")["status"] == "done"
    assert not list((Path(killed) / "work").glob("*.checkpoint"))
    assert outcome(killed) == outcome(store)
    run = supernet(killed)
    later = [Path(killed) / run.id / "rankings" / f"{key}.json" for key in run.rankings if key != run.own_ranking]
    costs = [run.cost or {}, *(json.loads(path.read_text())["cost"] for path in later)]
    assert [cost["resumed"] for cost in costs] == [2, 1, 1]


def outcome(store: str) -> dict[str, Any]:
    """What must be the same however the searches were made: results and every score."""
    run, opened = supernet(store), DirectoryStore(Path(store))
    return {key: [run.rankings[key], opened.searched(run, key)] for key in sorted(run.rankings)}


def test_searches_of_one_supernet_are_jobs_of_their_own(store: str, project: Path) -> None:
    trial = planned("nowhere").work[0].trial
    assert job(trial, "trained")["status"] == "done"
    work = planned("trained").work[0]
    assert work.state is State.RANK
    assert [one.label for one in work.unranked] == ["limits/300 search seed 0", "limits/330 search seed 0"]
    assert len({one.trial.ranking_key for one in work.unranked}) == 2


@pytest.mark.long
def test_the_same_by_the_command_line(store: str, project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *ASKED, "--jobs", "2", "--store", "left alone"]) == 0
    assert outcome("left alone") == outcome(store) and all(
        work.state is State.DONE and len(work.attempts) == 1 for work in planned("left alone").work
    )
    assert "stays waiting" not in capfd.readouterr().out
    again = ["run", *ASKED, "--jobs", "1", "--store", "commanded", "--checkpoint-every", "0", "--retry", "all"]
    for calls in (2, 50, 20, 10):
        Path("die-train" if calls == 2 else "die-search").write_text(str(calls))
        assert main(again) == 1
        assert not list(project.glob("die-*"))
    assert main(again) == 0
    assert outcome("commanded") == outcome(store)
