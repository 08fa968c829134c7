"""The presets, and every point in which the released code differs from the paper: one option, one changed quantity."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness import results
from harness.cli import main
from harness.components.dataset import DataSet
from harness.components.discovery import component
from harness.components.preset import Preset, get_preset
from harness.components.registries import BENCHMARKS, SPACES
from harness.components.selection import equal_count, equal_width
from harness.components.space import Architecture
from harness.data.loader import Batch
from harness.metrics import kendall_tau
from harness.schema import UNRANKED
from harness.seeds import make_rng
from harness.stores.directory.run_directory import predictions_document, write_ranking
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.configuration import COMPONENTS, RunConfig
from harness.study.expansion import expand
from harness.study.judging import Judgement, Prediction, judge, selected_architectures
from harness.study.layout import Column, Row
from harness.study.study import Request, Study
from harness.training.stages.train import Supernets, build_supernets, prepare
from harness.training.supernet import SupernetTraining
from harness.truth.imported import AccuracyTable, ImportedBenchmark
from tests.stored_runs import store_run

OFFICIAL, PAPER = get_preset("official"), get_preset("paper")
DIFFERENCES = OFFICIAL.differences
SAME = component("studies.presets._paper_and_code").SAME
SPACE = SPACES.get("nasbench201")()
DATASETS = ("cifar10", "cifar100", "imagenet16-120")
CALR = {"schedule.name": "calr"}
SMALL_NETWORK = {"network.width": 4, "network.depth": 1}
SMALLEST: Architecture = (1, 2, 0, 4, 1, 0)
LARGEST: Architecture = (3, 3, 3, 3, 3, 3)
STEPS_PER_EPOCH = 2


def flipped(*names: str) -> Preset:
    """The paper's preset with only these points as in the released code."""
    points = [point for point in DIFFERENCES if point.name in names]
    assert len(points) == len(names)
    return PAPER.with_differences(points, "flipped", "")


def requests(
    preset: Preset, seeds: int | None = 1, overrides: dict[str, Any] | None = None, **row: Any
) -> list[Request]:
    settings = {key.replace("__", "."): value for key, value in row.items()}
    study = Study("one", "one row", [Row({"": ""}, settings)], [])
    return expand(study, preset, seeds, overrides)


def configured(preset: Preset, method: str, settings: dict[str, Any] | None = None, seed: int = 0) -> RunConfig:
    """The configuration of a row with that method on CIFAR-10, its network made small."""
    study = Study("one", "one row", [Row({"": ""}, {"method.name": method, **(settings or {})})], [])
    return expand(study, preset, seed + 1, SMALL_NETWORK)[seed].trial.config


def trainings(config: RunConfig, images: DataSet) -> list[SupernetTraining]:
    return prepare(config, build_supernets(config, images), STEPS_PER_EPOCH)[1]


def a_batch(images: DataSet) -> Batch:
    pixels = torch.from_numpy(images.train.images[:16].astype(np.float32)) / 255
    return Batch(pixels, torch.from_numpy(images.train.labels[:16]), torch.arange(16))


@pytest.fixture(scope="module")
def truth() -> ImportedBenchmark:
    """Made-up accuracies of all architectures on the three data sets."""
    chances = np.random.default_rng(7)
    columns = {
        (dataset, split): chances.uniform(5, 90, SPACE.size) for dataset in DATASETS for split in ("valid", "test")
    }
    return ImportedBenchmark("nasbench201", SPACE, AccuracyTable(columns, {"space": "nasbench201"}))


@pytest.fixture
def imported(truth: ImportedBenchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ImportedBenchmark]:
    """The same as the benchmark `nasbench201`."""
    truth.table.write(tmp_path / "nasbench201.npz")
    monkeypatch.setenv("HARNESS_BENCHMARKS", str(tmp_path))
    yield truth


def judged(config: RunConfig, truth: ImportedBenchmark) -> Judgement:
    """A ranking by numbers of our own, judged as the configuration says."""
    predictions = {one: Prediction(math.sin(SPACE.index(one))) for one in SPACE}
    method = config.method.build(COMPONENTS["method"], "method")
    supernets = Supernets(SPACE, method.parts(SPACE, make_rng(config.seed, "split")), ())
    return judge(predictions, supernets, truth, config.dataset, config.rank)


# --- the points, in the order of `harness explain official` ---


def test_supernets(imported: ImportedBenchmark) -> None:
    """One for each data set, or one for all, judged by each."""
    own = requests(PAPER, method="spos")
    assert [request.trial.config.dataset for request in own] == list(DATASETS)
    assert len({request.trial.key for request in own}) == 3
    one = requests(flipped("supernets"), method="spos")
    assert [request.dataset for request in one] == list(DATASETS)
    assert {request.trial.config.dataset for request in one} == {"cifar10"}
    assert len({request.trial.key for request in one}) == 1
    assert len({request.trial.ranking_key for request in one}) == 3
    # On CIFAR-10 nothing differs, neither the training nor the judgement.
    assert (one[0].trial.key, one[0].trial.ranking_key) == (own[0].trial.key, own[0].trial.ranking_key)
    for request in one:
        config = request.trial.config
        selected = [SPACE.architecture(int(n)) for n in equal_count(imported.accuracies(request.dataset), 400)]
        assert selected_architectures(imported, config.dataset, config.rank) == selected
        predicted = [math.sin(SPACE.index(architecture)) for architecture in selected]
        expected = kendall_tau(
            predicted, [imported.accuracy(architecture, request.dataset) for architecture in selected]
        )
        found = judged(config, imported)
        assert found.kendall_tau == pytest.approx(expected)
        assert found.top1 and found.top1_accuracy == imported.accuracy(found.top1, request.dataset)


def test_the_selection_for_tau(imported: ImportedBenchmark) -> None:
    truth = imported
    for number, dataset in enumerate(DATASETS):
        for preset, expected in (
            (PAPER, equal_count(truth.accuracies(dataset), 400)),
            (flipped("selection for τ"), equal_width(truth.accuracies("imagenet16-120"), 400)),
        ):
            config = requests(preset)[number].trial.config
            assert config.dataset == dataset
            selected = selected_architectures(truth, dataset, config.rank)
            assert [SPACE.index(architecture) for architecture in selected] == expected.tolist()
    # Another selection is another ranking of the same trial, and one that is selected by its own truth is not.
    own = {"rank.selection": "equal-width"}
    plain, foreign, again = (
        requests(replace(PAPER, settings={**PAPER.settings, **own, "rank.selection_on": dataset}))[0].trial
        for dataset in (None, "cifar100", "cifar10")
    )
    assert plain.key == foreign.key == again.key
    assert plain.ranking_key == again.ranking_key != foreign.ranking_key


def test_what_ranks() -> None:
    assert requests(PAPER)[0].trial.config.rank.by == "loss"
    assert requests(flipped("what ranks"))[0].trial.config.rank.by == "accuracy"
    (study,) = find_studies("unfairness")  # Tables 4 and D: the paper defines C³ by accuracies
    assert {one.trial.config.rank.by for one in expand(study, get_preset("paper"), 1)} == {"accuracy"}


@pytest.mark.parametrize("method", ["spos", "fairnas", "fsnas"])
def test_nesterov_and_clipping(method: str, few_digits: DataSet) -> None:
    """The norm of all gradients after a step, made large by a large loss."""
    norms = []
    for preset in (PAPER, flipped("Nesterov and clipping")):
        config = configured(preset, method)
        training = trainings(config, few_digits)[0]
        training.momentum.clear_gradients()
        (1000 * training.loss(a_batch(few_digits), (*[3] * 5, 3))).backward()  # type: ignore[no-untyped-call]
        training.momentum.step(0, 0.01)
        norms.append(
            math.sqrt(sum(float((p.grad**2).sum()) for p in training.momentum.parameters if p.grad is not None))
        )
        (optimiser,) = training.momentum.optimisers.values()
        assert optimiser.param_groups[0]["nesterov"]
    assert norms[0] == pytest.approx(5, rel=1e-3)
    assert norms[1] > 100 if method == "fairnas" else norms[1] == norms[0]


def test_nesterov_is_off_where_there_is_no_momentum(few_digits: DataSet) -> None:
    training = trainings(configured(PAPER, "spos", {"optimiser.momentum": 0}), few_digits)[0]
    assert not training.momentum.of(0).param_groups[0]["nesterov"]


def rate(config: RunConfig, images: DataSet, step: int, path: Architecture = LARGEST) -> float:
    """The learning rate of a path at that step, counted from 0."""
    training = trainings(config, images)[0]
    return float(config.optimiser.learning_rate) * training.rate_factors([path], step)[0]


def test_the_learning_rate_of_fairnas_without_calr(few_digits: DataSet) -> None:
    halfway = 200 * STEPS_PER_EPOCH // 2 - 1
    name = "FairNAS's baseline learning rate"
    assert rate(configured(PAPER, "fairnas"), few_digits, halfway) == pytest.approx(0.0125)
    assert rate(configured(flipped(name), "fairnas"), few_digits, halfway) == 0.025
    # Rows that say their schedule keep it, and other methods are not concerned.
    for method, row in (("fairnas", CALR), ("fairnas", {"schedule.name": "cosine"}), ("spos", {}), ("fsnas", {})):
        assert configured(flipped(name), method, row) == configured(PAPER, method, row)


def test_how_fairnas_with_calr_weighs_paths(few_digits: DataSet) -> None:
    """The quantity is weight decay: where the network gives no gradient, W falls by rate × decay × weight."""
    shrinkage = []
    for preset in (PAPER, flipped("FairNAS with CaLR")):
        config = configured(preset, "fairnas", {**CALR, "optimiser.momentum": 0.0, "optimiser.weight_decay": 0.5})
        training = trainings(config, few_digits)[0]
        paths = [SMALLEST, LARGEST]
        step = training.total_steps // 2 - 1
        factors = training.rate_factors(paths, step)
        assert factors[0] < 0.1 < factors[1]
        images = a_batch(few_digits)._replace(images=torch.zeros(16, 1, 8, 8))  # of zeros the stem learns nothing
        stem = next(iter(training.network.parameters()))
        before = stem.detach().clone()
        training.descend(images, paths, step)
        shrinkage.append(float(1 - stem.detach().norm() / before.norm()) / (0.025 * 0.5))
        assert torch.allclose(stem / before, (stem / before).mean().expand_as(stem), atol=1e-6)
    assert shrinkage == pytest.approx([sum(factors) / 2, 1.0], rel=1e-3)


def test_complexity(few_digits: DataSet) -> None:
    counts, rates = [], []
    for preset in (PAPER, flipped("complexity C(α)")):
        config = configured(preset, "spos", CALR)
        counts.append(SPACE.complexity_range(config.schedule.options["complexity"]))
        rates.append(rate(config, few_digits, 249, (3, 3, 0, 0, 0, 0)))
        assert "complexity" not in configured(preset, "spos").schedule.options
    assert counts == [(73_306, 1_531_546), (72_752, 1_524_272)]
    assert rates[0] != rates[1] and rates[0] == pytest.approx(rates[1], rel=0.01)


def test_t(few_digits: DataSet) -> None:
    total = 250 * STEPS_PER_EPOCH
    for preset, t in ((PAPER, 1), (flipped("t"), 0)):
        config = configured(preset, "spos", {"schedule.name": "polynomial"})
        assert rate(config, few_digits, 0) == pytest.approx(0.025 * (1 - t / total))
        assert rate(config, few_digits, total - 1) == pytest.approx(0.025 * (1 - (total - 1 + t) / total))


def split_edges(preset: Preset) -> list[int]:
    """The edge that FSNAS splits at, for ten seeds."""
    edges = []
    for seed in range(10):
        config = configured(preset, "fsnas", seed=seed)
        parts = config.method.build(COMPONENTS["method"], "method").parts(SPACE, make_rng(seed, "split"))
        (edge,) = {edge for part in parts for edge in part.fixed}
        edges.append(edge)
    return edges


def test_the_split_edge_of_fsnas() -> None:
    assert len(set(split_edges(PAPER))) > 2
    assert set(split_edges(flipped("FSNAS's split edge"))) == {0}


@pytest.mark.parametrize("preset", [PAPER, OFFICIAL])
def test_the_edge_of_momentum_separation_is_drawn_in_both(preset: Preset) -> None:
    rule = configured(preset, "fsnas", {"clusters.name": "operation"}).clusters.build(
        COMPONENTS["clusters"], "clusters"
    )
    free = {rule.bind(SPACE, {}, random.Random(seed)).decisions for seed in range(50)}
    assert free == {(edge,) for edge in range(6)}
    beside = {rule.bind(SPACE, {0: 3}, random.Random(seed)).decisions for seed in range(50)}
    assert beside == {(edge,) for edge in range(1, 6)}


@pytest.mark.parametrize("method", ["spos", "fsnas"])
def test_inactive_parameters(method: str, few_digits: DataSet) -> None:
    """The weights of an operation that a second step does not use."""
    changes = []
    for preset in (PAPER, flipped("inactive parameters")):
        training = trainings(configured(preset, method), few_digits)[0]
        first, second = (3,) * 6, (2,) * 6
        training.descend(a_batch(few_digits), [first], 0)
        used = [p for p in training.momentum.parameters if p.grad is not None and p.grad.any()]
        before = [p.detach().clone() for p in used]
        training.descend(a_batch(few_digits), [second], 1)
        idle = [(p, b) for p, b in zip(used, before, strict=True) if p.grad is None or not p.grad.any()]
        assert idle
        changes.append([not torch.equal(p, b) for p, b in idle])
    assert not any(changes[0]) and all(changes[1])


@pytest.mark.parametrize("preset", [PAPER, OFFICIAL])
def test_batch_normalisation_is_the_same_in_both(preset: Preset, few_digits: DataSet) -> None:
    (network,) = build_supernets(configured(preset, "spos"), few_digits).networks
    norms = [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert norms and not any(norm.affine or norm.track_running_stats for norm in norms)
    flipped_norms = replace(preset, settings={**preset.settings, "network.batch_norm": "tracked"})
    (other,) = build_supernets(configured(flipped_norms, "spos"), few_digits).networks
    assert any(isinstance(m, torch.nn.BatchNorm2d) and m.track_running_stats for m in other.modules())


def test_top_1(truth: ImportedBenchmark) -> None:
    for method in ("spos", "fsnas"):
        found = judged(configured(PAPER, method), truth)
        winners: dict[int, int] = {}
        (edge,) = {0} if method == "spos" else {split_edges(PAPER)[0]}
        for architecture in SPACE:
            part = 0 if method == "spos" else architecture[edge]
            number = SPACE.index(architecture)
            if part not in winners or math.sin(number) > math.sin(winners[part]):
                winners[part] = number
        assert len(winners) == (1 if method == "spos" else 5)
        best = max(truth.accuracies("cifar10")[number] for number in winners.values())
        assert found.top1 and found.top1_accuracy == best == truth.accuracy(found.top1, "cifar10")
        without = judged(configured(flipped("top-1"), method), truth)
        assert (without.top1, without.top1_accuracy) == (None, None)
        assert without.kendall_tau == found.kendall_tau


# --- the presets as wholes ---


def test_every_difference_between_the_two_is_a_point_and_every_point_a_difference() -> None:
    def flat(preset: Preset) -> dict[tuple[str, str], Any]:
        own = {(method, key): value for method, more in preset.by_method.items() for key, value in more.items()}
        return {("", key): value for key, value in preset.settings.items()} | own

    paper, official = flat(PAPER), flat(OFFICIAL)
    different = {key for key in official if key not in paper or official[key] != paper[key]}
    set_by_points = [
        (method, key)
        for point in DIFFERENCES
        for method, own in {"": point.settings, **point.by_method}.items()
        for key in own
    ]
    assert paper.keys() <= official.keys()
    assert len(set_by_points) == len(set(set_by_points)) and set(set_by_points) == different
    assert (PAPER.trained_on, OFFICIAL.trained_on) == (None, "cifar10")
    for point in DIFFERENCES:
        changes = bool(point.settings or point.by_method or point.trained_on)
        assert changes == (point.own != SAME), point.name
    # Each flip alone changes some row's configuration.
    rows = [("spos", {}), ("spos", CALR), *((method, {}) for method in OFFICIAL.by_method)]
    for point in DIFFERENCES:
        if point.own != SAME and not point.trained_on:
            preset = flipped(point.name)
            assert any(configured(preset, m, row) != configured(PAPER, m, row) for m, row in rows), point.name


@pytest.mark.parametrize("preset", [PAPER, OFFICIAL])
@pytest.mark.parametrize(("method", "epochs"), [("spos", 250), ("fairnas", 200), ("fsnas", 300)])
def test_the_scale_of_the_paper(preset: Preset, method: str, epochs: int) -> None:
    asked = requests(preset, None, method=method, schedule="calr")
    assert [request.dataset for request in asked] == [dataset for dataset in DATASETS for _ in range(3)]
    for request in asked:
        config = request.trial.config
        assert config.train.epochs == epochs and config.train.batch_size == 64
        assert (config.optimiser.learning_rate, config.optimiser.weight_decay) == (0.025, 5e-4)
        assert (config.optimiser.momentum, config.optimiser.nesterov) == (0.9, True)
        assert config.schedule.options["gamma_prime"] == 4
        assert (config.network.width, config.network.depth) == (16, 5)
        assert (config.rank.images, config.rank.candidates, config.rank.bins) == (None, None, 400)
        assert config.benchmark == "nasbench201"
    assert {request.trial.config.seed for request in asked} == {0, 1, 2}


def test_small_is_judged_by_the_official_benchmark(imported: ImportedBenchmark) -> None:
    (request,) = requests(get_preset("small"), 1, method="spos")
    config = request.trial.config
    assert (config.dataset, config.benchmark) == ("cifar10-16", "nasbench201")
    assert (config.network.width, config.network.depth) == (8, 1)
    assert request.trial.ranking_key
    benchmark = BENCHMARKS.get("nasbench201")()
    found = judged(config, benchmark)
    assert found.selected == len(equal_width(imported.accuracies("imagenet16-120"), 400))
    assert found.top1 and found.top1_accuracy == imported.accuracy(found.top1, "cifar10")


def test_a_rows_settings_stand_over_the_presets_and_overrides_over_both() -> None:
    def fairnas(row: dict[str, Any], **overrides: Any) -> RunConfig:
        study = Study("one", "", [Row({"": ""}, {"method": "fairnas", **row})], [])
        return expand(study, OFFICIAL, 1, {key.replace("__", "."): value for key, value in overrides.items()})[
            0
        ].trial.config

    assert fairnas({}).optimiser.clip is None and fairnas({}).schedule.name == "constant"
    assert fairnas({"optimiser.clip": 3.0}).optimiser.clip == 3
    assert fairnas({}, optimiser__clip=2.0).optimiser.clip == 2
    assert fairnas({"train.epochs": 7}).train.epochs == 7
    assert fairnas({}, schedule__name="cosine").schedule.name == "cosine"
    # The preset's option of a component is there for whoever names the component.
    assert fairnas({}, schedule__name="calr").schedule.options["complexity"] == "parameters-released"
    assert fairnas({}, schedule__name="calr", schedule__complexity="flops").schedule.options["complexity"] == "flops"
    assert fairnas(CALR, schedule__gamma_prime=2.0).schedule.options["gamma_prime"] == 2
    # A method that an override names has its own settings.
    (one,) = {r.trial.config.train.epochs for r in requests(PAPER, 1, {"method.name": "fsnas"})}
    assert one == 300


def test_a_row_may_say_what_it_is_trained_on(imported: ImportedBenchmark) -> None:
    """Whatever it is trained on, every column is judged by its own data set."""
    for request in requests(OFFICIAL, 1, {"dataset": "cifar100"}):
        assert request.trial.config.dataset == "cifar100"
        assert request.trial.config.rank.truth_of("cifar100") == request.dataset


def test_one_run_answers_for_every_data_set_that_judges_it(imported: ImportedBenchmark, tmp_path: Path) -> None:
    """In the table and in the data frame; top-1, which is not computed, is no column."""
    columns = [Column("τ", "kendall_tau"), Column("Top-1", "top1_accuracy")]
    study = Study("one", "one row", [Row({"Method": "SPOS"}, {"method": "spos"})], columns)
    first, *others = expand(study, OFFICIAL, 1)
    run = store_run(tmp_path / "runs", first, 0.5, preset="official")
    opened = DirectoryStore(tmp_path / "runs")
    for number, request in enumerate(others):
        config = request.trial.config.json()
        judged = {**UNRANKED, "kendall_tau": 0.6 + number / 10, "selected": 327}
        write_ranking(
            opened.path_of(run), request.trial.ranking_key, config, judged, {}, predictions_document(config, {})
        )
    table = component("reports.tables").build(study, OFFICIAL, opened, seeds=1)
    assert [(column.dataset, column.label) for column in table.columns] == [(dataset, "τ") for dataset in DATASETS]
    assert [value.mean for value in table.blocks[0][0].values] == ["0.500", "0.600", "0.700"]
    assert table.notes == ("Top-1 is not computed here.",)
    frame = results.runs(study, opened)
    assert frame["run_id"].tolist() == [run.id] * 3 and frame["rank_truth"].tolist() == list(DATASETS)
    assert frame["kendall_tau"].tolist() == [0.5, 0.6, 0.7]


def test_without_images_and_benchmark_there_is_a_plan_and_a_run_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HARNESS_BENCHMARKS", str(tmp_path))
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path))
    monkeypatch.setenv("HARNESS_STORE", str(tmp_path / "runs"))
    asked = ["ablation_calr_ms", "--preset", "paper"]
    assert main(["plan", *asked]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[2:3]] == [
        ["108", "waiting", "not", "run", "yet"]
    ]
    assert main(["run", *asked]) == 2
    assert "import it with `harness benchmark import FILE`" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("preset", [PAPER, OFFICIAL])
def test_sumnas_and_pa_da_train_on_all_images_of_cifar10(preset: Preset) -> None:
    for method in ("sumnas", "pa-da", "spos"):
        trained = {
            one.trial.config.dataset: one.trial.config.train.with_valid for one in requests(preset, method=method)
        }
        assert trained == {name: name == "cifar10" and method != "spos" for name in trained} and trained
