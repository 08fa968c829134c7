"""CaLR and MS added to each method that can take them: a table that the paper does not have."""

from harness.study import Row, Study

from ._compared import PASSES, REMARKS, SAMPLING, SAMPLING_BASED, Compared, settings_of
from ._words import CALR, HOURS, METHODS, MS, NO_FLOOR, PREDICTED, TAU, TOP1

ALL = (*(Compared(label, method) for method, label in METHODS), *SAMPLING_BASED)

study = Study(
    name="sota_plus_ours",
    title="CaLR and MS added to every method that can take them",
    rows=[
        Row(
            {"Method": one.label, "CaLR": ours, "MS": ours and one.separable},
            settings_of(one) | (CALR | NO_FLOOR if ours else {}) | (MS if ours and one.separable else {}),
            shaded=ours,
        )
        for one in ALL
        for ours in (False, True)
    ],
    group="Method",
    columns=[TAU, TOP1, PREDICTED, PASSES, SAMPLING, HOURS],
    remarks=[
        *REMARKS,
        f"CaLR alone for {', '.join(one.label for one in ALL if not one.separable)}: a step of NSAS trains paths "
        "that are chosen to be far apart, a step of AlphaNet or DepS the largest and the smallest subnet. Such paths "
        "are in different clusters, and one step updates one momentum buffer.",
        "The outer optimiser of SUMNAS has no momentum, as none is published: MS only keeps the paths of a step in one "
        "cluster.",
    ],
)
