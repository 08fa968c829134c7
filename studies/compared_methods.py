"""Whether every method learns: validation loss and τ of each, beside the untrained supernet (`report --references`)."""

from harness.study import Column, Row, Study

from ._compared import PASSES, REMARKS, SAMPLING, SAMPLING_BASED, Compared, settings_of
from ._words import METHODS, TAU

ALL = (
    *(Compared(label, method) for method, label in METHODS),
    *SAMPLING_BASED,
    Compared("NSAS, archive", "nsas", separable=False),
)

study = Study(
    name="compared_methods",
    title="All methods compared with the untrained supernet",
    rows=[Row({"Method": one.label}, settings_of(one) | {"rank.valid_loss": True}) for one in ALL],
    columns=[
        Column("Validation loss", "valid_loss", best="min", remark="Mean over the architectures that τ is taken over."),
        TAU,
        PASSES,
        SAMPLING,
    ],
    remarks=REMARKS,
)
