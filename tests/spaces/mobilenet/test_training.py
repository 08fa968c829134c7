"""Trials in this space: every method trains, ranks with calibration, searches under limits, and retrains."""

from __future__ import annotations

from typing import Any

import pytest

from harness.components.registries import SPACES
from harness.components.space import network_settings
from harness.study.configuration import RunConfig
from harness.training.trial import retrain_trial, run_trial

OURS = {"schedule": {"name": "calr", "gamma_prime": 3.0, "complexity": "flops"}, "clusters": {"name": "first-layer"}}
REDUCED: Any = SPACES.get("mobilenet-reduced")()
DIGITS = network_settings(REDUCED.Network(), classes=10, image_channels=1, image_size=8)


def config(**more: Any) -> RunConfig:
    common = {
        "space": "mobilenet-reduced",
        "benchmark": None,
        "train": {"epochs": 1, "batch_size": 512},
        "optimiser": {"learning_rate": 0.1},
        "rank": {"images": 64, "batch_size": 64, "candidates": 3, "calibration": 1},
    }
    return RunConfig.from_json(common | more)


@pytest.mark.parametrize(("method", "ours"), [("spos", {}), ("spos", OURS), ("fairnas", OURS), ("fsnas", OURS)])
def test_every_method_trains(method: str, ours: dict[str, Any]) -> None:
    outcome = run_trial(config(method={"name": method}, **ours))
    assert outcome.supernets is not None and len(outcome.supernets.networks) == (3 if method == "fsnas" else 1)
    assert len(outcome.predictions) == 3 and outcome.result["diverged"] is None


def test_limits_and_complexities_are_those_of_the_trials_own_networks() -> None:
    """Digits have 8×8 pixels: with the counts of the published 16×16 no architecture would be within the limit."""
    least, _, greatest, _ = REDUCED.at(DIGITS).extremes("flops")
    half = (least + greatest) // 2
    assert half < REDUCED.extremes("flops")[0]
    asked = config(search={"name": "best-of-n-random", "samples": 4, "limits": {"flops": [None, half]}})
    outcome = run_trial(asked)
    (found,) = outcome.result["found"]
    assert least <= REDUCED.complexity(tuple(found["architecture"]), "flops", DIGITS) <= half


def test_a_found_architecture_is_retrained_with_squeeze_and_excitation() -> None:
    again = {"epochs": 1, "batch_size": 512, "network": {"squeeze": 0.25, "norm_momentum": 0.01}}
    asked = config(network={"batch_norm": "batch-statistics"}, retrain=again)
    outcome = retrain_trial(asked, (0, 2, 1, 4, 2, 3, 0, 4))
    assert outcome.supernets is not None and outcome.result["retrained_accuracy"] > 0
    (network,) = outcome.supernets.networks
    names = set(network.state_dict())
    assert "first.parts.1.excite.weight" in names and "stem.norm.running_mean" in names
