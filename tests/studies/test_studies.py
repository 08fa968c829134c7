"""Our own studies: every one can be planned under every preset, and what they ask for is what the paper says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.components.discovery import component
from harness.components.preset import default_preset, get_preset, presets_of
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import all_studies, find_studies
from harness.study.configuration import Observe
from harness.study.expansion import expand
from harness.study.layout import Computed, Curves, Drawings
from harness.study.study import Study
from harness.work.plan import make_plan
from tests.stored_runs import store_run

NAMES = [
    "ablation_calr_ms",
    "autoformer_space",
    "calr_control",
    "clustering",
    "compared_methods",
    "complexity_metric",
    "darts_space",
    "decay_function",
    "gamma_grid",
    "gradient_similarity",
    "mobilenet_gamma_grid",
    "mobilenet_layer_selection",
    "mobilenet_main",
    "nb201_main",
    "no_momentum",
    "nonuniform_sampling",
    "num_clusters",
    "retrain_scheduler",
    "searched_subnets",
    "selection_sensitivity",
    "sota",
    "sota_equal_passes",
    "sota_plus_ours",
    "training_curves",
    "tuning",
    "unfairness",
]


@pytest.fixture(params=NAMES)
def study(request: pytest.FixtureRequest) -> Study:
    (found,) = find_studies(request.param)
    return found


def of_the_default_space() -> list[Study]:
    """Those of `--all`."""
    return [one for one in all_studies() if one.about == default_preset().space and not one.by_name_only]


def test_these_are_all() -> None:
    assert [study.name for study in all_studies()] == NAMES


@pytest.mark.parametrize("preset", list(presets_of()))
def test_can_be_planned(study: Study, preset: str) -> None:
    if preset not in presets_of(study.about):
        return
    plan = make_plan([study], get_preset(preset, study.about), [], seeds=1)
    assert plan.work and set(plan.states) == {"waiting"}
    labels = [tuple(row.labels.items()) for row in study.rows]
    assert len(set(labels)) == len(labels)


def test_lines_name_rows_and_metrics_that_are_observed(study: Study) -> None:
    observed: dict[str, Callable[[Observe], int | bool]] = {
        "kendall_tau": lambda observe: observe.kendall_tau_every,
        "gradient_spread": lambda observe: observe.spread,
        "momentum_spread": lambda observe: observe.spread and observe.spread_within,
        "gradient_similarity": lambda observe: observe.similarity_every,
        "valid_loss": lambda observe: observe.subnets_every,
        "valid_accuracy": lambda observe: observe.subnets_every,
    }
    requests = expand(study, get_preset("demo", study.about), seeds=1)
    by_row = {request.row: request.trial.config.observe for request in requests}
    for panel in (panel for figure in study.figures for panel in figure.panels if isinstance(panel, Curves)):
        for line in panel.lines:
            (row,) = [number for number, row in enumerate(study.rows) if dict(row.labels) == dict(line.row)]
            (asked,) = [is_asked for name, is_asked in observed.items() if line.metric.startswith(name)]
            assert asked(by_row[row]), line


def test_what_is_computed_can_be(study: Study) -> None:
    requests = expand(study, get_preset("demo", study.about), seeds=1)
    for panel in (panel for figure in study.figures for panel in figure.panels):
        if isinstance(panel, Computed):
            series = panel.series(requests)
            assert series and all(len(one.x) == len(one.y) > 10 for one in series)
        if isinstance(panel, Drawings):
            assert list(panel.architectures(requests)) == ["A₀", "A₁", "A₃", "A₅"]


def test_all_together_share_their_trials() -> None:
    plan = make_plan(of_the_default_space(), get_preset("demo"), [], seeds=1)
    kinds = Counter("retraining" if work.trial.start else work.trial.config.method.name for work in plan.work)
    paper = {"spos": 18, "fairnas": 12, "fsnas": 12, "retraining": 6, "related": 1}
    twice = {"cream", "sumnas", "pa-da", "greedynas", "shiftnas-reading", "sandwich", "gm-nas", "deps", "darts"}
    assert kinds == paper | dict.fromkeys(twice | {"supernet-shifting"}, 2) | {"nsas": 3, "gdas": 1}
    labels = [work.label.rpartition(" +")[0] for work in plan.work]
    assert "ablation_calr_ms/SPOS CaLR MS seed 0" in labels  # not after the retraining that needs it
    baseline = plan.work[labels.index("ablation_calr_ms/SPOS seed 0")]
    assert len({request.study for request in baseline.requests}) == 14
    observe = baseline.trial.config.observe
    assert observe.spread and observe.kendall_tau_every == 2 and observe.subnets_every == 2


def test_methods_train_as_published_and_at_equal_passes() -> None:
    published, equal = (find_studies(name)[0] for name in ("sota", "sota_equal_passes"))

    def epochs(study: Study, preset: str) -> dict[str, int]:
        requests = expand(study, get_preset(preset), seeds=1)
        return {one.trial.config.method.name: one.trial.config.train.epochs for one in requests}

    others = {"fairnas": 200, "fsnas": 300, "darts": 50, "gm-nas": 90}
    assert epochs(published, "paper") == dict.fromkeys(epochs(published, "paper"), 250) | others
    # A mixture of five operations counts as five passes; DARTS of second order makes four of them in a step.
    shares = {"fairnas": 50, "fsnas": 50, "sumnas": 25, "nsas": 83, "sandwich": 62}
    shares |= {"darts": 12, "gdas": 125, "gm-nas": 87, "deps": 100}
    assert epochs(equal, "paper") == dict.fromkeys(epochs(equal, "paper"), 250) | shares
    trials = [{one.trial.key for one in expand(study, get_preset("demo"), seeds=1)} for study in (published, equal)]
    assert trials[0] == trials[1]


def test_every_quotation_that_is_trained_here_has_its_row_below_it() -> None:
    [study] = find_studies("sota")
    labels = [(row.labels["Method"], row.source) for row in study.rows]
    for method in ("NSAS", "Cream", "SUMNAS", "PA&DA"):
        below = labels[labels.index((method, "paper")) + 1]
        assert below == (f"{method}, trained here", "runs")


def test_only_methods_whose_steps_keep_to_one_cluster_get_momentum_separation() -> None:
    [study] = find_studies("sota_plus_ours")
    both = {row.labels["Method"]: row.labels["MS"] for row in study.rows if row.labels["CaLR"]}
    assert [method for method, separated in both.items() if not separated] == ["NSAS", "AlphaNet", "DepS"]
    assert any("CaLR alone for NSAS, AlphaNet, DepS" in remark for remark in study.remarks)


def test_figure_2d_shows_calr_and_ms_alone_and_together(tmp_path: Path) -> None:
    """Each line is of the runs whose configuration its label names."""
    (study,) = find_studies("training_curves")
    preset = get_preset("tiny")
    methods = {"spos": "SPOS", "fairnas": "FairNAS", "fsnas": "FSNAS"}
    endings = {(False, False): "", (True, False): " + CaLR", (False, True): " + MS", (True, True): " + Ours"}
    expected: dict[str, float] = {}
    for number, request in enumerate(expand(study, preset, 1)):
        config = request.trial.config
        parts = config.schedule.name == "calr", config.clusters.name == "operation"
        expected[methods[config.method.name] + endings[parts]] = number / 100
        store_run(tmp_path, request, 0.5, observed={"kendall_tau": [[1, number / 100]]})
    found = component("reports.evidence").find(study, preset, DirectoryStore(tmp_path), 1)
    (figure,) = [one for one in component("reports.figures").build(found) if one.name == "curves"]
    assert {line.label: line.y[0] for line in figure.panels[3].curves} == expected
    assert {"SPOS + CaLR", "SPOS + MS", "SPOS + Ours", "SPOS"} < expected.keys() and len(expected) == 8


@pytest.mark.parametrize(("preset", "every"), [("paper", 25), ("demo", 2), ("tiny", 1)])
def test_curves_have_about_ten_points(preset: str, every: int) -> None:
    (study,) = find_studies("training_curves")
    spos = [r.trial.config for r in expand(study, get_preset(preset), seeds=1) if r.trial.config.method.name == "spos"]
    assert {config.observe.kendall_tau_every for config in spos} == {every}


@pytest.mark.parametrize("preset", ["paper", "demo", "tiny"])
def test_table_i_has_20_groups_of_subnets_in_a_run_with_their_deviation(preset: str) -> None:
    (study,) = find_studies("gradient_similarity")
    options = [one.trial.config.method.options for one in expand(study, get_preset(preset), 1)]
    assert [one.get("bases") for one in options] == [20] * len(options)
    names = [(f"mgcs_{number}", f"mgcs_deviation_{number}") for number in (1, 2, 3)]
    assert [tuple(row.metrics[column.metric] for column in study.columns) for row in study.rows] == names


def test_a_copied_study_file_is_a_study(tmp_path: Path) -> None:
    (study,) = find_studies("ablation_calr_ms")
    copied = tmp_path / "mine.py"
    copied.write_text((Path(__file__).parents[2] / "studies" / "ablation_calr_ms.py").read_text())
    (same,) = find_studies(str(copied))
    assert [row.settings for row in same.rows] == [row.settings for row in study.rows]
