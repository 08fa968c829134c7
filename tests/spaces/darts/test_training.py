"""Trials in this space: methods train, all stages follow each other, and killed ones resume to the same bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.components.preset import get_preset
from harness.components.registries import SPACES
from harness.errors import InvalidConfiguration
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.configuration import RunConfig
from harness.study.expansion import expand
from harness.training.trial import retrain_trial, run_trial
from harness.work.plan import make_plan
from tests.jobs import died, job, outcome
from tests.toy import user_folder

OURS = {"schedule": {"name": "calr"}, "clusters": {"name": "operation", "at": [17]}}
MORTAL = '''
import os, signal
from pathlib import Path
from harness.components.discovery import component
from harness.components.registries import SPACES

darts = component("spaces.darts")

@SPACES.register("mortal")
class Mortal(darts.DARTS):
    """The space itself, whose networks end their process at the pass whose number stands in a file die-STAGE."""

    name = "mortal"

    def supernet(self, settings):
        return mortal(super().supernet(settings), "train", "search")

    def standalone(self, architecture, settings):
        return mortal(super().standalone(architecture, settings), "retrain", "test")

def mortal(network, training, evaluation):
    network.cells[-1].register_forward_pre_hook(lambda cell, given: die(training if cell.training else evaluation))
    return network

def die(stage):
    file = Path(f"die-{stage}")
    if file.exists():
        left = int(file.read_text()) - 1
        file.write_text(str(left))
        if not left:
            file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
'''


def config(**more: Any) -> RunConfig:
    common = {
        "space": "darts",
        "benchmark": None,
        "network": {"width": 2, "depth": 3},
        "train": {"epochs": 1, "batch_size": 1024},
        "optimiser": {"learning_rate": 0.1},
        "rank": {"images": 32, "batch_size": 32, "candidates": 2},
    }
    return RunConfig.from_json(common | more)


@pytest.mark.parametrize(
    ("method", "network"),
    [
        ("spos", {"inputs": "all", "batch_norm": "running"}),
        pytest.param("fairnas", {}, marks=pytest.mark.long),
        pytest.param("fsnas", {}, marks=pytest.mark.long),
    ],
)
def test_methods_train(method: str, network: dict[str, Any]) -> None:
    calibration = int(network.get("batch_norm") == "running")
    rank = {"images": 32, "batch_size": 32, "candidates": 2, "calibration": calibration}
    asked = config(method={"name": method}, network={"width": 2, "depth": 3, **network}, rank=rank, **OURS)
    result = run_trial(asked)
    assert result.supernets is not None and len(result.supernets.networks) == (7 if method == "fsnas" else 1)
    assert len(result.predictions) == 2 and result.result["diverged"] is None


def test_every_stage_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    """Supernet, search at two costs, retraining with auxiliary head, drop-path and cutout: each is killed."""
    with user_folder(tmp_path, {"spaces/mortal.py": MORTAL}):
        study = replace(find_studies("darts_space")[0], space="mortal")
        work = make_plan([study], get_preset("tiny", "darts"), [], seeds=1).work
        supernet, retraining = (one.trial for one in work if one.trial.config.schedule.name == "calr")
        assert [job(one, "whole")["status"] for one in (supernet, retraining)] == ["done", "done"]
        for stage, calls in (("train", 3), ("search", 6), ("retrain", 5), ("test", 2)):
            Path(f"die-{stage}").write_text(str(calls))
        assert [died(supernet, "killed") for _ in range(3)] == [True, True, False]
        assert [died(retraining, "killed") for _ in range(3)] == [True, True, False]
        whole, killed = (
            {
                run.trial["config"].get("retrain") is None: run
                for run in DirectoryStore(Path(store)).runs()
                if run.counts
            }
            for store in ("whole", "killed")
        )
        for searched, run in whole.items():
            assert outcome("killed", killed[searched]) == outcome("whole", run)
            assert (killed[searched].cost or {})["resumed"] == 2
        found = (whole[True].result or {})["found"][0]["architecture"]
        assert (
            SPACES.get("darts")().canonical(tuple(found)) == tuple(found) == tuple((whole[False].result or {})["top1"])
        )


def test_drop_path_draws_from_the_trials_seed() -> None:
    """Whatever ran before in the process; and not in the first epoch, where its probability is 0."""
    outcomes = []
    for epochs, drop, seed in ((2, 0.5, 1), (2, 0.5, 2), (2, 0.0, 1)):
        torch.manual_seed(seed)
        again = {"epochs": epochs, "batch_size": 1536, "drop_path": drop}
        outcomes.append(retrain_trial(config(retrain=again), (0, 3, 4, *(0,) * 33)).supernets)
    networks = [one.networks[0].state_dict() for one in outcomes if one is not None]
    first, second, without = (torch.cat([value.flatten().float() for value in one.values()]) for one in networks)
    assert torch.equal(first, second) and not torch.equal(first, without)


def test_what_retraining_adds_needs_a_network_that_offers_it() -> None:
    again = {"epochs": 1, "batch_size": 512}
    wrong = config(retrain={**again, "auxiliary": 0.4})
    with pytest.raises(InvalidConfiguration, match=r"retrain.auxiliary needs a network with the attribute `auxiliary`"):
        retrain_trial(wrong, (0,) * 36)
    other = RunConfig.from_json({"network": {"width": 2, "depth": 1}, "retrain": {**again, "drop_path": 0.2}})
    with pytest.raises(InvalidConfiguration, match=r"retrain.drop_path needs a network .* StandaloneNetwork has none"):
        retrain_trial(other, (3,) * 6)
    for key, value in (("drop_path", 1.0), ("auxiliary", -1.0), ("clip", 0.0)):
        with pytest.raises(InvalidConfiguration, match=f"retrain.{key} must"):
            config(retrain={**again, key: value})


def test_the_paper_preset_is_what_paper_and_randomnas_say() -> None:
    (study,) = find_studies("darts_space")
    config = expand(study, get_preset("paper", "darts"))[0].trial.config
    train, network = config.train, config.network
    assert (train.epochs, train.batch_size, network.width, network.depth, network.inputs) == (50, 64, 16, 8, "two")
    search, again = config.search, config.retrain
    assert search is not None and (search.samples, search.batches, search.finalists) == (1000, 10, 10)
    assert config.rank.images is None and config.rank.batch_size == 64
    assert again is not None and (again.epochs, again.batch_size, again.auxiliary, again.drop_path) == (
        200,
        96,
        0.4,
        0.2,
    )
    assert (again.network.width, again.network.depth, again.nesterov, again.clip) == (36, 20, False, 5.0)
    assert again.with_valid and [one.name for one in again.augment] == ["cutout"]
