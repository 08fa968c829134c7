"""The curves that a run may observe: their names, the settings that ask for them, and which ranking measures them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

Curved = TypeVar("Curved")


@dataclass(frozen=True)
class Curve:
    """A curve that a run may observe, and the setting that asks for it."""

    name: str
    """Its name; a star stands for what varies: the size of a subnet, the number of a path."""
    setting: str
    meaning: str
    judged: bool = False
    """Whether the ranking of the run measures it: another ranking gives another curve."""
    ends: tuple[str, ...] = ()
    """What may stand in the place of the star; empty for whole numbers."""


JUDGED_BY = "@"
"""What stands before the key of a ranking in the name of a curve that another ranking than the run's own measures."""

SIZES = ("small", "medium", "large")
"""The subnets whose curves are observed: one per third of the range of complexity."""

AVERAGED = "kendall_tau_averaged"
"""The curve of means over the end of training. Its steps are numbers of epochs: one run answers for any fewer."""
CURVES = (
    Curve("kendall_tau", "observe.kendall_tau_every", "Kendall's τ over the selected architectures", judged=True),
    Curve("selected_top1", "observe.kendall_tau_every", "true accuracy of the best-ranked of these, in %", judged=True),
    Curve("selected_regret", "observe.kendall_tau_every", "how far it is below the best of these", judged=True),
    Curve(AVERAGED, "observe.average_last", "mean of Kendall's τ after the last 1, 2, … epochs", judged=True),
    Curve("valid_loss_*", "observe.subnets_every", "validation loss of a small, medium, large subnet", True, SIZES),
    Curve("valid_accuracy_*", "observe.subnets_every", "validation accuracy of these subnets, in %", True, SIZES),
    Curve("gradient_spread", "observe.spread", "mean standard deviation of gradients over an epoch's steps"),
    Curve("momentum_spread", "observe.spread", "the same of momentum buffers"),
    Curve("momentum_spread_within", "observe.spread_within", "the same of momentum buffers within clusters"),
    Curve("gradient_share_between", "observe.spread_within", "share of the gradients' variance between clusters"),
    Curve("mgcs_*", "observe.gradient_similarity", "similarity of a path's first-layer gradient to the first path's"),
    Curve("mgcs_deviation_*", "observe.gradient_similarity", "its standard deviation over groups of paths"),
    Curve(
        "gradient_similarity_*",
        "observe.similarity_every",
        "similarity of the first layer's gradients of subnets that differ in so many decisions",
    ),
    Curve("gradient_similarity_deviation_*", "observe.similarity_every", "its standard deviation over pairs"),
)


def curve_of(name: str) -> Curve | None:
    """The curve of that name."""
    return next((one for one in CURVES if _matches(one, name)), None)


def curve_names() -> list[str]:
    """The names of all curves; a star stands for whole numbers."""
    return [name for one in CURVES for name in ([one.name.replace("*", end) for end in one.ends] or [one.name])]


def curves_of(observed: Mapping[str, Curved], own: str | None, ranking: str) -> dict[str, Curved]:
    """The curves that a ranking shows, of those that a run with the ranking `own` has observed.

    A curve that is measured by a ranking belongs to the run's own one, unless its name has the key of another.
    """
    named = ((*name.partition(JUDGED_BY)[::2], points) for name, points in observed.items())
    return {plain: one for plain, other, one in named if (other or own) == ranking or not (other or is_judged(plain))}


def is_judged(name: str) -> bool:
    """Whether the ranking of a run measures the curve of that name. Unknown curves are measured by the training."""
    return (curve := curve_of(name)) is not None and curve.judged


def _matches(curve: Curve, name: str) -> bool:
    before, star, _ = curve.name.partition("*")
    end = name.removeprefix(before)
    if not star or not name.startswith(before):
        return name == curve.name
    return end in curve.ends if curve.ends else end.isdigit()
