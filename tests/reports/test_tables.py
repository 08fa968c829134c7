"""Which runs a table takes, and what it says of the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.components.discovery import component
from harness.components.preset import Preset
from harness.errors import InvalidConfiguration
from harness.stores.directory.store import DirectoryStore
from harness.study.expansion import expand
from harness.study.layout import Column, Row
from harness.study.metrics import check_metrics
from harness.study.study import Request, Study
from harness.study.trial import Trial
from tests.stored_runs import store_run


def build(study: Study, preset: Preset, store: Path, **options: Any) -> Any:
    return component("reports.tables").build(study, preset, DirectoryStore(store), **options)


def rows(table: Any) -> list[Any]:
    return [row for block in table.blocks for row in block]


@pytest.fixture
def short(study: Study) -> Study:
    """The study's first two rows, τ only."""
    return replace(study, rows=study.rows[:2], columns=study.columns[:1])


def test_mean_and_sample_deviation_over_seeds_and_the_runs_behind(
    short: Study, preset: Preset, tmp_path: Path, names: dict[str, str]
) -> None:
    value = rows(build(short, preset, tmp_path / "runs"))[0].values[0]
    assert (value.mean, value.deviation, value.count) == ("0.530", "0.036", "")
    assert [names[one.run_id] for one in value.measurements] == ["run-0-0", "run-0-1", "run-0-2"]
    assert [one.seed for one in value.measurements] == [0, 1, 2]


def test_more_seeds_than_stored_show(short: Study, preset: Preset, tmp_path: Path, names: dict[str, str]) -> None:
    table = build(short, preset, tmp_path / "runs", seeds=4)
    assert rows(table)[0].values[0].count == "3 of 4 seeds"
    assert table.notes[0] == "6 of 8 runs are done; without a value are:"
    assert "missing, seed 3: SPOS, no CaLR; SPOS, CaLR" in table.notes


def test_runs_with_overrides_count_only_in_the_table_that_asks_for_them(
    short: Study, preset: Preset, tmp_path: Path
) -> None:
    overrides = {"train.epochs": 2}
    for request in expand(short, preset, 1, overrides):
        store_run(tmp_path, request, 0.9, overrides=overrides)
    plain = build(short, preset, tmp_path, seeds=1)
    assert [row.values[0].mean for row in rows(plain)] == ["", ""]
    asked = build(short, preset, tmp_path, seeds=1, overrides=overrides)
    assert [row.values[0].mean for row in rows(asked)] == ["0.900", "0.900"]
    assert "with train.epochs=2" in asked.caption
    assert asked.notes == ()


def test_a_run_that_only_observed_more_counts_and_is_mentioned(short: Study, preset: Preset, tmp_path: Path) -> None:
    overrides = {"observe.kendall_tau_every": 1}
    for request in expand(short, preset, 1, overrides):
        store_run(tmp_path, request, 0.9, overrides=overrides)
    table = build(short, preset, tmp_path, seeds=1)
    assert [row.values[0].mean for row in rows(table)] == ["0.900", "0.900"]
    assert table.notes == (
        "Of equal identity, but requested with other settings: 2 runs (tiny with observe.kendall_tau_every=1).",
    )


def test_tau_over_the_end_of_training_is_over_as_many_epochs_as_the_row_asks_for(
    short: Study, preset: Preset, tmp_path: Path
) -> None:
    """One training with the larger number answers for both."""
    settings = [{**short.rows[0].settings, "observe.average_last": last} for last in (2, 3)]
    averaged = replace(
        short,
        rows=[replace(short.rows[0], settings=one, labels={"Last": n}) for n, one in zip("23", settings, strict=True)],
        columns=[Column("τ", "kendall_tau_averaged", digits=3)],
        group=None,
    )
    more = expand(averaged, preset, 1)[1]
    store_run(tmp_path, more, 0.4, observed={"kendall_tau_averaged": [[1, 0.4], [2, 0.45], [3, 0.5]]})
    table = build(averaged, preset, tmp_path, seeds=1)
    assert [row.values[0].mean for row in rows(table)] == ["0.450", "0.500"]
    with pytest.raises(InvalidConfiguration, match="set observe.average_last in a row's settings"):
        check_metrics(replace(averaged, rows=short.rows))


def test_equal_weights_ranked_otherwise_are_not_mixed_in(short: Study, preset: Preset, tmp_path: Path) -> None:
    request = expand(short, preset, 1)[0]
    document = request.trial.json()
    document["config"]["rank"]["images"] = 32
    other = replace(request, trial=Trial.from_json(document))
    assert other.trial.key == request.trial.key
    run = store_run(tmp_path, other, 0.9)
    told = f"SPOS, no CaLR, seed 0: trained, but not ranked as requested (run {run.id}); "
    table = build(short, preset, tmp_path, seeds=1)
    assert rows(table)[0].values[0].mean == ""
    assert told + "its weights are not stored, so only stored predictions could rank it" in table.notes
    (tmp_path / run.id / "weights.pt").write_bytes(b"weights")
    assert told + "`harness run` does that from its weights" in build(short, preset, tmp_path, seeds=1).notes


def test_superseded_runs_do_not_count(short: Study, preset: Preset, tmp_path: Path) -> None:
    for tau in (0.1, 0.7):
        store_run(tmp_path, expand(short, preset, 1)[0], tau)
    assert rows(build(short, preset, tmp_path, seeds=1))[0].values[0].mean == "0.700"


def test_a_failed_attempt_is_forgotten_once_another_is_done(short: Study, preset: Preset, tmp_path: Path) -> None:
    one, other = expand(short, preset, 1)
    store_run(tmp_path, one, status="failed")
    store_run(tmp_path, one, 0.5)
    store_run(tmp_path, other, 0.6)
    store_run(tmp_path, other, status="lost")
    table = build(short, preset, tmp_path, seeds=1)
    assert [row.values[0].mean for row in rows(table)] == ["0.500", "0.600"]
    assert table.notes == ()


@pytest.mark.parametrize(
    ("best", "taus", "bold"),
    [
        ("max", [0.1, 0.3, 0.2], [1]),
        ("min", [0.1, 0.3, 0.2], [0]),
        ("max", [0.3001, 0.3004, 0.2], [0, 1]),
        ("max", [-0.0001, 0.0001, 0.0], [0, 1, 2]),
        (None, [0.1, 0.3, 0.2], []),
    ],
)
def test_the_best_as_shown_is_bold_and_all_of_a_tie(
    best: str | None, taus: list[float], bold: list[int], preset: Preset, tmp_path: Path
) -> None:
    study = Study(
        "three",
        "Three",
        [Row({"Epochs": str(epochs)}, {"train.epochs": epochs}) for epochs in (1, 2, 3)],
        [Column("τ", "kendall_tau", best=best)],
    )
    for request, tau in zip(expand(study, preset, 1), taus, strict=True):
        store_run(tmp_path, request, tau)
    found = rows(build(study, preset, tmp_path, seeds=1))
    assert [number for number, row in enumerate(found) if row.values[0].best] == bold


def test_a_condition_keeps_its_rows_and_says_so(
    study: Study, preset: Preset, tmp_path: Path, names: dict[str, str]
) -> None:
    table = build(study, preset, tmp_path / "runs", where="method.name == 'spos' and clusters.name == 'none'")
    assert [row.labels for row in rows(table)] == [("SPOS", False), ("SPOS", True)]
    assert "only where method.name == 'spos'" in table.caption
    assert table.notes == ("The condition leaves out 9 of 15 runs.",)
    good = build(study, preset, tmp_path / "runs", where="kendall_tau > 0.51")
    assert [one.seed for one in rows(good)[0].values[0].measurements] == [1, 2]
    with pytest.raises(InvalidConfiguration, match="no column is named 'methodname'; did you mean 'method_name'"):
        build(study, preset, tmp_path / "runs", where="methodname == 'spos'")


def test_the_caption_says_the_scale(study: Study, preset: Preset, tmp_path: Path) -> None:
    assert build(study, preset, tmp_path).caption == (
        "CaLR at 50 % & γ′ = {2} (Table 0 of the paper). Preset tiny: digits, 3 seeds, 1 to 5 epochs, "
        "width 4, depth 1. Mean ± sample standard deviation over the seeds."
    )


def test_has_runs_whatever_became_of_them(short: Study, preset: Preset, tmp_path: Path) -> None:
    has_runs = component("reports.tables").has_runs
    assert not has_runs(short, preset, DirectoryStore(tmp_path))
    requests: list[Request] = expand(short, preset)
    store_run(tmp_path, requests[-1], status="failed")
    assert has_runs(short, preset, DirectoryStore(tmp_path))


def test_the_neutral_value_of_a_data_set_is_its_own(toy_project: Path, preset: Preset, tmp_path: Path) -> None:
    column = Column("CB", "bias", best="nearest", reference="neutral")
    rows_ = [Row({"Epochs": str(epochs)}, {"train.epochs": epochs}) for epochs in (1, 2)]
    study, two = Study("cb", "CB", rows_, [column]), replace(preset, datasets=("digits", "toy"), seeds=1)
    values = {("digits", 0): 0.15, ("digits", 1): 0.45, ("toy", 0): 0.5, ("toy", 1): 0.85}
    for request in expand(study, two):
        neutral = {"digits": 0.1, "toy": 0.9}[request.dataset]
        bias = values[request.dataset, request.row]
        store_run(tmp_path, request, 0.5, more={"bias": bias, "neutral": neutral})
    table = build(study, two, tmp_path)
    assert [one.dataset for one in table.columns] == ["digits", "toy"]
    assert [[value.best for value in row.values] for row in rows(table)] == [[True, False], [False, True]]


def test_a_zero_has_no_sign() -> None:
    shown = component("reports.values").shown
    assert [shown(number, 3) for number in (-0.0001, 0.0001, -0.0, -0.0006, -10.0)] == [
        *("0.000", "0.000", "0.000", "-0.001", "-10.000")
    ]
