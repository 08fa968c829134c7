"""AutoFormer (Chen et al., 2021): one random path per step over entangled weights; and clusters by embedding.

A step is that of SPOS: what differs is the space, whose subnets share the leading parts of the same matrices, and the
recipe (AdamW, warm-up, mixing, drop-path), which presets hold. The released code draws depth, embedding and the choices
of each block uniformly, and so does the sampler `uniform`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.components.clustering import Clustering, ClusterRule
from harness.components.method import Method
from harness.components.registries import CLUSTER_RULES, METHODS
from harness.components.space import Architecture, Fixed, Space
from harness.errors import InvalidConfiguration

if TYPE_CHECKING:
    from harness.training.supernet import SupernetTraining


@METHODS.register("autoformer")
@dataclass(frozen=True)
class AutoFormer(Method):
    """One uniform path per step over entangled weights."""

    def paths(self, training: SupernetTraining) -> list[Architecture]:
        return training.draw()


@CLUSTER_RULES.register("embedding")
@dataclass(frozen=True)
class ByEmbedding(ClusterRule):
    """By the embedding dimension: for spaces that name that decision (`embedding`), as those of AutoFormer do."""

    def bind(self, space: Space, fixed: Fixed, rng: random.Random) -> Clustering:
        decision = getattr(space, "embedding", None)
        if decision is None or decision in fixed:
            raise InvalidConfiguration(
                f"clusters.name=embedding needs a space with an embedding dimension to choose; {space.name} has none"
            )
        return Clustering(space.choices[decision], lambda path: path[decision], (decision,))
