"""CaLR and MS with methods that have steps of their own: combined by configuration, or refused before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from harness.cli import main
from harness.components.space import Architecture
from tests.methods.plain_steps import batch_of, one_step, plain_training, stepped

MANY_PATHS: dict[str, dict[str, Any]] = {
    "nsas": {"size": 3, "candidates": 9, "neighbours": 2},
    "sandwich": {"random": 1},
}


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("nsas", "a step also trains paths of another kind"),
        ("sandwich", "the largest and the smallest subnet"),
        ("deps", "after the delay"),
    ],
)
def test_paths_of_several_clusters_are_refused_with_the_reason(
    method: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "compared_methods", "--preset", "tiny", "--only", f"method.name={method}", "--store"]
    assert main([*command, str(tmp_path / "runs"), "with", "clusters.name=operation"]) == 2
    said = capsys.readouterr().err
    assert reason in said and "use clusters.name=none" in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", MANY_PATHS)
def test_calr_weights_every_path_of_a_step_by_its_rate(name: str, toy_project: Path) -> None:
    method, training = plain_training(name, {"schedule": "calr"}, **MANY_PATHS[name])
    plain = plain_training(name, {"schedule": "constant"}, **MANY_PATHS[name])
    step, batch = 7, batch_of(7)
    one_step(*plain, step)

    def expected_loss(_: Architecture) -> torch.Tensor:
        paths, factors = training.trained, training.rate_factors(training.trained, step)
        assert len(set(factors)) > 1
        first, *others = paths
        if name == "nsas":
            shares = [0.5, *[0.5 / len(others)] * len(others)]
            losses = [share * training.loss(batch, path) for share, path in zip(shares, paths, strict=True)]
        else:
            teacher = training.logits(batch, first).detach()
            divergence: Any = method.divergence  # type: ignore[attr-defined]
            losses = [
                training.loss(batch, first),
                *(divergence(training.logits(batch, one), teacher) for one in others),
            ]
        return torch.stack([factor * loss for factor, loss in zip(factors, losses, strict=True)]).sum()

    expected = stepped(training, expected_loss)
    one_step(method, training, step)
    assert training.trained == plain[1].trained  # CaLR has no part in what is drawn
    for now, then in zip(training.network.parameters(), expected(()), strict=True):
        assert torch.allclose(now, then, atol=1e-6)


def test_creams_student_has_a_rate_and_a_momentum_of_its_own(toy_project: Path) -> None:
    sections = {"schedule": "calr", "clusters": "operation", "optimiser": {"learning_rate": 0.1, "clip": None}}
    method, training = plain_training("cream", sections, warm_up=0.0, meta_every=3)
    for step in range(8):
        before = set(training.momentum.optimisers)
        one_step(method, training, step)
        [path] = training.trained
        cluster = training.clustering.of(path)
        assert set(training.momentum.optimisers) == before | {cluster}
        [factor] = training.rate_factors([path], step)
        assert training.momentum.of(cluster).param_groups[0]["lr"] == pytest.approx(0.1 * factor)
    assert len(training.momentum.optimisers) > 1
