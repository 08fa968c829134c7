"""The evolutionary search: within its limits, nothing twice, the same under one seed, and better than random search."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from harness.components.benchmark import benchmark_for
from harness.components.registries import SEARCHES, SPACES
from harness.components.search import Found
from harness.components.space import Architecture, Space
from harness.errors import InvalidConfiguration
from tests.huge import FILES
from tests.toy import user_folder

SPACE = SPACES.get("nasbench201")()
Evolution = SEARCHES.get("evolution")


class Generations:
    """Scores by a rule, and a record of every generation."""

    def __init__(self, rule: Callable[[Architecture], float] = sum) -> None:
        self.rule = rule
        self.asked: list[list[Architecture]] = []

    def __call__(
        self, architectures: Sequence[Architecture], batches: int | None = None, *, generation: int | None = None
    ) -> list[float]:
        assert batches is None and generation == len(self.asked)
        self.asked.append(list(architectures))
        return [float(self.rule(one)) for one in architectures]


def searched(search: Any, score: Any, seed: int = 0, space: Space = SPACE) -> list[Found]:
    found: list[Found] = search.find(score, space, random.Random(seed), search.limits_in(space))
    return found


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Space]:
    with user_folder(tmp_path_factory.mktemp("huge"), FILES):
        yield SPACES.get("huge")()


def test_the_defaults_are_those_of_the_released_code() -> None:
    search, score = Evolution(), Generations()
    searched(search, score)
    assert [len(generation) for generation in score.asked] == [50] * 20
    assert (search.parents, search.mutations, search.crossovers, search.probability) == (10, 25, 25, 0.1)
    assert search.rounds == 20


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    most=st.integers(100_000, 1_600_000),
    least=st.integers(0, 40_000_000),
    population=st.integers(1, 12),
    share=st.floats(0, 1),
)
def test_no_limit_is_ever_passed_and_nothing_is_scored_twice(
    seed: int, most: int, least: int, population: int, share: float
) -> None:
    mutations = int(share * population)
    limits = {"parameters": [None, most], "flops": [least, None]}
    search = Evolution(
        population=population,
        generations=4,
        parents=3,
        mutations=mutations,
        crossovers=population - mutations,
        keep=min(2, population),
        limits=limits,
    )
    score = Generations(SPACE.complexity)  # the larger the better: it pushes against the limit
    try:
        found = searched(search, score, seed)
    except InvalidConfiguration as error:
        assert "none of 10,000 random" in str(error)
        return
    scored = [one for generation in score.asked for one in generation]
    assert all(SPACE.complexity(one) <= most and SPACE.complexity(one, "flops") >= least for one in scored)
    assert len({SPACE.canonical(one) for one in scored}) == len(scored)
    assert {one.architecture for one in found} <= set(scored)
    assert found[0].score == max(map(SPACE.complexity, scored))


def test_one_seed_gives_the_same_search_and_another_seed_another() -> None:
    search = Evolution(population=10, generations=5, parents=3, mutations=5, crossovers=3, keep=3)
    first, again, other = Generations(), Generations(), Generations()
    assert searched(search, first) == searched(search, again) and first.asked == again.asked
    searched(search, other, seed=1)
    assert other.asked != first.asked


def test_children_come_from_the_best_of_all_generations(huge: Space) -> None:
    rule = huge.complexity
    options = {"population": 8, "generations": 3, "parents": 2}
    crossed, mutated = Generations(rule), Generations(rule)
    searched(Evolution(**options, mutations=0, crossovers=8), crossed, space=huge)
    searched(Evolution(**options, mutations=8, crossovers=0, probability=0.02), mutated, space=huge)
    for asked in (crossed.asked, mutated.asked):
        for generation in (1, 2):
            before = sorted((one for group in asked[:generation] for one in group), key=rule, reverse=True)[:2]
            for child in asked[generation]:
                if asked is crossed.asked:
                    assert all(choice in pair for choice, *pair in zip(child, *before, strict=True))
                else:
                    changes = [sum(a != b for a, b in zip(child, parent, strict=True)) for parent in before]
                    assert 0 < min(changes) < 10


def test_the_rest_is_random_and_a_small_space_ends_the_search(toy_project: Path) -> None:
    options = {"population": 12, "generations": 9, "parents": 2, "mutations": 0, "crossovers": 0}
    toy, score = SPACES.get("toy")(), Generations()
    found = searched(Evolution(**options, keep=99), score, space=toy)
    assert len(found) == toy.size == 12 and len(score.asked) <= 3
    assert [one.score for one in found] == sorted(map(float, map(sum, toy)), reverse=True)


def test_it_beats_random_search_at_an_equal_budget_on_the_embedded_table() -> None:
    """30 seeds, 200 evaluations each, the truth as the score."""
    truth = benchmark_for("digits", "nasbench201").accuracies("digits")

    def rule(architecture: Architecture) -> float:
        return float(truth[SPACE.index(architecture)])

    evolution = Evolution(population=20, generations=10, parents=5, mutations=10, crossovers=10)
    drawn = SEARCHES.get("best-of-n-random")(samples=200)
    wins = losses = 0
    for seed in range(30):
        score = Generations(rule)
        (mine,) = searched(evolution, score, seed)
        (its,) = searched(drawn, lambda architectures, batches=None: [rule(one) for one in architectures], seed)
        assert sum(map(len, score.asked)) == 200
        wins, losses = wins + (mine.score > its.score), losses + (mine.score < its.score)
    assert binomtest(wins, wins + losses, alternative="greater").pvalue < 0.01, (wins, losses)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"population": 0}, r"search\.population must be at least 1, not 0"),
        ({"generations": 0}, r"search\.generations must be at least 1"),
        ({"mutations": -1}, r"search\.mutations must be at least 0"),
        ({"mutations": 30}, r"search\.crossovers are 55 in all, more than search\.population, 50"),
        ({"probability": 0.0}, r"search\.probability must be above 0"),
        ({"keep": 1001}, r"search\.keep is 1001, but only 1000 architectures are scored"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        Evolution(**wrong)


@pytest.mark.parametrize(("mutation", "stays"), [("resample", 0.9 + 0.1 / 5), ("another", 0.9)])
def test_a_mutated_decision_is_drawn_uniformly_or_becomes_another(
    mutation: str, stays: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How often a decision stays as it is in a child, over all attempts, also those that are born already."""
    kept: list[bool] = []
    for name in ("mutate", "alter"):
        plain = getattr(type(SPACE), name)

        def watched(self: Space, one: Architecture, *given: Any, plain: Any = plain) -> Architecture:
            child: Architecture = plain(self, one, *given)
            kept.extend(a == b for a, b in zip(one, child, strict=True))
            return child

        monkeypatch.setattr(type(SPACE), name, watched)
    searched(Evolution(mutation=mutation, mutations=50, crossovers=0), Generations())
    assert len(kept) > 5000 and sum(kept) / len(kept) == pytest.approx(stays, abs=0.01)


def test_another_mutation_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="search.mutation is 'swap'; allowed: resample, another"):
        Evolution(mutation="swap")
