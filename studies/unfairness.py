"""Tables 4 and D of the paper: does CaLR treat small and large subnets alike? CB and C³, without MS."""

from harness.study import Column, Comparison, Row, Study

from ._words import METHODS

TOP = {"rank.top_share": 0.3, "rank.by": "accuracy"}
"""The paper defines C³ by accuracies; CB and C³ are of one ranking."""

BIAS_Z = Column(
    "CB z",
    "complexity_bias_z",
    digits=1,
    best=None,
    remark="CB less the mean of its matched null, in deviations of that null; above 0 the supernet is unfair to large "
    "networks.",
)
CONVERGENCE_Z = Column(
    "C³ z",
    "complexity_convergence_z",
    digits=1,
    best=None,
    remark="The same of C³; below 0 the supernet is unfair to large networks.",
)

SCHEDULES = [
    (False, "–", {}),
    (True, "−log(k − C(α))", {"schedule.name": "calr", "schedule.function": "reversed"}),
    (True, "−log C(α)", {"schedule.name": "calr"}),
]

study = Study(
    name="unfairness",
    title="Complexity bias (CB) and complexity-convergence correlation (C³) over the best 30 % of the subnets",
    paper="Tables 4, D",
    rows=[
        Row(
            {"Method": label, "CaLR": calr, "γ(α) ∝": decay},
            {"method.name": method} | TOP | schedule,
            shaded=decay == "−log C(α)",
        )
        for method, label in METHODS
        for calr, decay, schedule in SCHEDULES
    ],
    group="Method",
    primary=[
        Comparison({"γ(α) ∝": "−log C(α)"}, {"CaLR": False}, metric)
        for metric in ("complexity_bias", "complexity_convergence")
    ],
    columns=[
        Column(
            "CB",
            "complexity_bias",
            digits=3,
            best="nearest",
            reference="complexity_bias_null",
            remark="Pairs that prediction or truth ties are not wrongly ordered, and of two equally large subnets "
            "none is the larger. The neutral value is not 0.5: it is the mean CB of a null that is matched to each "
            "run's predictions.",
        ),
        BIAS_Z,
        Column(
            "C³",
            "complexity_convergence",
            digits=3,
            best="nearest",
            reference="complexity_convergence_null",
            remark="τ-b, in which ties count for neither side, of the number of parameters and predicted over "
            "looked-up test accuracy. The neutral value is not 0, but that of the same null.",
        ),
        CONVERGENCE_Z,
    ],
)
