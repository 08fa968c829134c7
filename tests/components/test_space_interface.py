"""Spaces that are too large to be listed, and what a space may say of itself."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.components.registries import CLUSTER_RULES, SPACES
from harness.components.space import NetworkSettings, network_settings
from harness.errors import InvalidConfiguration
from harness.study.catalogue import find_studies
from harness.study.configuration import Ranking, RunConfig
from harness.study.judging import candidate_architectures
from harness.training.observers.curves import observed_subnets
from studies._words import decay_ratios
from tests.huge import FILES
from tests.toy import user_folder

NASBENCH = SPACES.get("nasbench201")()


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with user_folder(tmp_path_factory.mktemp("huge"), FILES):
        yield SPACES.get("huge")()


def test_a_large_space_is_not_listed(huge: Any) -> None:
    assert huge.size == 10**30 and not huge.enumerable and NASBENCH.enumerable
    for listing in (lambda: list(huge), lambda: candidate_architectures(huge, Ranking())):
        with pytest.raises(InvalidConfiguration, match=r"huge has 10\^30 architectures, which nothing can list"):
            listing()
    assert candidate_architectures(huge, Ranking(top1=False)) == []


def test_candidates_of_a_large_space_are_the_same_for_every_run(huge: Any) -> None:
    chosen = candidate_architectures(huge, Ranking(candidates=50))
    assert chosen == candidate_architectures(huge, Ranking(candidates=50)) and len(set(chosen)) == 50
    assert [huge.architecture(huge.index(one)) for one in chosen] == chosen == sorted(chosen)


def test_extremes_come_from_the_space(huge: Any) -> None:
    least, smallest, greatest, largest = huge.extremes()
    assert (least, greatest) == huge.complexity_range() == (huge.complexity(smallest), huge.complexity(largest))
    bare = type("Bare", (SPACES.get("huge"),), {"extremes": SPACES.get("nasbench201").extremes})()
    with pytest.raises(InvalidConfiguration, match=r"must define extremes\(count\)"):
        bare.complexity_range()
    assert NASBENCH.extremes() == (73_306, (0,) * 6, 73_306 + 6 * 243_040, (3,) * 6)


def test_observed_subnets_and_curves_need_no_listing(huge: Any) -> None:
    config = RunConfig.from_json({"space": "huge", "benchmark": None})
    small, medium, large = observed_subnets(huge, None, config).values()
    assert huge.complexity(small) < huge.complexity(medium) < huge.complexity(large)
    (study,) = find_studies("three")
    from harness.components.preset import get_preset
    from harness.study.expansion import expand

    (series,) = decay_ratios(expand(study, get_preset("tiny", "huge"), 1), {"CaLR": {}})
    assert series.x[0] == 40e-6 and len(series.x) > 10


def test_layers_decide_the_first_and_the_last_layers_clusters(huge: Any) -> None:
    first, last = (CLUSTER_RULES.get(name)().bind(huge, {}, random.Random(0)) for name in ("first-layer", "last-layer"))
    assert (first.count, first.decisions) == (10, (0, 1)) and last.decisions == (58, 59)
    assert CLUSTER_RULES.get("first-layer")().bind(huge, {0: 1}, random.Random(0)).decisions == (1,)
    for name, decision in (("first-layer", 0), ("last-layer", 5)):
        assert CLUSTER_RULES.get(name)().bind(NASBENCH, {}, random.Random(0)).decisions == (decision,)


def test_what_does_not_matter_has_one_canonical_form(huge: Any) -> None:
    off = (3, 0) * 30
    assert huge.canonical(off) == huge.function_class(off) == huge.network_class(off) == (0, 0) * 30
    assert NASBENCH.canonical((0, 1, 2, 3, 4, 0)) == NASBENCH.function_class((0, 1, 2, 3, 4, 0))


def test_mutations_and_crossovers(huge: Any) -> None:
    rng = random.Random(0)
    one, other = huge.sample(rng), huge.sample(rng)
    assert huge.mutate(one, rng, 0.0) == huge.alter(one, rng, 0.0) == one
    assert all(a != b for a, b in zip(huge.alter(one, rng, 1.0), one, strict=True))
    drawn = Counter(huge.mutate(one, rng, 0.5)[0] for _ in range(2000))
    count = huge.choices[0]
    assert drawn[one[0]] / 2000 == pytest.approx(0.5 + 0.5 / count, abs=0.06) and len(drawn) == count
    child = huge.crossover(one, other, rng)
    assert all(c in pair for c, pair in zip(child, zip(one, other, strict=True), strict=True))
    assert child not in (one, other)


def test_a_space_has_settings_of_its_own(huge: Any) -> None:
    config = RunConfig.from_json({"space": "huge", "benchmark": None, "network": {"channels": 6}})
    assert config.json()["network"] == {"channels": 6, "slope": 0.1}
    settings = network_settings(config.network, classes=3, image_channels=1, image_size=8)
    assert (settings.channels, settings.slope, settings.classes, settings.copies) == (6, 0.1, 3, 1)
    assert huge.complexity((0, 1) * 30, settings=settings) == 6 * 40 == huge.complexity((0, 1) * 30) * 6 // 4
    for wrong, message in (({"width": 4}, "no configuration key 'network.width'"), ({"channels": 0}, "at least 1")):
        with pytest.raises(InvalidConfiguration, match=message):
            RunConfig.from_json({"space": "huge", "benchmark": None, "network": wrong})


def test_nasbench201_keeps_its_text_and_counts_at_any_size() -> None:
    assert RunConfig().json()["network"] == {"width": 16, "depth": 5, "batch_norm": "batch-statistics"}
    with pytest.raises(InvalidConfiguration, match=r"network\.batch_norm is 'group'; allowed: 'batch-statistics'"):
        RunConfig.from_json({"network": {"batch_norm": "group"}})
    for count in ("parameters", "flops"):
        whole = NASBENCH.complexity((3,) * 6, count)
        assert NASBENCH.complexity((3,) * 6, count, NetworkSettings()) == whole  # type: ignore[call-arg]
        assert NASBENCH.complexity((3,) * 6, count, NetworkSettings(width=4)) < whole  # type: ignore[call-arg]


def test_a_key_of_another_spaces_network_is_refused_as_an_override(huge: Any) -> None:
    from harness.components.preset import get_preset
    from harness.study.expansion import expand

    (study,) = find_studies("three")
    preset = get_preset("tiny", "huge")
    assert "network.width" in preset.settings  # of the default space, and left out here
    assert expand(study, preset, 1, {"network.slope": 0.2})[0].trial.config.network.slope == 0.2
    with pytest.raises(InvalidConfiguration, match=r"no configuration key 'network\.width'"):
        expand(study, preset, 1, {"network.width": 4})


def test_a_table_from_a_file_judges(toy_project: Path) -> None:
    from harness.study.trial import Trial
    from harness.training.trial import run_trial
    from tests.toy import toy_config

    named, filed = toy_config(), toy_config(benchmark="toy.npz")
    assert Trial(named).key == Trial(filed).key and Trial(named).ranking_key != Trial(filed).ranking_key
    assert run_trial(filed).result == run_trial(named).result
