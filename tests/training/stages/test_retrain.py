"""Retraining what a search has found: on any space, resumable, and only after the search."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.components.dataset import DataSet, Stream
from harness.components.preset import get_preset
from harness.components.registries import DATASETS, SPACES
from harness.errors import DamagedImage, InvalidConfiguration
from harness.stores.claims import Claims
from harness.stores.directory.records import DirectoryRecords
from harness.stores.directory.store import DirectoryStore
from harness.study.configuration import Retraining, RunConfig
from harness.study.expansion import expand
from harness.study.layout import Column, Row
from harness.study.study import Study
from harness.study.trial import Trial
from harness.training.cost import Meter
from harness.training.stages.retrain import best_found, retrain, with_valid
from harness.training.stages.standalone import StandaloneRecipe, train_standalone
from harness.training.trial import Outcome, retrain_trial
from harness.work.jobs import Job, Later
from harness.work.plan import make_plan
from tests.jobs import Silent, over, round_of, run_job
from tests.stored_runs import store_run
from tests.stores.test_checkpoints import Record, Stop, checkpoint, seed_globals, weights
from tests.toy import toy_config

RETRAIN = {"epochs": 3, "batch_size": 16}
CHILD = Study(
    "child",
    "Child",
    [Row({"Retraining": name}, {"retrain.schedule": name}) for name in ("cosine", "calr")],
    [Column("Retrained", "retrained_accuracy")],
)


class OneDamaged:
    """The training images of a data set as a source whose fourth image cannot be read."""

    def __init__(self, dataset: DataSet) -> None:
        self.train: Any = dataset.train

    def __len__(self) -> int:
        return len(self.train)

    def sample(self, index: int) -> Any:
        if index == 3:
            raise DamagedImage("the fourth image cannot be read")
        return self.train.images[index], int(self.train.labels[index])


def one_damaged(dataset: DataSet) -> DataSet:
    return replace(dataset, train=Stream(OneDamaged(dataset), dataset.train.shape))


def test_images_that_cannot_be_read_are_not_counted(few_digits: DataSet) -> None:
    config = RunConfig.from_json({"network": {"width": 4, "depth": 1}, "retrain": {"epochs": 2, "batch_size": 16}})
    meter = Meter(torch.device("cpu"))
    retrain(config, (3, 1, 2, 3, 4, 1), one_damaged(few_digits), meter)
    assert meter.images == 2 * (len(few_digits.train) - 1)


def test_stacked_networks_train_on_images_of_which_one_cannot_be_read(few_digits: DataSet) -> None:
    """Each copy has an order of its own, so it meets the damaged image in another step."""
    space, recipe = SPACES.get("nasbench201")(), StandaloneRecipe(width=4, depth=1, epochs=1, batch_size=16)
    correct = train_standalone(space, (3, 1, 2, 3, 4, 1), one_damaged(few_digits), recipe, 0, copies=3)
    assert len(correct.test) == 3


def test_the_same_network_as_the_tables_of_ground_truth_train(few_digits: DataSet) -> None:
    space = SPACES.get("nasbench201")()
    architecture = (3, 1, 2, 3, 4, 1)
    config = RunConfig.from_json(
        {"network": {"width": 4, "depth": 1}, "retrain": {"epochs": 2, "batch_size": 16}, "seed": 5}
    )
    networks, accuracy, _ = retrain(config, architecture, few_digits, Meter(torch.device("cpu")))
    from harness.seeds import derive

    recipe = StandaloneRecipe(width=4, depth=1, epochs=2, batch_size=16)
    correct = train_standalone(space, architecture, few_digits, recipe, derive(5, "retrain"))
    assert accuracy == 100 * correct.test[0] / len(few_digits.test)
    assert architecture in networks.parts[0] and (3, 1, 2, 3, 4, 2) not in networks.parts[0]


def test_its_schedule_knows_the_complexity_of_the_architecture(few_digits: DataSet) -> None:
    trained = {}
    for name in ("cosine", "calr", "polynomial"):
        config = RunConfig.from_json(
            {"network": {"width": 4, "depth": 1}, "retrain": {"epochs": 2, "batch_size": 16, "schedule": name}}
        )
        # γ of the largest is a quarter: its rate falls late.
        networks, _, _ = retrain(config, (3,) * 6, few_digits, Meter(torch.device("cpu")))
        trained[name] = torch.cat([parameter.flatten() for parameter in networks.networks[0].parameters()])
    assert not torch.equal(trained["cosine"], trained["calr"])
    assert not torch.equal(trained["polynomial"], trained["calr"])


def test_it_has_an_order_of_samples_of_its_own(few_digits: DataSet) -> None:
    trained = {}
    for order in ("shuffled", "stored"):
        config = RunConfig.from_json(
            {"network": {"width": 4, "depth": 1}, "retrain": {"epochs": 1, "batch_size": 16, "order": order}}
        )
        networks, _, _ = retrain(config, (3,) * 6, few_digits, Meter(torch.device("cpu")))
        trained[order] = torch.cat([parameter.flatten() for parameter in networks.networks[0].parameters()])
    assert not torch.equal(trained["shuffled"], trained["stored"])


def test_images_that_ranked_may_be_trained_on_too() -> None:
    digits: DataSet = DATASETS.get("digits")()
    both = with_valid(digits)
    assert len(both.train) == len(digits.train) + len(digits.valid) and both.test is digits.test
    assert (both.train.images[len(digits.train) :] == digits.valid.images).all()


def pieces(folder: Path, config: RunConfig, saves: int) -> tuple[Outcome, Record, int]:
    for number in range(1, 50):
        seed_globals()
        record = Record()
        with suppress(Stop):
            kept = checkpoint(folder, config, saves)
            return retrain_trial(config, (1, 1, 0), watch=record.watch(), checkpoint=kept), record, number
    raise AssertionError("it does not get on")


@pytest.mark.parametrize("saves", [1, 2, 4])
def test_stopped_again_and_again(saves: int, toy_project: Path, tmp_path: Path) -> None:
    config = toy_config(retrain=RETRAIN)
    record = Record()
    seed_globals()
    whole = retrain_trial(config, (1, 1, 0), watch=record.watch())
    resumed, other, number = pieces(tmp_path, config, saves)
    assert number > 2 and resumed.cost["resumed"] == number - 1
    assert json.dumps(resumed.result) == json.dumps(whole.result) and weights(resumed) == weights(whole)
    assert other.curve == record.curve and len(record.curve) == 3
    assert resumed.cost["passes"] == whole.cost["passes"] == 9
    assert resumed.cost["images"] == whole.cost["images"] == 3 * 40
    assert whole.result["top1"] == [1, 1, 0] and 0 <= whole.result["retrained_accuracy"] <= 100
    assert whole.result["top1_accuracy"] == pytest.approx(100 * (4 * 6 + 2) / 60)


def test_one_that_diverges_says_so(toy_project: Path) -> None:
    config = toy_config(retrain={**RETRAIN, "learning_rate": 1e30})
    result = retrain_trial(config, (1, 1, 0)).result
    assert result["diverged"] and result["retrained_accuracy"] is None


def test_a_search_without_a_best_has_nothing_to_retrain() -> None:
    assert best_found({"top1": [1, 2]}) == (1, 2)
    assert best_found({"top1": None}) is None and best_found({}) is None


def test_a_child_is_known_by_its_search_and_how_it_is_retrained() -> None:
    tiny = get_preset("tiny")
    cosine, calr = (next(r.trial for r in expand(CHILD, tiny) if (r.row, r.seed) == (row, 1)) for row in (0, 1))
    plain = next(r.trial for r in expand(Study("p", "P", [Row({"": ""})], []), tiny) if r.seed == 1)
    assert cosine.start is not None and cosine.start.key == plain.key
    assert cosine.parent == f"{plain.key}-{plain.ranking_key}"
    assert len({cosine.key, calr.key, plain.key}) == 3
    again = Trial.from_json(json.loads(json.dumps(cosine.json())))
    assert again.key == cosine.key and again.parent == cosine.parent
    other = expand(CHILD, tiny, overrides={"rank.candidates": 11})[0].trial
    assert other.key != expand(CHILD, tiny)[0].trial.key  # another search may find another architecture


def test_configurations_that_do_not_retrain_say_nothing_of_it() -> None:
    assert "retrain" not in RunConfig().json()
    assert "retrain" not in Trial(RunConfig()).identity()["versions"]
    assert Trial(RunConfig()).parent is None and Trial(RunConfig()).start is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "retrain.epochs must be at least 1, not 0"),
        ({"momentum": 1.0}, r"retrain.momentum must be in \[0, 1\)"),
        ({"learning_rate": 0.0}, "retrain.learning_rate must be above 0"),
        ({"schedule": {"name": "calr", "gamma": 2}}, "retrain.schedule.gamma"),
        ({"epoch": 3}, "did you mean 'epochs'"),
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        RunConfig.from_json({"retrain": wrong})


def test_overrides_of_retraining_need_a_row_that_retrains() -> None:
    tiny = get_preset("tiny")
    changed = expand(CHILD, tiny, seeds=1, overrides={"retrain.epochs": 7})
    assert {r.trial.config.retrain and r.trial.config.retrain.epochs for r in changed} == {7}
    with pytest.raises(InvalidConfiguration, match=r"no row of study p has retrain.epochs"):
        expand(Study("p", "P", [Row({"": ""})], []), tiny, overrides={"retrain.epochs": 7})


def test_the_paper_retrains_cifar10_on_all_its_training_images() -> None:
    requests = expand(CHILD, get_preset("paper"), seeds=1)
    seen = {r.dataset: r.trial.config.retrain for r in requests if r.row == 1}
    assert {name: settings.with_valid for name, settings in seen.items() if settings} == {
        "cifar10": True,
        "cifar100": False,
        "imagenet16-120": False,
    }
    assert all(settings and settings.epochs == 200 for settings in seen.values())
    assert seen["cifar10"] == replace(Retraining(), with_valid=True, schedule=seen["cifar10"].schedule)  # type: ignore[union-attr]


def test_a_plan_holds_the_search_once_and_before_its_children(tmp_path: Path) -> None:
    plan = make_plan([CHILD], get_preset("tiny"), [], seeds=1)
    assert [work.label for work in plan.work] == [
        "child/cosine search seed 0 +1",
        "child/cosine retraining seed 0",
        "child/calr retraining seed 0",
    ]
    assert plan.work[1].trial.start is not None and plan.work[1].trial.start.key == plan.work[0].trial.key


def test_children_wait_for_their_search_and_give_up_without_it(tmp_path: Path) -> None:
    screen = Silent()
    plan = make_plan([CHILD], get_preset("tiny"), [], seeds=1)
    claims = Claims(DirectoryRecords(tmp_path))
    store = DirectoryStore(tmp_path)
    one = round_of(plan.work, store, claims, screen)
    jobs = one.jobs()
    search = next(jobs)
    assert isinstance(search, Job) and search.number == 0
    assert isinstance(next(jobs), Later)
    store_run(tmp_path, plan.work[0].requests[0], 0.5)
    over(one, search.number, "done")
    assert [job.number for job in (next(jobs), next(jobs)) if isinstance(job, Job)] == [1, 2]

    children = round_of(plan.work[1:], DirectoryStore(tmp_path / "empty"), claims, screen)
    assert list(children.jobs()) == []
    assert screen.said == [
        f"child/{label} retraining seed 0 stays waiting: the search that it starts from is not there"
        for label in ("cosine", "calr")
    ]


def test_a_job_retrains_what_the_stored_search_found_and_fails_without_it(toy_project: Path, tmp_path: Path) -> None:
    child = Trial.of(toy_config(retrain=RETRAIN))
    assert child.start is not None

    def run(trial: Trial, **more: Any) -> dict[str, Any]:
        job = {"kind": "train", "trial": trial.json(), "store": str(tmp_path), "preset": "tiny", "overrides": {}}
        return run_job({**job, "threads": 1, "device": "cpu", **more}, lambda report: None)

    assert run(child)["status"] == "elsewhere"  # it waits for the search
    assert DirectoryStore(tmp_path).runs() == []  # nothing was begun
    search = run(child.start)
    retrained = run(child)
    assert retrained["status"] == "done" and retrained["result"]["top1"] == search["result"]["top1"]
    assert retrained["result"]["retrained_accuracy"] is not None
    stored = DirectoryStore(tmp_path).done(child.key)
    assert stored is not None and stored.counts and child.ranking_key in stored.rankings
    assert run(child)["already"]
    told = run(Trial.of(toy_config(retrain={**RETRAIN, "epochs": 1})), found=[2, 0, 1])
    assert told["result"]["top1"] == [2, 0, 1]
