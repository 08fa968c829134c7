"""Reference rows: made by `run`, kept in the store, read by reports, made again when what they depend on changes."""

from __future__ import annotations

import html
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from harness import results
from harness.cli import main
from harness.components.discovery import component
from harness.components.preset import Preset, get_preset
from harness.components.registries import BENCHMARKS, METRICS, PROXIES
from harness.environment import PROJECT
from harness.errors import DataError, InvalidConfiguration, UnknownName
from harness.files import write
from harness.stores.directory.store import DirectoryStore
from harness.stores.merged import MergedStore
from harness.stores.mongo.store import MongoStore
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.study.layout import Column, Row
from harness.study.references import reference_names, references_of, stored_result
from harness.study.study import Study
from harness.work.references import Missing, missing_references
from tests.jobs import Silent, make_references
from tests.stored_runs import store_run

EVERY = reference_names()
UNASKED = reference_names(on_request=False)
WITH_ACCURACIES = {"untrained", "ceiling"}
VOID = {"zen", "az-expressivity", "az-progressivity", "az-trainability", "az-nas"}
"""Those that have no meaning for the toy's networks: these have no batch normalisation, and no blocks."""

TOY = Preset(
    "toy",
    "for this test",
    seeds=2,
    datasets=("toy",),
    settings={"space": "toy", "network.width": 2, "network.depth": 1, "rank.bins": 9, "rank.images": 20},
)
STUDY = Study(
    "one",
    "One",
    [Row({"CaLR": False, "Method": "SPOS"})],
    [Column("τ", "kendall_tau"), Column("Top-1", "top1_accuracy", digits=1), Column("Passes", "passes")],
    group="Method",
)
MINE = """
from harness.study import Column, Row, Study

toy = {"space": "toy", "dataset": "toy", "benchmark": "toy", "train.epochs": 1, "train.batch_size": 20,
       "network.width": 2, "rank.images": 50, "rank.bins": 3}
study = Study("mine", "Mine", [Row({"Method": "SPOS"}, toy)],
              [Column("τ", "kendall_tau"), Column("Top-1 (%)", "top1_accuracy", digits=2)])
"""
RUN = ["run", "mine.py", "--preset", "tiny", "--seeds", "2"]
REPORT = ["report", "mine.py", "--preset", "tiny", "--seeds", "2", "--references"]


def make(store: Path, preset: Preset = TOY, study: Study = STUDY) -> int:
    """Make the missing references as their jobs do; return how many there were."""
    missing = missing_references([study], preset, DirectoryStore(store))
    screen = Silent()
    answers = make_references(missing, store, screen)
    assert all(answer["status"] == "done" for answer in answers) and missing.left() == 0
    assert {report["event"] for report in screen.reports} >= {one.name for one in missing.references}
    return len(missing.references)


def table(store: Path, preset: Preset = TOY, study: Study = STUDY) -> Any:
    return component("reports.tables").build(study, preset, DirectoryStore(store), references=True)


def references(store: Path, preset: Preset = TOY, study: Study = STUDY) -> list[Any]:
    return [row for block in table(store, preset, study).blocks for row in block if row.source == "reference"]


def test_they_are_judged_as_runs_are(toy_project: Path, tmp_path: Path) -> None:
    assert make(tmp_path) == 2 * len(EVERY)
    rows = references(tmp_path)
    assert [row.name for row in rows] == [name for name in EVERY if name not in VOID]
    assert [(row.name, row.labels) for row in rows[:3]] == [
        ("untrained", (None, "Untrained supernet")),
        ("parameters", (None, "Number of parameters")),
        ("random", (None, "Random numbers")),
    ]
    (note,) = [note for note in table(tmp_path).notes if note.startswith("Zen ")]
    assert note == "Zen is left out: the networks have no batch normalisation."
    by_name = {row.name: row.values for row in rows}
    # Not one of the seeds has a part in the number of parameters.
    tau, accuracy, passes = by_name["parameters"]
    assert (len(tau.numbers), tau.deviation, accuracy.deviation) == (2, "0.000", "0.0")
    assert len(set(by_name["random"][0].numbers)) == 2
    assert [one.run_id for one in tau.measurements] == ["reference parameters"] * 2
    # A cost is not measured of them, and not missed.
    assert (passes.mean, passes.count) == ("", "")
    assert not any(value.best for row in rows for value in row.values)


def test_a_metric_of_accuracies_is_shown_for_those_that_predict_accuracies(toy_project: Path, tmp_path: Path) -> None:
    METRICS.register("mean-guess")(lambda predicted, truth, complexity: float(predicted.mean()))
    try:
        preset = replace(TOY, settings={**TOY.settings, "rank.metrics": ["mean-guess"]})
        study = replace(STUDY, columns=[Column("Guess", "mean-guess")])
        make(tmp_path, preset, study)
        shown = [row.name for row in references(tmp_path, preset, study) if row.values[0].measurements]
        assert set(shown) == WITH_ACCURACIES
    finally:
        del METRICS.entries["mean-guess"]


def test_a_report_reads_them_and_makes_none(toy_project: Path, tmp_path: Path) -> None:
    empty = table(tmp_path)
    assert not (tmp_path / "references").exists() and all(row.name is None for block in empty.blocks for row in block)
    every = 2 * len(EVERY)
    assert f"{every} of {every} references of one are not stored" in empty.lacking
    assert f"python -m harness run one --preset toy --references-only --store {tmp_path}" in empty.lacking
    make(tmp_path)
    first = references(tmp_path)
    files = sorted((tmp_path / "references").iterdir())
    assert len(files) == every and all(file.suffix == ".json" for file in files)
    assert make(tmp_path) == 0
    # A damaged one is named as missing and made again; a store with references only has no runs and no problems.
    (file,) = [one for one in files if '"random"' in one.read_text() and '"seed": 1' in one.read_text()]
    for damage in ('{"half', '{"reference": "random", "cell": {}, "result": {"kendall_tau": "high"}}'):
        file.write_text(damage)
        assert [row.name for row in references(tmp_path)] == [row.name for row in first if row.name != "random"]
        assert f"1 of {every} references" in table(tmp_path).lacking
        assert make(tmp_path) == 1 and references(tmp_path) == first
    assert file.read_text().startswith('{\n "reference"')
    store = DirectoryStore(tmp_path)
    assert (store.runs(), store.problems) == ([], [])


def test_runs_are_paired_with_a_reference_seed_by_seed(toy_project: Path, tmp_path: Path) -> None:
    make(tmp_path)
    for request, tau in zip(expand(STUDY, TOY), (0.5, 0.25), strict=True):
        store_run(tmp_path, request, tau, preset="toy")
    (untrained,) = [row for row in references(tmp_path) if row.name == "untrained"]
    baseline = {one.seed: one.value for one in untrained.values[0].measurements}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.components.preset.get_preset", lambda name, space: TOY)
        pairs = results.pairs(STUDY, "kendall_tau", against="untrained", store=tmp_path, preset="toy")
        assert list(pairs["difference"]) == pytest.approx([0.5 - baseline[0], 0.25 - baseline[1]])
        assert set(pairs["against"]) == {"untrained"}
        with pytest.raises(UnknownName, match="untrained"):
            results.pairs(STUDY, "kendall_tau", against="untraind", store=tmp_path, preset="toy")


def test_rows_that_differ_in_their_networks_have_references_of_their_own(toy_project: Path, tmp_path: Path) -> None:
    rows = [Row({"Method": f"{width}", "CaLR": True}, {"network.width": width, "train.epochs": 1}) for width in (2, 4)]
    study = Study("two", "Two", [*rows, Row({"Method": "Best", "CaLR": False}, source="truth")], STUDY.columns)
    asked = references_of(study, TOY, list, 1)
    assert [(one.name, one.group, one.trial.config.network.width) for one in asked[:: len(EVERY)]] == [
        ("untrained", (("network.width", 2),), 2),
        ("untrained", (("network.width", 4),), 4),
    ]
    make(tmp_path, study=study)
    found = [row.labels[0] for row in references(tmp_path, study=study)]
    assert found[0] == "Untrained supernet (network.width=2)" and "Random numbers (network.width=4)" in found
    assert found[len(EVERY) - len(VOID)] == "Untrained supernet (network.width=4)"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(InvalidConfiguration, match="compare them with a row"):
        patch.setattr("harness.components.preset.get_preset", lambda name, space: TOY)
        results.pairs(study, "kendall_tau", against="untrained", store=tmp_path, preset="toy")
    # An override leaves out the rows that it contradicts, and their references with them.
    assert {one.trial.config.network.width for one in references_of(study, TOY, list, 1, {"network.width": 4})} == {4}


def test_without_the_table_and_a_stored_result_the_reason_is_told(
    toy_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> None:
        raise DataError("the table is not there")

    monkeypatch.setitem(BENCHMARKS.entries, "toy", replace(dict(BENCHMARKS.items())["toy"], thing=gone))
    with pytest.raises(DataError, match="the table is not there"):
        stored_result(DirectoryStore(tmp_path), references_of(STUDY, TOY, list, 1)[0])


def test_two_jobs_divide_the_proxies_with_passes_and_neither_repeats_the_others_passes(
    toy_project: Path, tmp_path: Path
) -> None:
    missing = missing_references([STUDY], TOY, DirectoryStore(tmp_path), seeds=1)
    names = [{one.name for one in job} for job in missing._by_job.values()]
    assert len(missing) == 3 and sorted(name for job in names for name in job) == sorted(EVERY)
    cheap, *halves = sorted(names, key=lambda job: "untrained" not in job)
    assert {*UNASKED, "trained-alone"} == cheap and {len(half) for half in halves} == {5}
    for sharing in ({"grad-norm", "snip"}, {"az-expressivity", "az-progressivity", "az-trainability", "az-nas"}):
        assert any(sharing <= half for half in halves)
    assert len({missing.key(number) for number in range(3)}) == len({missing.label(number) for number in range(3)}) == 3


def test_one_that_cannot_be_made_is_a_failure_with_its_reason(toy_project: Path, tmp_path: Path) -> None:
    (one, *_) = missing_references([STUDY], TOY, DirectoryStore(tmp_path)).references
    (answer,) = make_references(Missing([replace(one, name="untried")], DirectoryStore(tmp_path)), tmp_path)
    assert answer["status"] == "failed" and "untried" in answer["error"]
    assert not (tmp_path / "references").exists()


def test_a_database_and_a_directory_both_get_them(
    toy_project: Path, tmp_path: Path, mongo_database: Database[dict[str, Any]]
) -> None:
    make(tmp_path)
    database = MongoStore(mongo_database)
    both = MergedStore(DirectoryStore(tmp_path), database)
    assert not missing_references([STUDY], TOY, both)
    found = component("reports.tables").build(STUDY, TOY, database, references=True)
    assert found.lacking is None and list(found.blocks[-1]) == references(tmp_path)


@pytest.fixture
def mine(toy_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toy's folder with a study of its own, whose two trials are stored in a folder of the test."""
    (toy_project / "mine.py").write_text(MINE)
    monkeypatch.setenv("HARNESS_STORE", str(tmp_path / "store"))
    for request in expand(find_studies("mine.py")[0], get_preset("tiny"), 2):
        store_run(tmp_path / "store", request, 0.5, more={"blended_tau": 0.625})
    return toy_project


def rows_of(printed: str) -> dict[str, list[str]]:
    table, _, _ = printed.partition(": references")  # the grid below has rows of the same names
    lines = [line.strip("| \n").split("|") for line in table.splitlines() if line.startswith("|")]
    return {line[0].strip(): [value.strip() for value in line[1:]] for line in lines}


def test_a_study_without_ground_truth_says_why_it_has_none(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only if they are asked for."""
    told = "untrue has no references: its trials have no ground truth to judge by\n"
    (mine / "untrue.py").write_text(
        MINE.replace('"mine"', '"untrue"').replace('"benchmark": "toy"', '"benchmark": None')
    )
    for option, error in ((["--references"], told), ([], "")):
        assert main(["report", "untrue.py", "--preset", "tiny", "--seeds", "2", *option]) == 0
        assert capsys.readouterr().err == error


def test_run_makes_them_and_the_report_shows_the_toys_own_truth(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RUN, "--no-references"]) == 0
    assert not (tmp_path / "store" / "references").exists()
    capsys.readouterr()
    assert main(REPORT) == 0
    printed = capsys.readouterr()
    assert "Untrained" not in printed.out
    command = f"python -m harness run mine --preset tiny --seeds 2 --references-only --store {tmp_path / 'store'}"
    every = 2 * len(EVERY)
    assert printed.err == f"{every} of {every} references of mine are not stored; this makes them: {command}\n"
    assert main([*REPORT, "--strict"]) == 1
    capsys.readouterr()
    assert main(RUN) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{2 * len(UNASKED)} references made"
    assert main([*RUN, "--references-only"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{every - 2 * len(UNASKED)} references made"
    assert main([*RUN, "--references-only"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "all references are stored already"
    assert main([*RUN, "--references-only", "--no-references"]) == 2
    capsys.readouterr()
    assert main(RUN) == 0
    assert capsys.readouterr().out.splitlines() == ["2 of 2 trials done, 0 of them now"]
    assert main(REPORT) == 0
    printed = capsys.readouterr()
    rows = rows_of(printed.out)
    # The toy's two largest networks have 42 and 46 of 60 right; no accuracy is another space's.
    assert rows["Number of parameters"][1].startswith("70.00")
    assert all(float(rows[name][1].split()[0]) <= 76.67 for name in ("Untrained supernet", "Random numbers"))


def test_every_format_has_all_of_them_and_the_blends(mine: Path, tmp_path: Path) -> None:
    """A blend is a row of the study's runs, by the τ that a run's own predictions and sizes gave."""
    store = tmp_path / "store"
    make_references(missing_references(find_studies("mine.py"), "tiny", DirectoryStore(store), 2), store)
    for form, suffix in {"markdown": "md", "csv": "csv", "latex": "tex", "html": "html"}.items():
        assert main([*REPORT, "--format", form, "--out", str(tmp_path / form)]) == 0
        file = tmp_path / form / ("index.html" if form == "html" else f"mine-references.{suffix}")
        text = file.read_text()
        labels = {PROXIES.get(name).label for name in EVERY if name not in VOID and name != "convolutions-3x3"}
        assert not {label for label in labels if label not in html.unescape(text)}, form  # LaTeX has its own ×
        assert "0.625" in text.partition("SPOS, and parameters")[2][:200], form


def test_they_come_along_in_an_archive_and_into_the_database(
    mine: Path,
    tmp_path: Path,
    mongod: str,
    mongo_database: Database[dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing = missing_references(find_studies("mine.py"), "tiny", DirectoryStore(tmp_path / "store"), 2)
    make_references(missing, tmp_path / "store")
    assert main(REPORT) == 0
    table = capsys.readouterr().out
    assert main(["store", "export", "mine.py", str(tmp_path / "a.tar"), *REPORT[2:6]]) == 0
    every = 2 * len(EVERY)
    assert f"wrote 2 runs and {every} references of mine" in capsys.readouterr().out
    assert main(["store", "import", str(tmp_path / "a.tar"), "--store", str(tmp_path / "other")]) == 0
    assert f"{every} references added, 0 already there" in capsys.readouterr().out
    address = mongod.replace("/?", f"/{mongo_database.name}?")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_MONGO", address)
        assert main(["store", "sync"]) == 0
    assert f"{every} references copied to the database" in capsys.readouterr().out
    for place in (str(tmp_path / "other"), address):
        assert main([*REPORT, "--store", place]) == 0
        printed = capsys.readouterr()
        assert (rows_of(printed.out), printed.err) == (rows_of(table), "")


def kept(store: Path) -> Mapping[str, Any]:
    """The stored references without their costs, which are measured."""
    files = sorted((store / "references").glob("*.json"))
    return {file.name: {**json.loads(file.read_text()), "cost": None} for file in files}


def stop_after_one_more(how: signal.Signals, more: list[str], folder: Path, store: Path) -> str:
    """Start `run`, stop it that way once it has stored another reference, and return what it said."""
    before = len(list(store.glob("references/*.json")))
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", *RUN[:-1], "4", "--jobs", "1", *more],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    until = time.monotonic() + 300
    while len(list(store.glob("references/*.json"))) == before and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    os.killpg(process.pid, how)
    _, said = process.communicate()
    assert process.returncode in (-how, 128 + how) and len(kept(store)) > before
    return said


def test_a_run_stopped_while_it_makes_them_goes_on(mine: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    stop_after_one_more(signal.SIGKILL, [], mine, store)
    for more in ([], ["--references-only"]):
        said = stop_after_one_more(signal.SIGINT, more, mine, store)
        assert "stopping: references that are made are stored" in said and "running trials" not in said
        assert ("stopped; the same command makes the references that are missing" in said) == bool(more)
    early = kept(store)
    assert 3 <= len(early) < 4 * len(UNASKED)
    assert main([*RUN[:-1], "4", "--no-references"]) == 0
    missing = missing_references(find_studies("mine.py"), "tiny", DirectoryStore(store), 4, on_request=False)
    make_references(missing, store)
    whole = kept(store)
    assert len(whole) >= 4 * len(UNASKED) and all(whole[name] == one for name, one in early.items())
    # Those of a run that was not killed are the same.
    missing = missing_references(find_studies("mine.py"), "tiny", DirectoryStore(tmp_path / "other"), 4)
    make_references(missing, tmp_path / "other")
    other = kept(tmp_path / "other")
    assert all(other[name] == one for name, one in whole.items())


def test_the_next_run_removes_what_a_killed_writer_left(mine: Path, tmp_path: Path) -> None:
    left = tmp_path / "store" / "references" / f"{'0' * 32}.json"
    left.parent.mkdir()
    if not (child := os.fork()):
        write(left, lambda file: os.kill(os.getpid(), signal.SIGKILL))
    os.waitpid(child, 0)
    assert [file.name.startswith(f".{left.name}.{child}.") for file in left.parent.iterdir()] == [True]
    for _ in range(2):  # also where nothing is to be made
        assert main([*RUN, "--references-only", "--jobs", "1"]) == 0
        names = [file.name for file in left.parent.iterdir()]
        assert len(names) == 2 * len(EVERY) and not any(name.startswith(".") for name in names)


@pytest.mark.parametrize(
    ("settings", "space", "overrides"),
    [
        ({"space": "toy", "dataset": "toy", "benchmark": "toy"}, "", {}),
        ({"dataset": "toy", "benchmark": "toy"}, "toy", {}),
        ({"space": "toy", "dataset": "toy"}, "", {"benchmark": "toy"}),
        ({"space": "toy"}, "", {"benchmark": "toy", "dataset": "toy"}),
        ({}, "toy", {"benchmark": "toy", "dataset": "toy", "train.epochs": 1}),
    ],
)
def test_they_are_of_the_rows_space_wherever_it_is_set(
    settings: dict[str, Any], space: str, overrides: dict[str, Any], toy_project: Path
) -> None:
    study = Study("mine", "Mine", [Row({"Method": "SPOS"}, settings)], STUDY.columns, space=space)
    ranked = {"rank.images": 20, "rank.bins": 3}
    found = references_of(study, get_preset("tiny"), list, 1, {**overrides, **ranked})
    assert [one.name for one in found] == EVERY
    for one in found:
        config = one.trial.config
        assert (config.space, config.dataset, config.benchmark) == ("toy", "toy", "toy") and one.key
