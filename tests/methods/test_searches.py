"""Searches: within their limits, at several costs, and refused where they cannot be made."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.components.registries import SEARCHES, SPACES
from harness.components.search import Limits, best_of
from harness.components.space import Architecture, network_settings
from harness.errors import InvalidConfiguration
from harness.study.configuration import RunConfig
from harness.study.layout import Column, Row
from harness.study.study import Study
from harness.study.trial import Trial
from harness.training.trial import run_trial
from harness.work.plan import make_plan
from tests.toy import toy_config, user_folder

SPACE = SPACES.get("nasbench201")()


class Asked:
    """Scores by a fixed rule, and a record of what was asked for."""

    def __init__(self) -> None:
        self.by_cost: dict[int | None, list[Architecture]] = {}

    def __call__(
        self, architectures: Sequence[Architecture], batches: int | None = None, *, generation: int | None = None
    ) -> list[float]:
        self.by_cost.setdefault(batches, []).extend(architectures)
        return [float(sum(one) if batches is None else -sum(one)) for one in architectures]


def test_a_few_batches_choose_who_is_scored_on_all() -> None:
    asked = Asked()
    architectures = [(n, 0, 0, 0, 0, 0) for n in range(5)]
    found = best_of(asked, architectures, keep=1, batches=2, finalists=3)
    assert asked.by_cost[2] == architectures and asked.by_cost[None] == architectures[:3]
    assert [(one.architecture, one.score) for one in found] == [(architectures[2], 2.0)]


@pytest.mark.parametrize("name", ["exhaustive", "random", "best-of-n-random"])
def test_all_that_is_scored_is_within_the_limits(name: str) -> None:
    options: dict[str, Any] = {"keep": 3, "limits": {"parameters": [None, 150_000], "flops": [8e6, None]}}
    search = SEARCHES.get(name)(**options | ({"samples": 20} if name == "best-of-n-random" else {}))
    asked, limits = Asked(), search.limits_in(SPACE)
    found = search.find(asked, SPACE, random.Random(0), limits)
    assert len({one.architecture for one in found}) == 3
    for one in asked.by_cost[None]:
        assert SPACE.complexity(one) <= 150_000 and SPACE.complexity(one, "flops") >= 8e6
    expected = {"exhaustive": max(map(sum, asked.by_cost[None])), "random": None, "best-of-n-random": None}[name]
    assert expected is None or found[0].score == expected


@pytest.mark.parametrize("name", ["exhaustive", "random", "best-of-n-random"])
def test_of_architectures_that_are_equal_in_all_that_matters_one_is_scored(name: str) -> None:
    class Alike(SPACES.get("nasbench201")):  # type: ignore[misc]
        """Only the first two decisions matter."""

        choices = (2, 2, 3)

        def canonical(self, architecture: Architecture) -> Architecture:
            return (*architecture[:2], 0)

    asked, space = Asked(), Alike()
    search = SEARCHES.get(name)(keep=4, **({"samples": 4} if name == "best-of-n-random" else {}))
    search.find(asked, space, random.Random(0), Limits(space, {}))
    scored = asked.by_cost[None]
    assert len(scored) == 4 and len({one[:2] for one in scored}) == 4


def test_limits_that_nothing_keeps_are_an_error() -> None:
    with pytest.raises(InvalidConfiguration, match=r"none of 10,000 random .*limits parameters \[0, 1\]"):
        Limits(SPACE, {"parameters": (0, 1)}).sample(random.Random(0))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "exhaustive", "keep": 0}, "search.keep must be at least 1"),
        ({"name": "random", "limits": {"parameters": 5}}, r"search.limits.parameters must be the least and the great"),
        ({"name": "random", "limits": {"parameters": [5, 4]}}, "search.limits.parameters must be"),
        ({"name": "exhaustive", "finalists": 3}, "search.finalists needs search.batches"),
        ({"name": "best-of-n-random", "samples": 1, "keep": 2}, "search.samples must be at least search.keep"),
        ({"name": "exhaustiv"}, "did you mean 'exhaustive'"),
        ({"name": "random", "sample": 1}, "no configuration key 'search.sample'"),
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        RunConfig.from_json({"search": wrong})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"search": "random", "search.limits.cost": [0, 1]}, "search.limits.cost is not a count of nasbench201"),
        ({"search": "random", "retrain.which": 1}, r"retrain.which is 1, but the search keeps 1"),
        ({"retrain.which": 1}, "a ranking has only one best"),
        ({"benchmark": None, "rank.top_share": 0.1}, "rank.top_share needs a table of truth"),
        ({"benchmark": None, "observe.kendall_tau_every": 1}, "observe.kendall_tau_every needs a table of truth"),
        ({"benchmark": None, "observe.average_last": 1}, "observe.average_last needs a table of truth"),
    ],
)
def test_a_plan_refuses_what_cannot_be_searched(settings: dict[str, Any], message: str) -> None:
    study = Study("mine", "Mine", [Row({"": "row"}, settings)], [Column("τ", "kendall_tau")])
    with pytest.raises(InvalidConfiguration, match=message):
        make_plan([study], "tiny", [], seeds=1)


def test_a_search_is_known_by_the_ranking_not_by_the_trial(toy_project: Path) -> None:
    plain, searched = toy_config(), toy_config(search={"name": "exhaustive"})
    assert Trial(plain).key == Trial(searched).key and Trial(plain).ranking_key != Trial(searched).ranking_key
    assert "search" not in plain.json()


def test_an_exhaustive_search_finds_the_best_ranked(toy_project: Path) -> None:
    """With one supernet and all candidates, today's top-1 and the exhaustive search are one thing."""
    outcome = run_trial(toy_config(search={"name": "exhaustive", "keep": 2}))
    space = SPACES.get("toy")()
    assert outcome.predictions.keys() == set(space)
    best = tuple(outcome.result["found"][0]["architecture"])
    assert outcome.predictions[best] == max(outcome.predictions.values())
    assert outcome.result["scored"] == {"0": len({space.canonical(one) for one in space})}


FINDER = """
from dataclasses import dataclass
from harness.components.method import Method
from harness.components.registries import METHODS

@METHODS.register("finder")
@dataclass(frozen=True)
class Finder(Method):
    '''Counts which first choice it trained most, as a differentiable method reads off its parameters.'''

    def paths(self, training):
        (path,) = [training.source.draw(training.rng)]
        counts = training.memory.setdefault("counts", [0] * 5)
        counts[path[0]] += 1
        return [path]

    def found(self, training):
        counts = training.memory["counts"]
        return [(counts.index(max(counts)), 1, 1, 1, 1, 1)]
"""


def test_a_method_says_itself_what_it_has_found_and_that_is_retrained(tmp_path: Path) -> None:
    from harness.stores.directory.store import DirectoryStore
    from tests.jobs import run_job

    rows = [Row({"": "row"}, {"method": "finder", "rank.top1": False, "retrain.epochs": 1})]
    with user_folder(tmp_path, {"methods/finder.py": FINDER}):
        plan = make_plan([Study("mine", "Mine", rows, [])], "tiny", [], seeds=1)
        asked = {"kind": "train", "store": "runs", "preset": "tiny", "overrides": {}, "threads": 1, "device": "cpu"}
        supernet, retrained = (run_job({**asked, "trial": work.trial.json()}, lambda r: None) for work in plan.work)
        rows = [Row({"": "row"}, {**rows[0].settings, "retrain.which": 1})]
        second = make_plan([Study("mine", "Mine", rows, [])], "tiny", [], seeds=1).work[1]
        refused = run_job({**asked, "trial": second.trial.json()}, lambda r: None)
        assert sorted(run.status for run in DirectoryStore(Path("runs")).runs()) == ["done", "done", "failed"]
    assert "the search has found 1 architectures; retrain.which is 1" in refused["error"]
    (found,) = supernet["result"]["found"]
    assert found["score"] is None and found["architecture"][1:] == [1] * 5
    assert retrained["result"]["top1"] == found["architecture"]
    assert retrained["result"]["retrained_accuracy"] is not None


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"parameters": [None, 2000]}, r"no network of nasbench201 has at most 2,000 .*; the smallest has 4,822"),
        ({"flops": [1e9, None]}, r"search\.limits\.flops: no .* has at least 1,000,000,000 flops; the largest has"),
        ({"flops": [0, 1]}, r"at most 1 flops; the smallest has \d"),
        ({"parameters": [4823, 4824]}, r"none of 10,000 random architectures of nasbench201 is within search\.limits"),
    ],
)
def test_limits_that_no_network_keeps_are_refused_before_training(limits: dict[str, Any], message: str) -> None:
    """At the size of the network that is trained: at the published size the smallest has 73,306 parameters."""
    rows = [Row({"": "row"}, {"search": {"name": "random", "limits": limits}})]
    with pytest.raises(InvalidConfiguration, match=message):
        make_plan([Study("mine", "Mine", rows, [])], "tiny", [], seeds=1)
    # Of several searches of one supernet, each is looked at.
    rows = [Row({"": "free"}, {"search": "random"}), Row({"": "row"}, {"search": {"name": "random", "limits": limits}})]
    with pytest.raises(InvalidConfiguration, match=message):
        make_plan([Study("mine", "Mine", rows, [])], "tiny", [], seeds=1)


def test_an_exhaustive_search_under_limits_between_two_sizes_is_refused_too() -> None:
    rows = [Row({"": "row"}, {"search": {"name": "exhaustive", "limits": {"parameters": [4823, 4824]}}})]
    with pytest.raises(InvalidConfiguration, match="no architecture of nasbench201 is within search.limits parameters"):
        make_plan([Study("mine", "Mine", rows, [])], "tiny", [], seeds=1)


def test_the_ends_of_a_space_that_cannot_be_listed_are_its_own(tmp_path: Path) -> None:
    from tests.huge import FILES

    def plan(least: int, most: int | None) -> object:
        own = {"benchmark": None, "network.channels": 6, "rank.candidates": 1}
        rows = [Row({"": "row"}, {**own, "search": {"name": "random", "limits": {"parameters": [least, most]}}})]
        return make_plan([Study("mine", "Mine", rows, [], space="huge")], "tiny", [])

    with user_folder(tmp_path, FILES):
        with pytest.raises(InvalidConfiguration, match=r"at most 59 parameters; the smallest has 60$"):
            plan(0, 59)
        with pytest.raises(InvalidConfiguration, match=r"at least 961 parameters; the largest has 960$"):
            plan(961, None)
        for ends in ((0, 60), (960, None)):  # not out of reach, but no random architecture is there
            with pytest.raises(InvalidConfiguration, match="none of 10,000 random"):
                plan(*ends)
        assert plan(200, 230)


def test_limits_count_at_the_size_of_the_network() -> None:
    small = network_settings(SPACE.Network(width=4, depth=1), classes=10, image_channels=1, image_size=8)
    search = SEARCHES.get("random")(limits={"parameters": [None, 10_000]})
    largest = (3,) * 6
    assert SPACE.counted(largest, "parameters", small) > 10_000 > SPACE.counted((1,) * 6, "parameters", small)
    assert search.limits_in(SPACE, small).allow((1,) * 6) and not search.limits_in(SPACE, small).allow(largest)
    assert not search.limits_in(SPACE).allow((1,) * 6)  # at the published size
    # A count that the space knows at its published size only is taken there.
    assert SPACE.counted(largest, "parameters-released", small) == SPACE.complexity(largest, "parameters-released")
    ends = tuple(SPACE.counted(one, "flops", small) for one in ((0,) * 6, largest))
    assert SPACE.count_range("flops", small) == ends


def test_a_space_may_say_its_ends_at_any_size() -> None:
    class Sized(type(SPACE)):  # type: ignore[misc]
        def extremes(self, count: str = "parameters", settings: Any = None) -> Any:
            return (1, (0,) * 6, 2, (3,) * 6) if settings is None else (3, (0,) * 6, 4, (3,) * 6)

    small = network_settings(SPACE.Network(width=4, depth=1), classes=10, image_channels=1, image_size=8)
    assert Sized().count_range("flops", small) == (3, 4) and Sized().count_range("flops") == (1, 2)


def test_limits_belong_to_a_searches_key_by_their_meaning(toy_project: Path) -> None:
    limited, free = (toy_config(search={"name": "random", "limits": one}) for one in ({"parameters": [0, 40]}, {}))
    assert Trial(limited).ranking_key != Trial(free).ranking_key
