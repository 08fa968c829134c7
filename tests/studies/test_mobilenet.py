"""The studies and presets of the MobileNet space: what they ask for, and what their rows show."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from harness import results
from harness.cli import main
from harness.components.discovery import component
from harness.components.preset import FromPreset, Preset, get_preset
from harness.components.registries import SPACES
from harness.errors import InvalidConfiguration
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.study.layout import Column, Row
from harness.study.study import Request, Study
from harness.work.plan import make_plan
from tests.jobs import job


def requests(study: str, preset: str, **overrides: Any) -> list[Request]:
    (found,) = find_studies(study)
    return expand(found, get_preset(preset, "mobilenet"), overrides=overrides)


@pytest.mark.parametrize("study", ["mobilenet_gamma_grid", "mobilenet_layer_selection"])
def test_the_paper_retrains_half_as_long_in_tables_l_and_m(study: str) -> None:
    epochs = {
        name: {one.trial.config.retrain.epochs for one in requests(name, "paper") if one.trial.config.retrain}
        for name in (study, "mobilenet_main")
    }
    assert epochs == {study: {240}, "mobilenet_main": {480}}


def test_the_paper_preset_is_what_the_paper_says() -> None:
    by_method = {one.trial.config.method.name: one.trial.config for one in requests("mobilenet_main", "paper")}
    assert {name: config.train.epochs for name, config in by_method.items()} == {
        "spos": 150,
        "fairnas": 75,
        "fsnas": 100,
    }
    config = by_method["spos"]
    assert config.space == "mobilenet" and config.dataset == "imagenet" and config.benchmark is None
    assert (config.train.batch_size, config.optimiser.learning_rate, config.optimiser.weight_decay) == (
        512,
        0.045,
        4e-5,
    )
    assert config.search is not None and (config.search.population, config.search.generations) == (50, 20)
    assert (config.rank.calibration, config.rank.batch_size, config.rank.images) == (200, 128, 8000)
    gammas = {
        one.trial.config.schedule.gamma_prime
        for one in requests("mobilenet_main", "paper")
        if one.trial.config.schedule.name == "calr"
    }
    assert gammas == {3.0}
    limits = {
        tuple(one.trial.config.search.limits["flops"])
        for one in requests("mobilenet_main", "paper")
        if one.trial.config.search
    }
    assert limits == {(None, 330_000_000), (None, 400_000_000), (None, 475_000_000)}


def test_one_supernet_serves_three_limits_and_few_shot_retrains_all_that_it_finds() -> None:
    plan = make_plan(find_studies("mobilenet_main"), get_preset("demo", "mobilenet"), [], seeds=1)
    trials = [work.trial for work in plan.work]
    supernets = [one for one in trials if one.start is None]
    assert len(supernets) == 6  # three methods, each with and without CaLR and MS
    retrained = {name: sum(one.config.method.name == name for one in trials if one.start) for name in ("spos", "fsnas")}
    assert retrained == {"spos": 6, "fsnas": 18}  # three sub-supernets each
    shared = {work.trial.key: {one.trial.ranking_key for one in work.requests} for work in plan.work}
    assert all(len(shared[one.key]) == 3 for one in supernets)


def test_a_row_takes_its_limit_from_the_preset() -> None:
    study = Study(
        "mine",
        "Mine",
        [Row({"": ""}, {"search.name": "random", "search.limits.flops": [None, FromPreset("S")]})],
        [Column("Found", "scored.0")],
        space="mobilenet",
    )
    (first, *_) = expand(study, get_preset("demo", "mobilenet"))
    assert first.trial.config.search is not None
    assert first.trial.config.search.limits == {"flops": [None, 850_000]}
    assert first.trial.config.space == "mobilenet-reduced"
    with pytest.raises(
        InvalidConfiguration, match=r"preset bare of mobilenet has no value 'S' for a row; it has: none"
    ):
        expand(study, Preset("bare", "", 1, ("digits-16",), "mobilenet", {"space": "mobilenet-reduced"}))


STUDY = """
from harness.study import Column, Figure, FoundDrawing, FromPreset, Row, Study

found = {"method.name": "fsnas", "search.name": "evolution", "search.limits.flops": [None, FromPreset("M")],
         "search.each_supernet": True, "retrain.which": "all"}
study = Study("few", "Few", [Row({"Method": "FSNAS"}, found)],
              [Column("Top-1", "retrained_accuracy"), Column("FLOPs", "retrained_flops", digits=0),
               Column("Memory", "supernet.training_memory_bytes", digits=0)],
              space="mobilenet", figures=[Figure("found", "Found", [FoundDrawing("M", {"Method": "FSNAS"})])])
"""


def test_each_sub_supernet_is_searched_and_the_best_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.py").write_text(STUDY)
    (study,) = find_studies("few.py")
    preset = get_preset("tiny", "mobilenet")
    for work in make_plan([study], preset, [], seeds=1).work:
        assert job(work.trial, "runs")["status"] == "done"
    runs = {run.trial["config"].get("retrain") is not None: run for run in DirectoryStore(tmp_path / "runs").runs()}
    space = SPACES.get("mobilenet-reduced")()
    result = runs[False].result
    assert result is not None and space.split is not None
    found = [tuple(one["architecture"]) for one in result["found"]]
    assert sorted(one[space.split] for one in found) == [0, 1, 2]  # one of each sub-supernet
    scores = [one["score"] for one in result["found"]]
    assert scores == sorted(scores, reverse=True)
    table = results.runs(store="runs")
    assert (table["retrained_flops"].dropna() <= preset.values["M"]).all()
    assert main(["report", "few.py", "--preset", "tiny", "--seeds", "1", "--format", "csv"]) == 0
    shown = {one["metric"]: float(one["value"]) for one in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    best = table[table["retrained_accuracy"] == table["retrained_accuracy"].max()]
    assert shown["retrained_accuracy"] == best["retrained_accuracy"].max()
    assert shown["retrained_flops"] in set(best["retrained_flops"])
    cost = runs[False].cost
    assert cost is not None and shown["supernet.training_memory_bytes"] == cost["training_memory_bytes"]
    figure = component("reports.figures").build(
        component("reports.evidence").find(study, preset, DirectoryStore(tmp_path / "runs"), 1)
    )[0]
    assert figure.panels and not figure.missing and any("M: " in note for note in figure.notes)


def test_a_search_of_each_supernet_finds_so_many_in_each() -> None:
    study = Study(
        "mine",
        "Mine",
        [
            Row(
                {"": ""},
                {
                    "method.name": "fsnas",
                    "search.name": "random",
                    "search.keep": 2,
                    "search.each_supernet": True,
                    "retrain.which": 6,
                },
            )
        ],
        [Column("Top-1", "retrained_accuracy")],
        space="mobilenet",
    )
    with pytest.raises(
        InvalidConfiguration, match=r"retrain.which is 6, but the search keeps 6 \(search.keep, for each"
    ):
        make_plan([study], get_preset("tiny", "mobilenet"), [], seeds=1)
