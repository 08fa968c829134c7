"""Table I and Figure D of the paper: do similar subnets have similar gradients? A₀ and relatives, trained together."""

from collections.abc import Sequence
from typing import Any

from harness.study import Column, Comparison, Drawings, Figure, Request, Row, Study

BASES = 20
"""A₀ per run: one says little, since MGCS varies between them by as much as it is."""

NAMES = {"A₁": "mgcs_1", "A₃": "mgcs_2", "A₅": "mgcs_3"}
"""Metric of each subnet; the index of a subnet is the number of edges in which it differs from A₀."""


def drawn(requests: Sequence[Request]) -> dict[str, tuple[Any, Any]]:
    """The subnets of the first seed."""
    from harness.components.registries import METHODS, SPACES
    from harness.seeds import make_rng

    config = requests[0].trial.config
    space: Any = SPACES.get(config.space)()
    subnets = METHODS.get("related")().subnets(space, make_rng(config.seed, "paths", 0))
    return {name: (space, subnet) for name, subnet in zip(["A₀", *NAMES], subnets, strict=True)}


study = Study(
    name="gradient_similarity",
    title="Mean cosine similarity (MGCS) of the first layer's gradients to those of A₀",
    paper="Table I",
    rows=[
        Row(
            {"Subnet": name},
            # Only these subnets are trained, so ranking the others has no meaning.
            {
                "method.name": "related",
                "method.bases": BASES,
                "observe.gradient_similarity": True,
                "rank.candidates": 1,
                "rank.bins": 2,
            },
            metrics={"mgcs": metric, "mgcs_deviation": metric.replace("mgcs", "mgcs_deviation")},
        )
        for name, metric in NAMES.items()
    ],
    primary=[Comparison({"Subnet": "A₁"}, {"Subnet": "A₃"}), Comparison({"Subnet": "A₃"}, {"Subnet": "A₅"})],
    columns=[
        Column(
            "MGCS",
            "mgcs",
            digits=2,
            remark=f"The first parameter of the network, every step of the last epoch. {BASES} times A₀ and the edges "
            "in which A₁, A₃ and A₅ differ from it are drawn by the seed, and trained in turn; the paper has one A₀.",
        ),
        Column(
            "Deviation",
            "mgcs_deviation",
            digits=2,
            best=None,
            remark="The standard deviation of MGCS between the A₀ of a run.",
        ),
    ],
    figures=[Figure("subnets", "The subnets of the first seed", [Drawings("", drawn)], paper="Figure D")],
)
