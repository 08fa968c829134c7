"""GreedyNAS: which candidates are trained, and what the pool keeps, by slow references."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import torch

from harness.components.discovery import component
from harness.components.space import Architecture
from harness.errors import InvalidConfiguration
from harness.training.stages.train import make_step
from tests.methods.small import Matrices, batch_of, clusters, training_of

greedynas = component("methods.greedynas")
GreedyNAS: Any = greedynas.GreedyNAS


def source_of(training: Any) -> Any:
    """The sampler's source, which the training has wrapped."""
    return training.source.source


def slow_loss(training: Any, path: Architecture) -> float:
    """The mean loss over the held-out images, one by one."""
    network, losses = training.network, []
    for images, labels in training.held_out:
        for image, label in zip(images, labels, strict=True):
            losses.append(-float(network(image[None], path).log_softmax(1)[0, label].detach()))
    return sum(losses) / len(losses)


def test_the_best_candidates_on_held_out_images_are_trained_and_the_pool_keeps_the_best() -> None:
    method = GreedyNAS(candidates=6, kept=2, pool=8, exploitation=0.9)
    training = training_of(method)
    source, losses, seen = source_of(training), {}, dict[Architecture, float]()
    compare, compared = source.candidates, list[list[Architecture]]()

    def noted(rng: random.Random, progress: float) -> list[Architecture]:
        compared.append(compare(rng, progress))
        losses.update({path: slow_loss(training, path) for path in compared[-1]})
        return compared[-1]

    source.candidates = noted
    trained = []
    for step in range(12):
        make_step(method, training, batch_of(step), step)
        trained += training.trained
        if step % 2 == 0:
            best = sorted(compared[-1], key=lambda path: losses[path])[:2]
            seen = dict(
                sorted({**seen, **{path: losses[path] for path in compared[-1]}}.items(), key=lambda i: i[1])[:8]
            )
            assert list(source.pool) == list(seen)
            assert list(source.pool.values()) == pytest.approx(list(seen.values()), rel=1e-4)
        assert trained[-1] == best[step % 2]
    assert len(compared) == 6 and all(len(set(paths)) == 6 for paths in compared)


def test_the_comparison_is_counted_as_cost_of_sampling() -> None:
    method = GreedyNAS(candidates=6, kept=2)
    training = training_of(method)
    for step in range(4):
        done = make_step(method, training, batch_of(step), step)
        assert done.passes == 1 == method.paths_per_step(training.space)
    # Two comparisons of 6 paths on 20 images in two batches.
    assert (training.sampled.passes, training.sampled.images) == (2 * 6 * 2, 2 * 6 * 20)


def test_more_and_more_candidates_come_from_the_pool() -> None:
    source = source_of(training_of(GreedyNAS(candidates=1, kept=1)))
    source.pool = {(2, 1, 2): 0.1}
    rng, shares = random.Random(0), []
    for progress in (0.0, 0.5, 1.0):
        drawn = Counter(path for _ in range(2000) for path in source.candidates(rng, progress))
        shares.append(drawn[2, 1, 2] / 2000)
    uniform = 1 / 18
    assert shares == pytest.approx([e + (1 - e) * uniform for e in (0.0, 0.4, 0.8)], abs=0.04)


def test_paths_of_a_small_part_are_compared_as_far_as_there_are_any() -> None:
    training = training_of(GreedyNAS())
    source = source_of(training)
    source.fixed = {0: 1, 2: 2}
    assert {source.draw(random.Random(1), training) for _ in range(4)} == {(1, 0, 2), (1, 1, 2)}


def test_each_path_is_compared_with_statistics_of_its_own() -> None:
    """Where batch normalisation tracks them; afterwards those of training are there again."""
    training = training_of(GreedyNAS(), network=Matrices(tracked=True))
    norm, paths = training.network.norm, [(0, 0, 0), (2, 1, 2)]
    norm.running_mean.fill_(7.0)
    training.network.train()
    found = greedynas.held_out_losses(training, paths)
    assert training.network.training and norm.training and norm.running_mean.tolist() == [7.0] * 4
    assert training.sampled.passes == 2 * 2 * 2
    images = torch.cat([images for images, _ in training.held_out]).flatten(1)
    labels = torch.cat(list(training.held_out.labels))
    parts = [one.flatten(1) for one, _ in training.held_out]
    mean, variance = (sum(getattr(one, what)(0) for one in parts) / 2 for what in ("mean", "var"))
    normalised = (images - mean) / (variance + norm.eps).sqrt()
    training.network.norm = torch.nn.Identity()
    for path, loss in zip(paths, found, strict=True):
        logits = training.network(normalised, path)
        assert loss == pytest.approx(torch.nn.functional.cross_entropy(logits, labels).item(), rel=1e-4)


def test_it_combines_with_momentum_separation() -> None:
    method = GreedyNAS(candidates=4, kept=2)
    training = training_of(method, rule=clusters.ByOperation(at=(0,)))
    for step in range(12):
        make_step(method, training, batch_of(step), step)
    assert len(training.momentum.optimisers) > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kept": 11}, "kept must be at most {of}.candidates, which is 10, not 11"),
        ({"pool": 0}, "pool must be at least 1, not 0"),
        ({"exploitation": 2.0}, r"exploitation must be in \[0, 1\], not 2.0"),
    ],
)
@pytest.mark.parametrize(("of", "kind"), [("method", GreedyNAS), ("sampler", greedynas.Greedy)])
def test_options_out_of_range_are_refused(of: str, kind: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=rf"{of}\.{message.replace('{of}', of)}"):
        kind(**options)
