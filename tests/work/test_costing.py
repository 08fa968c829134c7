"""Estimates of trials before they run: by what, how long in all, on several devices, and along parents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.components.preset import HOUR, Hours, Preset, get_preset
from harness.stores.stored import StoredRun
from harness.study import Column, Row, Study
from harness.study.expansion import expand
from harness.work.costing import CALIBRATED, OTHERS, SAME, UNKNOWN, Budget, Estimated, Estimator, budget
from harness.work.plan import make_plan
from harness.work.states import Work
from tests.stored_runs import store_run

COLUMNS = [Column("τ", "kendall_tau")]
METHODS = Study(
    "methods",
    "Two methods",
    [Row({"Method": name}, {"method.name": name}) for name in ("spos", "fairnas")],
    COLUMNS,
)
FOUND = Study(
    "found",
    "A search and two retrainings of what it finds",
    [
        Row({"Epochs": str(epochs)}, {"method.name": "spos", "search.name": "random", "retrain.epochs": epochs})
        for epochs in (1, 2)
    ],
    COLUMNS,
)
STATED = [
    Hours(2.0, 5, "a table", {"dataset": "digits", "method.name": "spos"}),
    Hours(3.0, 5, "a table, faster", {"dataset": "digits", "method.name": "spos", "schedule.name": "calr"}),
    Hours(9.0, 1, "of other images", {"dataset": "cifar10", "method.name": "spos"}),
]


@pytest.fixture
def tiny() -> Preset:
    return get_preset("tiny")


def work_of(study: Study, preset: Preset, runs: list[StoredRun] | None = None, **overrides: object) -> list[Work]:
    settings = {key.replace("__", "."): value for key, value in overrides.items()}
    return list(make_plan([study], preset, runs or [], seeds=1, overrides=settings).work)


def test_done_trials_of_the_same_kind_come_first_and_count_by_their_images(tiny: Preset, tmp_path: Path) -> None:
    spos, fairnas = (one for one in expand(METHODS, tiny, 1))
    runs = [store_run(tmp_path, spos, 0.5, cost={"wall_seconds": 20.0, "stage_seconds": {"rank": 5.0}})]
    runs.append(store_run(tmp_path, fairnas, 0.5, cost={"wall_seconds": 90.0}))
    estimator = Estimator(runs, {"methods": replace(tiny, hours=STATED)})
    longer = work_of(METHODS, tiny, train__epochs=10)
    # Twice the images, ranked once.
    assert [estimator.of(one) for one in longer] == [Estimated(5.0 + 2 * 15.0, SAME), Estimated(180.0, SAME)]


def test_other_kinds_are_estimated_by_images_where_nothing_is_stated(tiny: Preset, tmp_path: Path) -> None:
    runs = [store_run(tmp_path, expand(METHODS, tiny, 1)[0], 0.5, cost={"wall_seconds": 20.0})]
    _, fairnas = work_of(METHODS, tiny)
    assert Estimator(runs, {"methods": tiny}).of(fairnas) == Estimated(20.0, OTHERS)
    assert Estimator(runs, {"methods": replace(tiny, name="other")}).of(fairnas) == Estimated(None, UNKNOWN)


def test_stated_hours_fit_by_settings_and_grow_with_passes(tiny: Preset) -> None:
    estimator = Estimator([], {"methods": replace(tiny, hours=STATED)})
    spos, fairnas = work_of(METHODS, tiny)
    assert estimator.of(spos) == Estimated(2.0 * HOUR, "a table")
    by_passes = estimator.of(fairnas)
    assert by_passes.source == "a table; of other trainings, by passes over the images"
    assert by_passes.seconds == pytest.approx(2.0 * HOUR)  # as many passes as SPOS at this scale
    estimator = Estimator([], {"methods": replace(tiny, hours=STATED)})
    (spos, *_) = work_of(METHODS, tiny, schedule__name="calr", train__epochs=10)
    assert estimator.of(spos) == Estimated(6.0 * HOUR, "a table, faster")


def test_the_ranking_is_added_once_where_a_table_judges(tiny: Preset) -> None:
    stated = [replace(one, ranking=0.5) for one in STATED]
    (spos, *_) = work_of(METHODS, tiny, train__epochs=10)
    assert Estimator([], {"methods": replace(tiny, hours=stated)}).of(spos) == Estimated(4.5 * HOUR, "a table")
    (spos, *_) = work_of(METHODS, tiny, benchmark=None)
    assert Estimator([], {"methods": replace(tiny, hours=stated)}).of(spos) == Estimated(2.0 * HOUR, "a table")


def test_a_calibration_precedes_what_is_stated(tiny: Preset) -> None:
    spos, fairnas = work_of(METHODS, tiny)
    found = Estimator([], {"methods": replace(tiny, hours=STATED)}, {spos.trial.key: 7.0})
    assert found.of(spos) == Estimated(7.0, CALIBRATED)
    assert found.of(fairnas).source != CALIBRATED


def test_devices_wait_for_parents_and_no_number_of_them_beats_the_critical_path(tiny: Preset) -> None:
    search, first, second = sorted(work_of(FOUND, tiny), key=lambda one: one.trial.start is not None)
    seconds = {search.trial.key: 10.0, first.trial.key: 4.0, second.trial.key: 5.0}
    found = Budget([first, search, second], {key: Estimated(one, SAME) for key, one in seconds.items()})
    assert found.seconds == 19.0
    assert found.critical_path == [search, second] and found.length(found.critical_path) == 15.0
    assert [found.on(devices) for devices in (1, 2, 100)] == [19.0, 15.0, 15.0]


def test_what_is_unknown_is_counted_and_the_rest_is_summed(tiny: Preset) -> None:
    spos, fairnas = work_of(METHODS, tiny)
    found = budget([spos, fairnas], Estimator([], {"methods": tiny}, {fairnas.trial.key: 3.0}))
    assert (found.seconds, found.unknown, found.sources) == (3.0, 1, {CALIBRATED: 1, UNKNOWN: 1})
    assert budget([spos], Estimator([], {"methods": tiny})).seconds is None
