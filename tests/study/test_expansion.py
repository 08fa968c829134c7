"""Studies expand into trials; a trial's identity holds what is trained and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.components import discovery
from harness.components.preset import Preset, get_preset
from harness.components.registries import BENCHMARKS
from harness.errors import InvalidConfiguration, UnknownName
from harness.study.catalogue import find_studies
from harness.study.configuration import Observe, Ranking, RunConfig
from harness.study.expansion import apply, expand
from harness.study.layout import Column, Row
from harness.study.reader import Component
from harness.study.study import Request, Study
from harness.study.trial import Trial
from harness.truth.table import TableBenchmark

DEMO = get_preset("demo")
COLUMNS = [Column("τ", "kendall_tau")]


def ablation() -> Study:
    file = next(file for file in discovery.study_files() if file.stem == "ablation_calr_ms")
    study: Study = discovery.load_file(file).study
    return study


def row(requests: list[Request], number: int) -> RunConfig:
    return next(request.trial.config for request in requests if request.row == number)


def test_the_ablation_is_the_papers_table() -> None:
    requests = expand(ablation(), DEMO)
    assert len(requests) == 36 and len({request.trial.key for request in requests}) == 36
    labels = [tuple(r.labels.values()) for r in ablation().rows]
    assert labels[:4] == [("SPOS", False, False), ("SPOS", True, False), ("SPOS", False, True), ("SPOS", True, True)]
    both = row(requests, 7)
    assert (both.method.name, both.schedule.name, both.clusters.name) == ("fairnas", "calr", "operation")
    plain = row(requests, 8)
    assert (plain.method.name, plain.schedule.name, plain.clusters.name) == ("fsnas", "cosine", "none")


def test_every_method_gets_equal_passes() -> None:
    requests = expand(ablation(), DEMO, seeds=1)
    epochs = [row(requests, number).train.epochs for number in (0, 4, 8)]
    # FairNAS trains five paths a step, FSNAS five supernets.
    assert epochs[0] == 5 * epochs[1] == 5 * epochs[2] > 0


def test_a_study_may_ask_for_equal_passes_under_any_preset() -> None:
    rows = [Row({"Method": name}, {"method.name": name}) for name in ("spos", "fairnas", "fsnas")]
    epochs = {}
    for equal in (False, True):
        requests = expand(Study("s", "S", rows, [], equal_passes=equal), get_preset("paper"), seeds=1)
        epochs[equal] = [row(requests, number).train.epochs for number in range(3)]
    assert epochs == {False: [250, 200, 300], True: [250, 50, 50]}


@pytest.mark.parametrize(
    "measured", [{"rank": Ranking(images=7)}, {"observe": Observe(kendall_tau_every=3)}, {"rank": Ranking(bins=9)}]
)
def test_what_is_only_measured_is_not_part_of_the_identity(measured: dict[str, Any]) -> None:
    trial = Trial(RunConfig())
    other = Trial(replace(trial.config, **measured))
    assert other.config != trial.config and other.key == trial.key
    assert (other.ranking_key != trial.ranking_key) == ("rank" in measured)


@pytest.mark.parametrize(
    "trained",
    [
        {"seed": 1},
        {"method": Component("fairnas")},
        {"schedule": Component("cosine", {"final": 0.1})},
        {"clusters": Component("operation")},
        {"train": replace(RunConfig().train, first_step=0)},
        {"optimiser": Component("", {"inactive": "decay"})},
        {"train": replace(RunConfig().train, augment=(Component("mixup"),))},
        {"train": replace(RunConfig().train, order=Component("stored"))},
    ],
)
def test_what_determines_the_weights_is(trained: dict[str, Any]) -> None:
    assert Trial(replace(RunConfig(), **trained)).key != Trial(RunConfig()).key


def test_the_parent_and_the_versions_are_part_of_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    key = Trial(RunConfig()).key
    assert Trial(RunConfig(), parent=key).key != key
    monkeypatch.setattr("harness.study.trial.TRAINING_VERSION", 99)
    assert Trial(RunConfig()).key != key


def test_a_trial_survives_json_with_its_key() -> None:
    trial = expand(ablation(), DEMO)[-1].trial
    assert Trial.from_json(trial.json()) == trial and Trial.from_json(trial.json()).key == trial.key


def test_the_same_for_another_seed_is_as_if_made_by_itself() -> None:
    first = Trial(RunConfig.from_json({"method": "fsnas", "schedule": "calr", "seed": 3}), parent="f00")
    for made in (first.with_seed(7), first.with_seed(5).with_seed(7)):
        alone = Trial(RunConfig.from_json({**first.config.json(), "seed": 7}), parent="f00")
        assert made == alone and made.json() == alone.json()
        assert (made.key, made.identity(), made.ranking_key) == (alone.key, alone.identity(), alone.ranking_key)
        other = replace(made, config=replace(made.config, method=Component("spos")))
        assert other.key == Trial(replace(alone.config, method=Component("spos")), "f00").key != made.key
    assert first.config.seed == 3 and first.key != first.with_seed(7).key


def test_a_retraining_with_another_seed_starts_from_the_search_with_that_seed() -> None:
    first = Trial.of(RunConfig.from_json({"schedule": "calr", "seed": 3, "retrain": {}}))
    alone = Trial.of(RunConfig.from_json({**first.config.json(), "seed": 7}))
    for made in (first.with_seed(7), first.with_seed(5).with_seed(7)):
        assert made == alone and made.start == alone.start and made.parent != first.parent
        assert (made.key, made.identity(), made.ranking_key) == (alone.key, alone.identity(), alone.ranking_key)


def test_overrides_of_an_option_concern_the_rows_that_have_it() -> None:
    requests = expand(ablation(), DEMO, 1, {"schedule.gamma_prime": 2.0, "train.epochs": 3})
    for request in requests:
        assert request.overridden
        # Still equal passes: a fifth of three epochs is one.
        assert request.trial.config.train.epochs == (3 if request.trial.config.method.name == "spos" else 1)
        options = request.trial.config.schedule.options
        assert options.get("gamma_prime") == (2.0 if request.trial.config.schedule.name == "calr" else None)


@pytest.mark.parametrize(
    ("override", "error", "message"),
    [
        ({"train.epoch": 3}, InvalidConfiguration, "did you mean 'epochs'"),
        ({"trian.epochs": 3}, InvalidConfiguration, "no configuration section 'trian'"),
        ({"schedule.gamma": 3}, InvalidConfiguration, "schedule.gamma"),
        ({"schedule.gamma_prime": 0}, InvalidConfiguration, "must be above 0"),
        ({"method": "spso"}, UnknownName, "did you mean 'spos'"),
        ({"train.epochs": 0}, InvalidConfiguration, "at least 1"),
    ],
)
def test_overrides_that_cannot_run_are_refused(override: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        expand(ablation(), DEMO, 1, override)


def test_a_refusal_lists_keys_only_where_there_are_any() -> None:
    refused = r"network.width is a value and has no keys \(in network.width.name\)"
    with pytest.raises(InvalidConfiguration, match=refused + "$"):
        apply({"network": {}}, {"network.width.name": 5})
    with pytest.raises(InvalidConfiguration, match=refused + "; other keys there: depth"):
        apply({"network": {"depth": 1}}, {"network.width.name": 5})


def test_another_name_drops_the_options_of_the_former_component() -> None:
    document = RunConfig(schedule=Component("calr", {"gamma_prime": 3.0})).json()
    apply(document, {"schedule.final": 0.5, "schedule.name": "cosine"})
    assert document["schedule"] == {"name": "cosine", "final": 0.5}


def test_every_data_set_of_a_preset_has_its_trials() -> None:
    wide = Preset("wide", "", seeds=1, datasets=("digits", "digits"), settings={"network.depth": 1})
    assert [r.dataset for r in expand(Study("s", "S", [Row({"M": "a"})], COLUMNS), wide)] == ["digits", "digits"]


def test_a_row_without_a_table_has_no_truth_of_the_preset() -> None:
    settings = {"benchmark": None, "search.name": "random"}
    study = Study("mine", "One row", [Row({"Method": "m"}, settings)], [Column("Passes", "passes")])
    preset = get_preset("official")
    assert preset.trained_on and all(request.trial.config.rank.truth is None for request in expand(study, preset, 1))
    asked = expand(study, preset, 1, {"rank.truth": "cifar100"})
    assert {request.trial.config.rank.truth for request in asked} == {"cifar100"}  # refused when it is planned


def test_rows_with_other_labels_and_unknown_groups_are_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="same label columns"):
        Study("s", "S", [Row({"A": "x"}), Row({"B": "x"})], COLUMNS)
    with pytest.raises(InvalidConfiguration, match="group 'B'"):
        Study("s", "S", [Row({"A": "x"})], COLUMNS, group="B")


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="did you mean 'demo'"):
        get_preset("dmeo")


def test_another_truth_under_the_same_name_is_another_ranking_of_the_same_trial() -> None:
    before = Trial(RunConfig())
    key, ranking = before.key, before.ranking_key
    entry = BENCHMARKS.entries["digits"]
    digits = BENCHMARKS.get("digits")()
    changed = digits.table.test.copy()
    changed[0, 0] += 1
    other = TableBenchmark("digits", digits.space, replace(digits.table, test=changed))
    BENCHMARKS.entries["digits"] = replace(entry, thing=lambda: other)
    try:
        after = Trial(RunConfig())
        assert after.key == key and after.ranking_key != ranking
    finally:
        BENCHMARKS.entries["digits"] = entry
    assert Trial(RunConfig()).ranking_key == ranking


def test_rows_that_set_an_overridden_key_otherwise_are_left_out() -> None:
    requests = expand(ablation(), DEMO, 1, {"method.name": "spos"})
    assert [request.row for request in requests] == [0, 1, 2, 3]
    assert [request.trial.key for request in requests] == [r.trial.key for r in expand(ablation(), DEMO, 1)[:4]]
    with pytest.raises(InvalidConfiguration, match=r"every row .* sets method.name to another value"):
        expand(Study("s", "S", [Row({"M": "a"}, {"method.name": "fairnas"})], COLUMNS), DEMO, 1, {"method": "spos"})


def test_a_section_given_whole_is_merged_as_sacred_does() -> None:
    (request,) = expand(Study("s", "S", [Row({"M": "a"})], COLUMNS), DEMO, 1, {"rank": {"bins": 50}})
    assert (request.trial.config.rank.bins, request.trial.config.rank.images) == (50, 256)
    both = {"schedule": {"name": "calr"}, "schedule.gamma_prime": 2}
    (request,) = expand(Study("s", "S", [Row({"M": "a"})], COLUMNS), DEMO, 1, both)
    assert request.trial.config.schedule.options["gamma_prime"] == 2.0


def test_the_order_of_samples_is_a_component_inside_its_section() -> None:
    document = RunConfig().json()
    assert "order" not in document["train"] and "augment" not in document["train"]
    apply(document, {"train.order.name": "repeated", "train.order.times": 2})
    assert document["train"]["order"] == {"name": "repeated", "times": 2}
    apply(document, {"train.order.name": "stored"})
    assert document["train"]["order"] == {"name": "stored"}
    apply(document, {"train.order": "repeated"})
    apply(document, {"train.order.times": 4})
    assert RunConfig.from_json(document).json()["train"]["order"] == {"name": "repeated", "times": 4}
    retrained = [Row({"M": "a"}, {"retrain.order.name": "repeated", "retrain.order.times": 2})]
    (request,) = expand(Study("s", "S", retrained, COLUMNS), DEMO, 1)
    assert request.trial.config.json()["retrain"]["order"] == {"name": "repeated", "times": 2}


def test_a_key_below_a_value_is_refused_with_its_neighbours() -> None:
    with pytest.raises(InvalidConfiguration, match=r"train.epochs is a value and .* there: epochs, batch_size"):
        apply(RunConfig().json(), {"train.epochs.x": 1})


def test_an_edited_component_of_the_users_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "from harness.components.method import Method\nfrom harness.components.registries import METHODS\n\n"
        '@METHODS.register("mine")\nclass Mine(Method):\n    def paths(self, training):\n        return []\n'
    )
    keys = []
    for edition in (text, text + "edited = True\n", text + "# edited\n"):
        (tmp_path / "methods").mkdir(exist_ok=True)
        (tmp_path / "methods" / "mine.py").write_text(edition)
        monkeypatch.chdir(tmp_path)
        with discovery.fresh():
            keys.append(Trial(RunConfig(method=Component("mine"))).key)
    assert keys[0] == keys[2] != keys[1]


def test_an_edited_augmentation_or_order_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "from harness.components.augmentation import BatchAugmentation, Order\n"
        "from harness.components.registries import AUGMENTATIONS, ORDERS\n\n"
        '@AUGMENTATIONS.register("none")\nclass Nothing(BatchAugmentation):\n'
        "    def bind(self, dataset):\n        return lambda images, labels: (images, labels)\n\n"
        '@ORDERS.register("mine")\nclass Mine(Order):\n'
        "    def indices(self, count, epoch):\n        return range(count)\n"
    )
    keys: dict[str, list[str]] = {}
    for edition in (text, text + "edited = True\n", text + "# edited\n"):
        (tmp_path / "methods").mkdir(exist_ok=True)
        (tmp_path / "methods" / "mine.py").write_text(edition)
        monkeypatch.chdir(tmp_path)
        with discovery.fresh():
            for section in ({"augment": ["none"]}, {"order": "mine"}):
                for stage in ("train", "retrain"):
                    trial = Trial(RunConfig.from_json({stage: section}))
                    assert "methods-mine.py" in trial.sources()
                    keys.setdefault(f"{stage} {section}", []).append(trial.key)
    for first, edited, third in keys.values():
        assert first == third != edited


def test_runs_that_were_stored_keep_their_trials_and_rankings() -> None:
    """Keys of another day: an option that is added must not change what it means not to use it."""
    (study,) = find_studies("ablation_calr_ms")
    first, second, third = (request.trial for request in expand(study, get_preset("demo"), 1)[::5])
    assert first.key == "2ba877558b6b2a668fcb003f1bdcdf6f3959457730f2c1905ac27a843c964581"
    assert second.key == "9d004c9d258c6042caab114212858820dbe506e5a34e23e7b3d93d851b4d93a5"
    assert third.key == "94161569cb70bae77aae798c4f16e6c145e46a7d119649f9f81c90b08d91fb26"
    assert first.ranking_key == second.ranking_key == third.ranking_key == "1cacc4c1af71abbf"


def test_what_cb_is_taken_over_is_another_ranking_of_the_same_trial() -> None:
    plain = Trial(RunConfig())
    rankings = [Ranking(top_share=0.3), Ranking(top_share=0.3, top_sample=50), Ranking(top_share=0.2)]
    asked = [Trial(RunConfig(rank=ranking)) for ranking in rankings]
    assert {trial.key for trial in asked} == {plain.key}
    assert len({trial.ranking_key for trial in (*asked, plain)}) == 4
    # A sample of nothing is nothing.
    assert Trial(RunConfig(rank=Ranking(top_sample=50))).ranking_key == plain.ranking_key


def test_curves_are_asked_for_at_evenly_spaced_epochs_up_to_the_last() -> None:
    study = Study("c", "C", [Row({"": ""}, points={"observe.kendall_tau_every": 10})], [])
    for epochs, every in ((250, 25), (20, 2), (4, 1), (60, 6), (7, 1)):
        (request,) = expand(study, get_preset("demo"), 1, {"train.epochs": epochs})
        assert request.trial.config.observe.kendall_tau_every == every
