"""Figures 1(a) and 2 of the paper: what happens while supernets train.

Validation loss and accuracy of three subnets of different size without and with CaLR, the spread of gradients, and
Kendall's τ over training. The subnets are those of median looked-up accuracy in each third of the range of
complexity.
"""

from harness.study import Comparison, Curves, Figure, Line, Row, Study

from ._words import CALR, METHODS, MS, OURS, TAU

POINTS = {"observe.kendall_tau_every": 10, "observe.subnets_every": 10}
SPREAD = {"observe.spread": True}
SIZES = ("small", "medium", "large")


def labels(method: str, calr: bool = False, ms: bool = False) -> dict[str, str | bool]:
    return {"Method": method, "CaLR": calr, "MS": ms}


def subnets(metric: str, row: dict[str, str | bool]) -> list[Line]:
    """One line per subnet."""
    return [Line(f"{size} subnet", row, f"{metric}_{size}") for size in SIZES]


def over_training(metric: str) -> list[Line]:
    """One line per method, and one per method with CaLR and MS."""
    pairs = [(label, ours) for _, label in METHODS for ours in (False, True)]
    return [Line(f"{label} + Ours" if ours else label, labels(label, ours, ours), metric) for label, ours in pairs]


ALONE = [
    Line("SPOS + CaLR", labels("SPOS", calr=True), "kendall_tau"),
    Line("SPOS + MS", labels("SPOS", ms=True), "kendall_tau"),
]
"""CaLR alone, MS alone, and both."""


study = Study(
    name="training_curves",
    title="What happens while supernets train",
    paper="Figures 1(a), 2",
    rows=[
        Row(labels("SPOS", calr=True), {"method.name": "spos"} | CALR | SPREAD, points=POINTS),
        Row(labels("SPOS", ms=True), {"method.name": "spos"} | MS | SPREAD, points=POINTS),
    ]
    + [
        Row(
            labels(label, ours, ours),
            {"method.name": method} | SPREAD | (OURS if ours else {}),
            points=POINTS,
            shaded=ours,
        )
        for method, label in METHODS
        for ours in (False, True)
    ],
    primary=[
        Comparison({"CaLR": True, "MS": True}, {"CaLR": False, "MS": False}),
        Comparison(labels("SPOS", True, True), labels("SPOS", True)),
    ],
    columns=[TAU],
    figures=[
        Figure(
            "losses",
            "Validation loss of three subnets of SPOS",
            [Curves("SPOS", "Validation loss", subnets("valid_loss", labels("SPOS")))],
            paper="Figure 1(a)",
        ),
        Figure(
            "curves",
            "(a) Accuracy of three subnets of SPOS, (b) with CaLR; (c) spread of gradients; (d) Kendall's τ",
            [
                Curves("(a) SPOS", "Validation acc. (%)", subnets("valid_accuracy", labels("SPOS"))),
                Curves(
                    "(b) SPOS with CaLR", "Validation acc. (%)", subnets("valid_accuracy", labels("SPOS", calr=True))
                ),
                Curves("(c) Gradients", "Mean standard deviation", over_training("gradient_spread")[:2]),
                Curves("(d) Ranking", "Kendall's τ", [*over_training("kendall_tau"), *ALONE]),
            ],
            paper="Figure 2",
        ),
    ],
)
