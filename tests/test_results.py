"""Stored runs as data frames, and conditions on their columns."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymongo.database import Database

from harness import results
from harness.components.discovery import component
from harness.components.preset import get_preset
from harness.errors import InvalidConfiguration, UnknownName
from harness.query import translate
from harness.stores.directory.run_directory import write_ranking
from harness.stores.directory.store import DirectoryStore, StoredRun
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.study.study import Request
from tests.stored_runs import store_run


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    return expand(find_studies("ablation_calr_ms")[0], get_preset("tiny"))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, requests: list[Request]) -> tuple[Path, list[StoredRun]]:
    """Two seeds of SPOS, one with CaLR, one that diverged, one with an override, one that failed, one superseded."""
    store = tmp_path_factory.mktemp("store") / "runs"
    preset = get_preset("tiny")
    override = {"train.epochs": 3}
    other = expand(find_studies("ablation_calr_ms")[0], preset, 1, override)[0]
    return store, [
        store_run(store, requests[0], 0.5, 60.0, curve={1: 0.25, 2: 0.5}, predictions={0: 10.0, 15624: 20.5}),
        store_run(store, requests[1], 0.25, 61.0, curve={2: 0.75}),
        store_run(store, requests[2], 0.75, 62.0),
        store_run(store, requests[4], diverged={"step": 7, "loss": None}),
        store_run(store, other, 0.625, 64.0, overrides=override),
        store_run(store, requests[6], status="failed"),
        store_run(store, requests[8], 0.1),
        store_run(store, requests[8], 0.1),
    ]


def test_one_row_a_run_that_is_done_and_counts(stored: tuple[Path, list[StoredRun]]) -> None:
    store, runs = stored
    frame = results.runs(store=store)
    assert set(frame.run_id) == {run.id for run in runs if run.status == "done"} - {runs[6].id}
    every = results.runs(store=store, all=True)
    assert set(every.run_id) == {run.id for run in runs}
    assert every.set_index("run_id").superseded[runs[6].id]
    assert every.set_index("run_id").status[runs[5].id] == "failed"


def test_columns_are_typed_and_flat(stored: tuple[Path, list[StoredRun]]) -> None:
    store, runs = stored
    frame = results.runs(store=store, panel=True).set_index("run_id")
    assert {
        column: str(frame[column].dtype)
        for column in ("method_name", "train_epochs", "optimiser_nesterov", "overridden", "seed", "rank_images")
    } == {
        "method_name": "str",
        "train_epochs": "int64",
        "optimiser_nesterov": "bool",
        "overridden": "bool",
        "seed": "int64",
        "rank_images": "int64",
    }
    assert {str(frame[c].dtype) for c in ("kendall_tau", "top1_accuracy", "wall_seconds")} == {"float64"}
    assert str(frame.peak_memory_bytes.dtype) == "int64"
    # What a configuration does not have is missing, not zero.
    assert frame.schedule_gamma_prime.notna().sum() == 1
    assert frame.schedule_gamma_prime[runs[2].id] > 0
    diverged = frame.loc[runs[3].id]
    assert diverged.diverged and diverged.diverged_step == 7 and pandas.isna(diverged.kendall_tau)
    assert frame.overridden[runs[4].id] and not frame.overridden[runs[0].id]


def test_what_only_some_runs_have_stands_behind_in_the_order_it_comes_in() -> None:
    table = results.frame([{"run_id": f"{number}", f"option_{number}": number} for number in range(9)])
    assert [*table.columns][-9:] == [f"option_{number}" for number in range(9)]
    assert [*table["option_8"].isna()] == [True] * 8 + [False]


def test_an_empty_store_has_the_same_columns(tmp_path: Path, stored: tuple[Path, list[StoredRun]]) -> None:
    empty = results.runs(store=tmp_path, where="method.name == 'spos' and kendall_tau > 0.5")
    assert len(empty) == 0
    # Only the options of components are added by those that have them.
    every = results.runs(store=tmp_path, panel=True)
    extra = {c for c in results.runs(store=stored[0], panel=True).columns if c not in every.columns}
    assert {column.partition("_")[0] for column in extra} <= {"schedule", "clusters", "method", "sampler", "optimiser"}
    assert "optimiser_learning_rate" in empty and "optimiser_clip" in every
    assert str(empty.kendall_tau.dtype) == "float64"
    assert list(results.metrics(empty, "kendall_tau").columns) == ["run_id", "step", "value"]


def test_few_columns_are_shown_unless_the_panel_is_asked_for(
    tmp_path: Path, stored: tuple[Path, list[StoredRun]]
) -> None:
    frame, every = results.runs(store=stored[0]), results.runs(store=stored[0], panel=True)
    assert len(frame.columns) < 75 < 190 < len(every.columns)
    assert [name for name in every.columns if name in frame] == list(frame.columns)
    assert "train_label_smoothing" not in frame and "panel_all_tau" not in frame and "panel_all_tau" in every
    # A condition may name any column.
    assert len(results.runs(store=stored[0], where="train.label_smoothing == 0")) == len(frame)
    # A setting that is not the default is shown.
    changed = {"train.label_smoothing": 0.5}
    request, *_ = expand(find_studies("ablation_calr_ms")[0], get_preset("tiny"), 1, changed)
    store_run(tmp_path, request, 0.5, overrides=changed)
    assert results.runs(store=tmp_path).train_label_smoothing.tolist() == [0.5]


def test_a_run_says_where_and_when_it_was_made(stored: tuple[Path, list[StoredRun]]) -> None:
    store, runs = stored
    frame = results.runs(store=store, all=True).set_index("run_id")
    assert {Path(path) for path in frame.path} == {store / run.id for run in runs}
    assert set(frame.host) == {platform.node()} and frame.commit.str.fullmatch(r"[0-9a-f]{40}(-dirty)?").all()
    assert str(frame.started.dtype) == "datetime64[us, UTC]" == str(frame.stopped.dtype)
    assert (frame.stopped >= frame.started).all() and frame.started[runs[0].id] <= pandas.Timestamp.now(tz="UTC")
    assert len(results.runs(store=store, where="started > '2020-01-01' and host != ''")) == 6


def test_a_preset_that_there_is_not_is_an_error_with_the_nearest_name(stored: tuple[Path, list[StoredRun]]) -> None:
    with pytest.raises(UnknownName, match="no preset is named 'tinny'; did you mean 'tiny'"):
        results.runs(store=stored[0], preset="tinny")


def test_a_study_gives_its_rows_and_labels(stored: tuple[Path, list[StoredRun]]) -> None:
    store, runs = stored
    frame = results.runs(study="ablation_calr_ms", store=store).set_index("run_id")
    assert set(frame.study) == {"ablation_calr_ms"}
    assert (frame.row[runs[2].id], frame.label_calr[runs[2].id], frame.label_method[runs[2].id]) == (1, True, "SPOS")
    # A run with overrides belongs to it, too: under those overrides.
    assert frame.row[runs[4].id] == 0
    assert len(results.runs(study="ablation_calr_ms", store=store, where="not overridden and label_calr")) == 1
    with pytest.raises(UnknownName, match="did you mean 'ablation_calr_ms'"):
        results.runs(study="ablation_clr_ms", store=store)


def test_a_study_knows_its_runs_of_any_seed(tmp_path: Path, requests: list[Request]) -> None:
    wanted = [replace(requests[2], trial=requests[2].trial.with_seed(seed)) for seed in (2**40, 7)]
    runs = [store_run(tmp_path, request, 0.5) for request in wanted]
    frame = results.runs(study="ablation_calr_ms", store=tmp_path).set_index("run_id")
    assert {run.id: (1, seed) for run, seed in zip(runs, (2**40, 7), strict=True)} == {
        name: (row.row, row.seed) for name, row in frame.iterrows()
    }


def test_a_study_gives_the_ranking_that_its_report_shows(tmp_path: Path, requests: list[Request]) -> None:
    study = find_studies("ablation_calr_ms")[0]
    override = {"rank.images": 32, "rank.bins": 10}
    other = expand(study, get_preset("tiny"), 1, override)[0]
    run = store_run(tmp_path, other, 0.25, 50.0, overrides=override)
    unranked = results.runs(study=study, store=tmp_path).iloc[0]
    assert pandas.isna(unranked.kendall_tau) and unranked.rank_images == 64
    plain = requests[0].trial
    judged = {**(run.result or {}), "kendall_tau": 0.75, "top1_accuracy": 70.0}
    write_ranking(tmp_path / run.id, plain.ranking_key, plain.config.json(), judged, {}, {})
    row = results.runs(study=study, store=tmp_path).iloc[0]
    [evidence] = component("reports.evidence").gather(requests[:1], DirectoryStore(tmp_path).runs())
    assert row.kendall_tau == evidence.metrics["kendall_tau"] == 0.75
    assert (row.top1_accuracy, row.rank_images, row.rank_bins, row.overridden) == (70.0, 64, 20, False)
    # Without a study, a run is what it was made as.
    own = results.runs(store=tmp_path).iloc[0]
    assert (own.kendall_tau, own.rank_images, own.overridden) == (0.25, 32, True)


def test_presets_and_conditions_select(stored: tuple[Path, list[StoredRun]], monkeypatch: pytest.MonkeyPatch) -> None:
    store, runs = stored
    monkeypatch.setenv("HARNESS_STORE", str(store))
    assert len(results.runs(preset="demo")) == 0
    chosen = results.runs(where="schedule.name == 'cosine' and kendall_tau >= 0.5 and not overridden")
    assert list(chosen.run_id) == [runs[0].id]
    assert list(results.runs(where="schedule_gamma_prime > 0").run_id) == [runs[2].id]


def test_metrics_in_long_format(stored: tuple[Path, list[StoredRun]]) -> None:
    store, runs = stored
    frame = results.runs(store=store).query("method_name == 'spos' and schedule_name == 'cosine' and not overridden")
    # The frame knows its store.
    curve = results.metrics(frame.sort_values("seed"), "kendall_tau")
    first, second = runs[0].id, runs[1].id
    assert curve.values.tolist() == [[first, 1, 0.25], [first, 2, 0.5], [second, 2, 0.75]]
    assert [str(kind) for kind in curve.dtypes] == ["str", "int64", "float64"]
    assert len(results.metrics(first, "kendall_tau", store)) == 2
    assert len(results.metrics([first, second], "kendall_tau", store)) == 3
    with pytest.raises(UnknownName, match="no metric is named 'kendal_tau'; did you mean 'kendall_tau'"):
        results.metrics(frame, "kendal_tau")
    with pytest.raises(UnknownName, match="no run's id begins with 'nothing'"):
        results.metrics("nothing", "kendall_tau", store)


def test_predictions_name_architectures_as_their_space_does(stored: tuple[Path, list[StoredRun]]) -> None:
    store, runs = stored
    found = results.predictions(runs[0].id, store)
    assert found.architecture[0] == "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|"
    assert found.predicted.tolist() == [10.0, 20.5]
    assert set(found.run_id) == {runs[0].id}


def test_labels_and_runs_are_in_the_study_s_order(tmp_path: Path) -> None:
    study = find_studies("ablation_calr_ms")[0]
    for request in reversed(expand(study, get_preset("tiny"), 1)):
        store_run(tmp_path, request, 0.5, curve={1: 0.5})
    frame = results.runs(study=study, store=tmp_path)
    assert frame.row.tolist() == [*range(12)]
    assert list(frame.label_method.unique()) == ["SPOS", "FairNAS", "FSNAS"]  # by letters it would be the reverse
    assert list(frame.sort_values("label_method", kind="stable").row) == [*range(12)]
    assert str(frame.label_calr.dtype) == "bool" and len(results.runs(study, tmp_path, where="label_ms")) == 6
    curve = results.metrics(frame, "kendall_tau")
    assert list(curve.columns) == ["run_id", "row", "label_method", "label_calr", "label_ms", "seed", "step", "value"]
    assert list(curve.groupby("label_method", observed=True).size().index) == ["SPOS", "FairNAS", "FSNAS"]


def test_predictions_have_the_truth_and_say_what_tau_is_taken_over(tmp_path: Path, requests: list[Request]) -> None:
    from harness.components.benchmark import open_benchmark
    from harness.components.selection import equal_width

    truth = open_benchmark("digits").accuracies("digits")
    selected = {int(number) for number in equal_width(truth, 20)}
    assert 15624 not in selected
    store_run(tmp_path, requests[0], 0.5, predictions={number: number % 7 for number in {*selected, 15624}})
    run = results.runs(study="ablation_calr_ms", store=tmp_path)
    found = results.predictions(run)
    table = results.truth()
    assert found.selected.sum() == len(selected) and not found.selected.iloc[-1]
    assert found.true.tolist() == truth[sorted({*selected, 15624})].tolist()
    joined = found.merge(table[table.dataset == "digits"], on="architecture")
    assert joined.accuracy.equals(joined.true) and len(table) == 15625 == table.architecture.nunique()
    assert {"parameters", "flops"} < set(table.columns) and table.parameters.max() > 1e6
    assert (found.seed.iloc[0], found.label_method.iloc[0]) == (0, "SPOS")
    alone = results.predictions(results.runs(store=tmp_path))
    assert alone.equals(found[list(alone.columns)])
    assert results.predictions(run[["run_id"]], tmp_path).equals(alone)
    assert results.predictions(iter(run.run_id), tmp_path).equals(alone)
    # As the study asks, not as the run was made.
    coarser = results.predictions(run.assign(rank_bins=10))
    assert coarser.selected.sum() == len(equal_width(truth, 10)) < len(selected)
    assert results.predictions(run.assign(benchmark="nasbench201")).true.isna().all()
    # A run that several truths judge is there once for each.
    twice = results.predictions(pandas.concat([run, run.assign(rank_truth="digits")]), tmp_path)
    assert twice.rank_truth.isna().sum() == (twice.rank_truth == "digits").sum() == len(found)


def test_the_report_s_table_and_paired_differences(tmp_path: Path, requests: list[Request]) -> None:
    taus = {0: (0.25, 0.5), 1: (0.5, 1.0), 2: (0.75,), 5: (0.125,)}  # rows; FairNAS with CaLR is row 5
    for request in requests:
        if request.seed < len(taus.get(request.row, ())):
            store_run(tmp_path, request, taus[request.row][request.seed], 60.0 + request.seed)
    table = results.table("ablation_calr_ms", tmp_path, "tiny")
    assert table.index.names == ["label_method", "label_calr", "label_ms"] and len(table) == 12
    tau = table["Kendall's τ"]
    assert tau.loc[("SPOS", True, False)].tolist() == [0.75, pytest.approx(0.5**0.5 / 2), 2]
    alone = tau.loc[("SPOS", False, True)]
    assert (alone["mean"], alone["n"]) == (0.75, 1) and pandas.isna(alone["std"])
    assert [str(kind) for kind in tau.dtypes] == ["float64", "float64", "int64"] and tau.n.sum() == 6
    assert any("FairNAS" in note for note in table.attrs["notes"])

    pairs = results.pairs("ablation_calr_ms", store=tmp_path, preset="tiny")
    assert len(pairs) == 2 * 9 and not set(pairs.row) & {0, 4, 8}  # the first rows of the three groups
    known = pairs.dropna()
    assert known[["row", "seed", "value", "baseline", "difference"]].values.tolist() == [
        [1, 0, 0.5, 0.25, 0.25],
        [1, 1, 1.0, 0.5, 0.5],
        [2, 0, 0.75, 0.25, 0.5],
    ]
    two = results.pairs("ablation_calr_ms", "top1_accuracy", 5, 1, tmp_path, "tiny").dropna()
    assert two[["row", "against", "difference"]].values.tolist() == [[5, 1, 0.0]]
    with pytest.raises(UnknownName, match="did you mean 'kendall_tau'"):
        results.pairs("ablation_calr_ms", "kendal_tau", store=tmp_path, preset="tiny")
    spelled = ("panel.all.tau", "panel_all_tau")
    dotted, plain = (results.pairs("ablation_calr_ms", name, store=tmp_path, preset="tiny") for name in spelled)
    pandas.testing.assert_frame_equal(dotted, plain)
    with pytest.raises(InvalidConfiguration, match="rows 0 to 11, not 12"):
        results.pairs("ablation_calr_ms", row=12, store=tmp_path, preset="tiny")


def test_a_quoted_number_has_no_seeds_behind_it(tmp_path: Path) -> None:
    quoted = results.table("sota", tmp_path, "tiny")
    numbers = [heading for heading in quoted.columns.levels[0] if quoted[heading]["mean"].notna().any()]
    assert numbers and all(quoted[heading]["n"].eq(0).all() for heading in numbers)
    assert {str(quoted[column].dtype) for column in quoted.columns} == {"float64", "int64"}
    # No row has runs that match, and so there is none; the headings stay.
    assert results.table("num_clusters", tmp_path, "tiny", where="seed == 9")["Kendall's τ"].shape == (0, 3)


def test_every_column_has_a_meaning(stored: tuple[Path, list[StoredRun]]) -> None:
    from fnmatch import fnmatch

    known = results.columns()
    assert known.column.is_unique and known.meaning.str.len().min() > 5
    for frame in (results.runs("ablation_calr_ms", stored[0]), results.runs(store=stored[0], all=True)):
        for column in frame.columns:
            (part, *_) = [one.part for one in known.itertuples() if fnmatch(column, one.column)] or [None]
            assert part, f"{column} has no meaning"
    meanings = known.set_index("column").meaning
    assert meanings["rank_bins"] == "How many bins or chunks the selection has"
    assert "calr" in meanings["schedule_gamma_prime"]


def test_a_database_gives_the_same_frames(
    tmp_path: Path, requests: list[Request], mongod: str, mongo_database: Database[dict[str, Any]]
) -> None:
    from harness.stores.mongo.sync import sync

    for request in requests[:4]:
        store_run(tmp_path, request, 0.5 + request.seed / 4, predictions={0: 10.0, 1: 11.0}, curve={1: 0.5})
    sync(DirectoryStore(tmp_path), mongo_database)
    address = mongod.replace("/?", f"/{mongo_database.name}?")
    makers: tuple[Callable[[str | Path], pandas.DataFrame], ...] = (
        lambda store: results.predictions(results.runs("ablation_calr_ms", store)),
        lambda store: results.metrics(results.runs("ablation_calr_ms", store), "kendall_tau"),
        lambda store: results.table("ablation_calr_ms", store, "tiny"),
        lambda store: results.pairs("ablation_calr_ms", store=store, preset="tiny"),
    )
    for make in makers:
        here = make(tmp_path)
        assert len(here)
        pandas.testing.assert_frame_equal(here, make(address))


COLUMNS = ["method_name", "kendall_tau", "seed", "overridden"]


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        ("method.name == 'spos'", "method_name == 'spos'"),
        ("method_name=='method.name'", "method_name=='method.name'"),
        ('method.name == "it\'s a . b" and seed in [0, 1]', 'method_name == "it\'s a . b" and seed in [0, 1]'),
        ("0.5 < kendall.tau <= 1.", "0.5 < kendall_tau <= 1."),
        ("not overridden or (seed\n  == 1)", "not overridden or (seed == 1)"),
    ],
)
def test_dotted_names_become_columns_outside_of_strings(typed: str, plain: str) -> None:
    assert translate(typed, COLUMNS) == plain


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "@pandas.io.common.os.system('true')",
        "seed == @seed",
        "seed @ seed",
        "seed.__class__ == 1",
        "(seed).__class__",
        "method.name.str.len() > 3",
        "'x'.__class__",
        "seed[0] == 1",
        "[s for s in seed]",
        "(lambda: 1)()",
        "f'{seed}' == '1'",
        "`seed` == 1",
        "seed == 9 ** 9 ** 9",
        "seed = 1",
        "seed == 1; seed",
        "seed == 1 # really",
        "seed ==",
        "'open",
        "((((",
        "",
        "globals",
        "sed == 1",
        "method..name == 'spos'",
        "seed == method.",
        "'a' * 99999999999 == method.name",
        "seed in [1] * 99999999999",
    ],
)
def test_nothing_but_comparisons_is_evaluated(expression: str) -> None:
    with pytest.raises(InvalidConfiguration):
        translate(expression, COLUMNS)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("methd.name == 'spos'", "no column is named 'methd_name'; did you mean 'method_name'"),
        ("kendall_tau > 'high'", "cannot evaluate"),
        ("kendall_tau", "neither true nor false"),
        ("1 == 1", "neither true nor false"),
        ("method..name == 'spos'", "a dot must be between two names"),
        ("'a' * 99999999999 == method.name", "only numbers can be multiplied"),
        ("'%99999999999d' % 1 == method.name", "only numbers can be divided"),
        (f"{'not ' * 100_000}seed", "cannot read '(not ){50}…': it is too deep, or needs too much memory"),
        ("kendall_tau.mean() > 1", "Call is not allowed in an expression.*compares columns"),
    ],
)
def test_a_bad_condition_says_what_is_wrong(
    expression: str, message: str, stored: tuple[Path, list[StoredRun]]
) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        results.runs(store=stored[0], where=expression)


@given(st.text(max_size=40))
def test_any_text_is_translated_or_refused(text: str) -> None:
    try:
        plain = translate(text, COLUMNS)
    except InvalidConfiguration:
        return
    assert "@" not in plain.replace("'", '"').split('"')[0] and "__" not in plain.split("'")[0].split('"')[0]


def test_a_name_that_the_text_leaves_out_is_a_column_and_a_filter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default optimiser is not in a configuration's text, so that older runs keep their keys."""
    from harness.cli import main

    (request, *_) = expand(find_studies("ablation_calr_ms")[0], get_preset("tiny"), 1)
    assert "name" not in request.trial.config.json()["optimiser"]
    store_run(tmp_path, request, 0.5)
    assert results.runs(store=tmp_path)["optimiser_name"].tolist() == ["sgd"]
    asked = ["plan", "ablation_calr_ms", "--preset", "tiny", "--seeds", "1", "--store", str(tmp_path)]
    assert main([*asked, "--only", "optimiser.name=sgd"]) == 0
    assert "12 trials" in capsys.readouterr().out
