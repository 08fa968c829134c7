"""Table H of the paper: should what was found be retrained with CaLR, too? Found by supernets with CaLR and MS.

The accuracy that is looked up stands beside the one that was trained here: the paper's cosine rows equal its looked-up
ones to the digit.
"""

from harness.study import Column, Row, Study

from ._words import METHODS, OURS

study = Study(
    name="retrain_scheduler",
    title="Schedules for retraining what was found",
    paper="Table H",
    rows=[
        Row(
            {"Method": label, "Retraining": name},
            # What is best-ranked is needed here, whatever a preset says.
            {"method.name": method, "retrain.schedule": schedule, "rank.top1": True} | OURS,
        )
        for method, label in METHODS
        for name, schedule in [("CS", "cosine"), ("CaLR", "calr")]
    ],
    group="Method",
    columns=[
        Column("Retrained acc. (%)", "retrained_accuracy", digits=2),
        Column("Looked-up acc. (%)", "top1_accuracy", digits=2, best=None),
    ],
)
