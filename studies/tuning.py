"""Each method with equally many learning rates and weight decays: what its default costs it, and what tuning gains.

The candidates of a method are its default, two other rates and two other decays. Each is judged twice: by Kendall's τ
with the validation accuracies of the table, which choose, and with the test accuracies, which are shown. Both judge the
same trials, and the defaults are those of `sota`. docs/methods.md chooses for each seed by the other seeds alone.
"""

from collections.abc import Mapping
from typing import Any

from harness.study import Row, Study, Times

from ._compared import COMPARED, PASSES, REMARKS, Compared, settings_of
from ._words import HOURS, METHODS, TAU

ALL = (*(Compared(label, method) for method, label in METHODS), *COMPARED)
DECAY = "optimiser.weight_decay"
JUDGED_BY: dict[str, dict[str, Any]] = {"validation": {"rank.truth_split": "valid"}, "test": {}}


def candidates(compared: Compared) -> Mapping[str, Mapping[str, Any]]:
    """The settings of each candidate, relative to what the preset gives the method."""
    return {
        "default": {},
        "rate × 0.4": {compared.rate: Times(0.4)},
        "rate × 2.5": {compared.rate: Times(2.5)},
        "decay × 0.1": {DECAY: Times(0.1)},
        "decay × 10": {DECAY: Times(10)},
    }


study = Study(
    name="tuning",
    title="All methods with candidates of learning rate and weight decay",
    rows=[
        Row({"Method": one.label, "Candidate": name, "Judged by": judged}, settings_of(one) | dict(settings) | by)
        for one in ALL
        for name, settings in candidates(one).items()
        for judged, by in JUDGED_BY.items()
    ],
    group="Method",
    comparisons=(),
    by_name_only=True,
    columns=[TAU, PASSES, HOURS],
    remarks=[
        *REMARKS,
        "Rows judged by validation choose a candidate; rows judged by test show it. The rate of SUMNAS is that of its "
        "inner steps. A rate of DARTS and GDAS is that of the weights.",
    ],
)
