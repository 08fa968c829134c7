"""Does CaLR help because it knows sizes, or because it lowers the learning rate? Not in the paper.

CaLR lowers the mean factor of the learning rate from 0.50 to 0.34. Two controls have equally low rates: `calr-mean`,
one rate for all paths, and `calr-permuted`, CaLR's rates with those of other architectures.
"""

from harness.study import Column, Comparison, Row, Study

from ._words import CALR, METHODS, PARTIAL, TAU
from .unfairness import TOP
from .unfairness import study as unfairness

BY_LOSS = Column("τ by loss", "kendall_tau_by_loss", digits=3, best=None)
BY_ACCURACY = Column("τ by accuracy", "kendall_tau_by_accuracy", digits=3, best=None)

SCHEDULES = [
    ("cosine", {"schedule.name": "cosine"}),
    ("same average rate", {"schedule.name": "calr-mean"}),
    ("permuted γ", {"schedule.name": "calr-permuted"}),
    ("CaLR", CALR),
    ("reversed CaLR", CALR | {"schedule.function": "reversed"}),
]

CONTROLS = ("same average rate", "permuted γ")

study = Study(
    name="calr_control",
    title="CaLR compared with schedules with the same rates that do not depend on size",
    rows=[
        Row(
            {"Method": label, "Learning rate": name},
            {"method.name": method} | TOP | schedule,
            shaded=name == "CaLR",
        )
        for method, label in METHODS
        for name, schedule in SCHEDULES
    ],
    group="Method",
    columns=[TAU, BY_LOSS, BY_ACCURACY, PARTIAL, *unfairness.columns],
    comparisons=[
        Comparison({"Method": label, "Learning rate": "CaLR"}, {"Method": label, "Learning rate": control})
        for _, label in METHODS
        for control in CONTROLS
    ],
    primary=[Comparison({"Learning rate": "CaLR"}, {"Learning rate": control}) for control in CONTROLS],
    remarks=[
        "Same average rate: at each step the mean of CaLR's factors over all architectures. Permuted γ: each path has "
        "the decay ratio of another architecture, drawn by a hash of the path and the seed.",
    ],
)
