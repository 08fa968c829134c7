"""Table 1 of the paper: SPOS, FairNAS and FSNAS, each ± CaLR and MS, searched under three limits and retrained."""

from harness.study import Comparison, Figure, Row, SearchPlot, Study

from ._mobilenet import FLOPS, HOURS, MEMORY, OURS, PARAMETERS, SIZES, SPACE, TOP1, found
from ._words import METHODS

study = Study(
    name="mobilenet_main",
    title="Architectures found in the MobileNet space",
    paper="Table 1",
    space=SPACE,
    rows=[
        Row(
            {"Method": f"{label}-{size}", "Ours": ours},
            found(size, method) | (OURS if ours else {}),
            shaded=ours,
        )
        for method, label in METHODS
        for size in SIZES
        for ours in (False, True)
    ],
    group="Method",
    primary=[Comparison({"Ours": True}, {"Ours": False})],
    columns=[PARAMETERS, FLOPS, TOP1, MEMORY, HOURS],
    figures=[
        Figure(
            "searches",
            "Every architecture that the searches scored, first seed",
            [
                SearchPlot(
                    f"{label}-{size}{' + Ours' * ours}",
                    {"Method": f"{label}-{size}", "Ours": ours},
                    x="FLOPs (M)",
                    scale=1e-6,
                )
                for _, label in METHODS
                for size in SIZES
                for ours in (False, True)
            ],
        )
    ],
)
