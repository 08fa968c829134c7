"""Table H of the paper: should the architecture found be retrained with CaLR, too? Supernets with CaLR and MS.

The looked-up accuracy is shown beside the retrained one, since the paper's cosine rows equal its looked-up values to
the digit.
"""

from harness.study import Column, Comparison, Row, Study

from ._words import METHODS, OURS

study = Study(
    name="retrain_scheduler",
    title="Schedules for retraining what was found",
    paper="Table H",
    rows=[
        Row(
            {"Method": label, "Retraining": name},
            # The best-ranked architecture is needed here, whatever the preset says.
            {"method.name": method, "retrain.schedule": schedule, "rank.top1": True} | OURS,
        )
        for method, label in METHODS
        for name, schedule in [("CS", "cosine"), ("CaLR", "calr")]
    ],
    group="Method",
    primary=[Comparison({"Retraining": "CS"}, {"Retraining": "CaLR"})],
    columns=[
        Column("Retrained acc. (%)", "retrained_accuracy", digits=2),
        Column("Looked-up acc. (%)", "top1_accuracy", digits=2, best=None),
    ],
)
