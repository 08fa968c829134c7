"""The edges that a trial's seed draws: where the supernet is split, and where momentum is separated. Imports no torch.

All trials of one seed draw alike, so both arms of a comparison have the same edges. Reports take them as random
effects.
"""

from __future__ import annotations

import json
import random
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from harness.components.registries import CLUSTER_RULES, METHODS, SPACES
from harness.seeds import InTurn, make_rng
from harness.study.configuration import RunConfig

if TYPE_CHECKING:
    from harness.components.clustering import ClusterRule
    from harness.components.method import Method

SPLIT, CLUSTERS = "split edge", "edge of the clusters"
TURNS = "turns"
_PROBED = range(12)
"""Seeds whose draws are compared: an edge that is the same for all of them is not drawn."""


def split_rng(config: RunConfig) -> random.Random:
    """What the method's `parts` draws from."""
    return _rng(config, "split")


def clusters_rng(config: RunConfig) -> random.Random:
    """What the cluster rule's `bind` draws from."""
    return _rng(config, "clusters")


def _rng(config: RunConfig, name: str) -> random.Random:
    return InTurn(config.seed) if config.train.draw == TURNS else make_rng(config.seed, name)


def edges_of(config: RunConfig) -> dict[str, tuple[Any, ...]]:
    """By name, the decisions at which the supernet is split, and those that determine a path's cluster."""
    method: Method = config.method.build(METHODS, "method")
    rule: ClusterRule = config.clusters.build(CLUSTER_RULES, "clusters")
    space = SPACES.get(config.space)()
    parts = method.parts(space, split_rng(config))
    clustering = rule.bind(space, parts[0].fixed, clusters_rng(config))
    split = tuple(sorted({decision for part in parts for decision in (*part.fixed, *part.allowed)}))
    # Random clusters depend on all decisions, each time in another way.
    return {SPLIT: split, CLUSTERS: ("seed", config.seed) if clustering.decisions is None else clustering.decisions}


def drawn_edges(config: RunConfig) -> tuple[str, ...]:
    """The names of the edges that another seed may draw otherwise."""
    parts = {key: {"name": own.name, **own.options} for key in ("method", "clusters") if (own := getattr(config, key))}
    return _drawn(json.dumps({"space": config.space, "train": {"draw": config.train.draw}, **parts}))


@lru_cache(maxsize=256)
def _drawn(text: str) -> tuple[str, ...]:
    config = RunConfig.from_json(json.loads(text))
    found = [edges_of(config.with_valid(seed=seed)) for seed in _PROBED]
    return tuple(name for name in found[0] if len({edges[name] for edges in found}) > 1)
