"""What is there to do: states of trials, trials shared by studies, observations, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.components.preset import get_preset
from harness.errors import DataError, InvalidConfiguration
from harness.stores.directory.run_directory import declare_invalid
from harness.stores.directory.store import DirectoryStore
from harness.study.configuration import Observe, RunConfig
from harness.study.expansion import expand
from harness.study.layout import Column, Row
from harness.study.study import Request, Study
from harness.study.trial import Trial
from harness.work.plan import Plan, make_plan, require_inputs
from harness.work.states import Work, union
from tests.stored_runs import store_run

TINY = get_preset("tiny")
COLUMNS = [Column("τ", "kendall_tau")]
FIRST = Study(
    "first",
    "First",
    [
        Row({"Method": "SPOS", "CaLR": False}, {"method.name": "spos"}),
        Row({"Method": "SPOS", "CaLR": True}, {"method.name": "spos", "schedule.name": "calr"}),
    ],
    COLUMNS,
)
SECOND = Study(
    "second", "Second", [Row({"Method": "Baseline"}, {}), Row({"Method": "FSNAS"}, {"method": "fsnas"})], COLUMNS
)


def study(**settings: object) -> Study:
    """One row: SPOS with these settings, `__` for a dot."""
    return Study(
        "one", "One", [Row({"Method": "SPOS"}, {k.replace("__", "."): v for k, v in settings.items()})], COLUMNS
    )


def planned(store: Path, *studies: Study, seeds: int = 1) -> Plan:
    return make_plan(studies, TINY, DirectoryStore(store).runs(), seeds=seeds)


def requests(one: Study, seeds: int = 1) -> list[Request]:
    return expand(one, TINY, seeds)


def test_a_trial_that_two_studies_ask_for_is_one_piece_of_work(tmp_path: Path) -> None:
    plan = planned(tmp_path, FIRST, SECOND, seeds=2)
    assert [work.label for work in plan.work] == [
        *("first/SPOS seed 0 +1", "first/SPOS CaLR seed 0", "second/FSNAS seed 0"),
        *("first/SPOS seed 1 +1", "first/SPOS CaLR seed 1", "second/FSNAS seed 1"),
    ]
    assert plan.shared == 2
    assert [(request.study, request.row) for request in plan.work[0].requests] == [("first", 0), ("second", 0)]
    assert [work.label for work in plan.of(SECOND).work] == [
        *("first/SPOS seed 0 +1", "second/FSNAS seed 0"),
        *("first/SPOS seed 1 +1", "second/FSNAS seed 1"),
    ]


@pytest.mark.parametrize(
    ("status", "kind", "kind_with_retry"),
    [
        ("done", None, None),
        ("failed", None, "train"),
        ("interrupted", "train", "train"),
        ("lost", "train", "train"),
        ("running", None, None),
    ],
)
def test_what_is_stored_decides_what_is_done(
    tmp_path: Path, status: str, kind: str | None, kind_with_retry: str | None
) -> None:
    stored = store_run(tmp_path, requests(FIRST)[0], 0.5, status=status)
    mine, other = planned(tmp_path, FIRST).work
    assert (mine.state, mine.kind(), mine.kind("failed")) == (status, kind, kind_with_retry)
    assert mine.run is not None and mine.run.id == stored.id
    assert (other.state, other.kind(), other.run) == ("waiting", "train", None)


def test_the_last_attempt_counts_unless_one_is_done(tmp_path: Path) -> None:
    request = requests(FIRST)[0]
    store_run(tmp_path, request, status="failed")
    store_run(tmp_path, request, status="interrupted")
    assert planned(tmp_path, FIRST).work[0].state == "interrupted"
    store_run(tmp_path, request, 0.5)
    store_run(tmp_path, request, status="failed")
    assert planned(tmp_path, FIRST).work[0].state == "done"


def test_ten_losses_in_a_row_wait_for_a_request(tmp_path: Path) -> None:
    request = requests(FIRST)[0]

    def lose(times: int) -> Work:
        for _ in range(times):
            store_run(tmp_path, request, status="lost")
        return planned(tmp_path, FIRST).work[0]

    work = lose(9)
    assert (work.state, work.losses, work.kind()) == ("lost", 9, "train")
    work = lose(1)
    assert (work.state, work.losses, work.kind(), work.kind("failed")) == ("lost", 10, None, None)
    assert work.kind("lost") == work.kind("all") == "train"
    store_run(tmp_path, request, status="interrupted")  # in a row: what came before no longer counts
    work = lose(1)
    assert (work.state, work.losses, work.kind()) == ("lost", 1, "train")
    declare_invalid(tmp_path / lose(9).attempts[-1].id, "a broken machine")
    assert (planned(tmp_path, FIRST).work[0].losses, planned(tmp_path, FIRST).work[0].kind()) == (9, "train")


def test_missing_images_alone_are_refused(data: Path) -> None:
    """Also where no ground truth is asked for."""
    trial = Trial(RunConfig.from_json({"dataset": "cifar10", "benchmark": None, "rank": {"top1": False}}), given="aa")
    with pytest.raises(DataError, match="cifar10"):
        require_inputs([trial])
    require_inputs([Trial(RunConfig.from_json({"benchmark": None, "rank": {"top1": False}}))])


def test_other_architectures_need_a_ranking_only(tmp_path: Path) -> None:
    store_run(tmp_path, requests(study())[0], 0.5)
    (work,) = planned(tmp_path, study(rank__bins=10)).work
    assert (work.state, work.kind()) == ("rank", "rank")
    assert work.trial.config.rank.bins == 10


def test_more_to_observe_means_training_again_with_all_that_anybody_asked_for(tmp_path: Path) -> None:
    store_run(tmp_path, requests(study(observe__kendall_tau_every=2))[0], 0.5)
    assert planned(tmp_path, study(observe__kendall_tau_every=4)).work[0].state == "done"
    assert planned(tmp_path, study()).work[0].state == "done"
    (work,) = planned(tmp_path, study(observe__kendall_tau_every=3)).work
    assert (work.state, work.kind()) == ("again", "train")
    assert work.trial.config.observe.kendall_tau_every == 1
    assert work.trial.key == requests(study())[0].trial.key
    store_run(tmp_path, requests(study(observe__kendall_tau_every=1))[0], status="failed")
    assert planned(tmp_path, study(observe__kendall_tau_every=3)).work[0].state == "failed"


def test_a_mean_over_more_epochs_answers_for_fewer(tmp_path: Path) -> None:
    store_run(tmp_path, requests(study(observe__average_last=3))[0], 0.5)
    assert requests(study(observe__average_last=3))[0].trial.key == requests(study())[0].trial.key
    assert planned(tmp_path, study(observe__average_last=2)).work[0].state == "done"
    (work,) = planned(tmp_path, study(observe__average_last=4)).work
    assert (work.state, work.trial.config.observe.average_last) == ("again", 4)


def test_studies_with_different_wishes_get_one_training_and_then_their_rankings(tmp_path: Path) -> None:
    curve = study(observe__kendall_tau_every=2)
    other = replace(study(rank__bins=10, observe__kendall_tau_every=3), name="other")
    (work,) = planned(tmp_path, curve, other).work
    assert (work.state, work.trial.config.observe.kendall_tau_every) == ("waiting", 1)
    store_run(tmp_path, replace(requests(curve)[0], trial=work.trial), 0.5)
    (work,) = planned(tmp_path, curve, other).work
    assert (work.state, work.trial.config.rank.bins) == ("rank", 10)


@given(st.lists(st.integers(0, 12), min_size=1))
def test_the_union_of_observations_holds_each_of_them(every: list[int]) -> None:
    whole = union(Observe(kendall_tau_every=one) for one in every)
    assert union([whole, *(Observe(kendall_tau_every=one) for one in every)]) == whole
    epochs = range(1, 200)
    for one in every:
        wanted = {epoch for epoch in epochs if one and epoch % one == 0}
        assert wanted <= {e for e in epochs if whole.kendall_tau_every and e % whole.kendall_tau_every == 0}


def test_only_some_trials(tmp_path: Path) -> None:
    plan = make_plan([FIRST, SECOND], TINY, [], seeds=2, only={"schedule_name": ["calr"], "seed": ["1"]})
    assert [work.label for work in plan.work] == ["first/SPOS CaLR seed 1"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"clusters.name": "operation", "clusters.edges": 7}, "SPOS seed 0: clusters.edges must be 1 to 6"),
        ({"schedule.gamma_prime": 0}, "schedule.gamma_prime must be above 0"),
        ({"train.epochs": 0}, "train.epochs must be at least 1"),
        ({"train.epochz": 1}, "did you mean 'epochs'"),
        ({"schedule.gamma_prim": 1}, "gamma_prim"),
        ({"nonsense.key": 1}, "nonsense"),
        ({"rank.bins": "many"}, "rank.bins must be of type int"),
    ],
)
def test_what_could_not_run_is_refused_before_anything_does(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        make_plan([FIRST], TINY, [], overrides=overrides)


def test_combinations_that_do_not_fit_name_the_row() -> None:
    fair = Study("fair", "Fair", [Row({"Method": "FairNAS"}, {"method": "fairnas"})], COLUMNS)
    with pytest.raises(InvalidConfiguration, match="FairNAS seed 0: FairNAS cannot use these clusters"):
        make_plan([fair], TINY, [], overrides={"clusters": "random"})


def test_a_trial_survives_the_way_to_its_worker(tmp_path: Path) -> None:
    for work in planned(tmp_path, FIRST, SECOND).work:
        assert Trial.from_json(work.trial.json()) == work.trial


def test_a_curve_by_another_ranking_is_another_observation(tmp_path: Path) -> None:
    store_run(tmp_path, requests(study(observe__kendall_tau_every=1))[0], 0.5)
    (work,) = planned(tmp_path, study(observe__kendall_tau_every=1, rank__bins=10)).work
    assert (work.state, work.trial.config.rank.bins) == ("again", 10)
    # Without a curve the stored weights are enough.
    assert planned(tmp_path, study(rank__bins=10)).work[0].state == "rank"


def test_a_failure_to_measure_something_else_does_not_block_the_trial(tmp_path: Path) -> None:
    store_run(tmp_path, requests(study(rank__bins=30))[0], status="failed")
    assert planned(tmp_path, study(rank__bins=30)).work[0].state == "failed"
    assert planned(tmp_path, study()).work[0].state == "waiting"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank__images": 513}, "digits has 512 to rank on"),
        ({"rank__selection": "equal-count", "rank__bins": 20_000}, "cannot be split into 20000 chunks"),
    ],
)
def test_what_could_not_be_measured_is_refused_before_anything_runs(
    tmp_path: Path, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        planned(tmp_path, study(**settings))
