"""The edges that seeds draw: where supernets are split and momentum is separated."""

from __future__ import annotations

from typing import Any

import pytest

from harness.errors import InvalidConfiguration
from harness.study.configuration import RunConfig
from harness.study.edges import CLUSTERS, SPLIT, drawn_edges, edges_of
from harness.study.trial import Trial


def configured(method: str = "spos", clusters: Any = "none", draw: str = "random", seed: int = 0) -> RunConfig:
    named = clusters if isinstance(clusters, dict) else {"name": clusters}
    document = {"space": "nasbench201", "method": {"name": method}, "clusters": named, "seed": seed}
    return RunConfig.from_json({**document, "train": {"draw": draw} if draw != "random" else {}})


def test_both_arms_of_a_comparison_have_the_same_edges() -> None:
    for seed in range(8):
        plain, separated = (configured("fsnas", clusters, seed=seed) for clusters in ("none", "operation"))
        assert edges_of(plain)[SPLIT] == edges_of(separated)[SPLIT]
        spos, fairnas = (configured(method, "operation", seed=seed) for method in ("spos", "fairnas"))
        assert edges_of(spos)[CLUSTERS] == edges_of(fairnas)[CLUSTERS]


def test_in_turn_six_seeds_have_all_six_edges() -> None:
    for method, clusters, name in (("fsnas", "none", SPLIT), ("spos", "operation", CLUSTERS)):
        turns = [edges_of(configured(method, clusters, "turns", seed))[name] for seed in range(12)]
        assert sorted(turns[:6]) == [(edge,) for edge in range(6)] and turns[6:] == turns[:6]
        drawn = [edges_of(configured(method, clusters, seed=seed))[name] for seed in range(6)]
        assert sorted(drawn) != sorted(turns[:6])
    both = [edges_of(configured("fsnas", "operation", "turns", seed)) for seed in range(6)]
    assert all(one[SPLIT] != one[CLUSTERS] for one in both)  # a fixed edge separates nothing
    several = configured("spos", {"name": "operation", "edges": 2}, "turns", 5)
    assert edges_of(several)[CLUSTERS] == (0, 5)


def test_what_a_seed_draws() -> None:
    assert drawn_edges(configured()) == ()
    assert drawn_edges(configured("fsnas")) == (SPLIT,)
    assert drawn_edges(configured("fsnas", "operation", "turns")) == (SPLIT, CLUSTERS)
    assert drawn_edges(configured("spos", "random")) == (CLUSTERS,)
    assert drawn_edges(configured("spos", {"name": "operation", "at": [3]})) == ()


def test_edges_in_turn_are_another_trial_and_drawn_ones_the_same_as_ever() -> None:
    plain = configured("fsnas")
    assert "draw" not in plain.json()["train"]
    assert Trial(plain).key != Trial(configured("fsnas", draw="turns")).key
    with pytest.raises(InvalidConfiguration, match="allowed: random, turns"):
        configured(draw="all")
