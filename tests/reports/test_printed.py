"""What the paper prints of a study, and what a table says of the versions and the truth behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import environment
from harness.cli import main
from harness.components.discovery import component
from harness.components.preset import Preset, get_preset
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.work.plan import make_plan
from tests.stored_runs import store_run

printed: Any = component("reports.paper.printed")
tables: Any = component("reports.tables")


@pytest.mark.parametrize(
    ("name", "datasets", "count"),
    [("gamma_grid", {"cifar10"}, 12), ("nb201_main", {"cifar10", "cifar100", "imagenet16-120"}, 54)],
)
def test_only_what_the_paper_prints_is_planned(name: str, datasets: set[str], count: int) -> None:
    (study,) = find_studies(name)
    plan = make_plan([study], "paper", [], keep=printed.is_printed, check=False)
    requests = [one for work in plan.work for one in work.requests]
    assert {one.dataset for one in requests} == datasets and len(requests) == count


def test_studies_of_which_nothing_is_printed_are_left_out() -> None:
    found = {name: printed.has_printed(find_studies(name)[0]) for name in ("calr_control", "clustering", "unfairness")}
    assert found == {"calr_control": False, "clustering": True, "unfairness": True}
    (study,) = find_studies("clustering")  # Figure B draws the rows that Table 5 does not print
    assert all(printed.is_printed(study, one) for one in expand(study, get_preset("demo"), 1))


def test_plan_and_run_take_only_what_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Table 4 prints the reversed schedule for SPOS only; the study has it for all three methods."""
    where = ["unfairness", "--preset", "tiny", "--seeds", "1", "--only", "schedule.function=reversed"]
    where += ["--store", str(tmp_path)]
    planned = []
    for options in ([], ["--printed"]):
        assert main(["plan", *where, *options]) == 0
        planned.append(capsys.readouterr().out.splitlines()[1].split()[1])
    assert planned == ["3", "1"]
    assert main(["run", *where, "--printed", "--no-references", "with", "rank.top_sample=20"]) == 0
    (run,) = DirectoryStore(tmp_path).runs()
    assert run.trial["config"]["method"]["name"] == "spos" and run.counts


@pytest.mark.parametrize("changed", [False, True])
def test_runs_of_several_versions_are_named_in_every_format(
    changed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (study,) = find_studies("gamma_grid")
    here = environment.describe()
    for number, one in enumerate(expand(study, get_preset("tiny"), 2)):
        commit = "2" * 40 if changed and number < 3 else "1" * 40
        store_run(tmp_path / "runs", one, 0.5, machine=here | {"commit": commit, "dirty": False, "version": "1"})
    for form in ("markdown", "latex", "html", "csv", "parquet"):
        out = ["--out", str(tmp_path / form)] if form == "parquet" else []
        command = ["report", "gamma_grid", "--preset", "tiny", "--seeds", "2"]
        assert main([*command, "--store", str(tmp_path / "runs"), "--format", form, *out]) == 0
        printed = capsys.readouterr()
        said = "The runs come from 2 versions of the harness, which may differ in results: "
        # A file of numbers has no place for notes.
        text = printed.err if form in ("csv", "parquet") else printed.out
        assert (said in text) == changed, form
        assert all(one in text for one in ("2222222 (3 runs)", "1111111 (5 runs)") if changed), form


def test_a_table_says_by_which_truth_its_option_is_chosen(preset: Preset, tmp_path: Path) -> None:
    (study,) = find_studies("gamma_grid")
    store = DirectoryStore(tmp_path)
    (tested,) = [note for note in tables.build(study, preset, store).notes if "chosen" in note]
    valid = tables.build(study, preset, store, overrides={"rank.truth_split": "valid"})
    assert "γ′ is chosen by Kendall's τ with test accuracies" in tested
    assert "γ′ is chosen here by Kendall's τ with validation accuracies." in valid.notes


def test_validation_truth_judges_and_selects() -> None:
    from harness.components.benchmark import benchmark_for
    from harness.study.configuration import Ranking
    from harness.study.judging import Prediction, Whole, judge

    benchmark = benchmark_for("digits", "nasbench201")
    truth = benchmark.accuracies("digits", "valid")
    known = {one: Prediction(float(truth[benchmark.space.index(one)])) for one in benchmark.space}
    by = {
        split: judge(known, Whole(benchmark.space), benchmark, "digits", Ranking(truth_split=split))
        for split in ("test", "valid")
    }
    assert by["valid"].kendall_tau == pytest.approx(1) and (by["test"].kendall_tau or 0) < 0.99
    assert by["valid"].top1_accuracy == truth.max()


def test_the_floor_of_a_cosine_is_not_that_of_calr_and_imagenet_is_retrained_whole() -> None:
    for name in ("darts_space", "sota_plus_ours"):
        (study,) = find_studies(name)
        schedules = [one.trial.config.schedule for one in expand(study, get_preset("paper", study.about), 1)]
        assert {one.options.get("final", 0.0) for one in schedules if one.name == "calr"} == {0.0}
        assert 0.04 in {one.options.get("final", 0.0) for one in schedules if one.name == "cosine"}
    for name in ("mobilenet_main", "mobilenet_gamma_grid", "mobilenet_layer_selection"):
        (study,) = find_studies(name)
        retrained = [one.trial.config.retrain for one in expand(study, get_preset("paper", study.about), 1)]
        assert {one.with_valid for one in retrained if one is not None} == {True}


def test_top1_of_several_supernets_stands_beside_random_candidates(preset: Preset, tmp_path: Path) -> None:
    (study,) = find_studies("ablation_calr_ms")
    for one in expand(study, preset):
        several = one.trial.config.method.name == "fsnas"
        more = {"top1_of": 5 if several else 1, "top1_accuracy_random": 92.5, "top1_accuracy_predicted": 89.0}
        store_run(tmp_path, one, 0.5, more=more | {"partial_tau": 0.25})
    table = tables.build(study, preset, DirectoryStore(tmp_path))
    (row,) = [row for block in table.blocks for row in block if row.name == "Best of 5 random candidates"]
    means = {column.metric: value.mean for column, value in zip(table.columns, row.values, strict=True)}
    assert means == {"kendall_tau": "", "partial_tau": "", "top1_accuracy": "92.50", "top1_accuracy_predicted": ""}
    assert any("FSNAS" in note and "Best of 5 random candidates" in note for note in table.notes)
