"""When does CaLR help, when does it hurt, and how much of it is the average learning rate? Not in the paper.

CaLR rests on the premise that larger networks are better. On `digits` they are hardly better, on `digits-polar` they
are. Under both tasks SPOS trains with CaLR's schedules and their controls.

The table of `digits-polar` is not finished. Until then `--all` leaves the study out, because its name begins with an
underscore; `harness run studies/_premise.py` runs it.
"""

from harness.study import Comparison, Row, Study

from ._words import TAU
from .calr_control import SCHEDULES
from .calr_control import study as calr_control

PLAIN, POLAR = "digits, larger is not better", "digits-polar, larger is better"
TASKS = {
    PLAIN: {"dataset": "digits", "benchmark": "digits"},
    POLAR: {"dataset": "digits-polar", "benchmark": "digits-polar"},
}

study = Study(
    name="premise",
    title="CaLR and its controls where larger networks are better, and where they are not (SPOS, ranked by loss)",
    rows=[
        Row(
            {"Task": task, "Learning rate": name},
            {"method.name": "spos", "rank.by": "loss"} | data | schedule,
            shaded=name == "CaLR",
        )
        for task, data in TASKS.items()
        for name, schedule in SCHEDULES
    ],
    group="Task",
    factors=("Task", "Learning rate"),
    columns=[TAU],
    comparisons=[
        Comparison({"Task": task, "Learning rate": "CaLR"}, {"Task": task, "Learning rate": name})
        for task in TASKS
        for name, _ in SCHEDULES
        if name != "CaLR"
    ],
    primary=[
        Comparison({"Task": task, "Learning rate": "CaLR"}, {"Task": task, "Learning rate": control})
        for task, control in [(PLAIN, "cosine"), (POLAR, "cosine"), (POLAR, "permuted γ")]
    ],
    remarks=calr_control.remarks,
)
