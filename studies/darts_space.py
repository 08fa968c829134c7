"""Table B of the paper: SPOS ± CaLR and MS in the DARTS space, the best of random subnets retrained."""

from typing import Any

from harness.study import Comparison, Figure, FoundDrawing, Row, SearchPlot, Study

from ._mobilenet import FLOPS, HOURS, MEMORY, PARAMETERS, TOP1
from ._words import NO_FLOOR, OURS

FOUND: dict[str, Any] = {"method.name": "spos", "search.name": "best-of-n-random", "retrain.which": 0}

ROWS = [("SPOS", False), ("SPOS + Ours", True)]

study = Study(
    name="darts_space",
    title="Architectures found in the DARTS space",
    paper="Table B",
    space="darts",
    rows=[
        Row({"Method": "SPOS", "Ours": ours}, FOUND | (OURS | NO_FLOOR if ours else {}), shaded=ours)
        for _, ours in ROWS
    ],
    group="Method",
    primary=[Comparison({"Ours": True}, {"Ours": False})],
    columns=[TOP1, PARAMETERS, FLOPS, MEMORY, HOURS],
    figures=[
        Figure(
            "searches",
            "Every architecture that the searches scored, first seed",
            [SearchPlot(title, {"Method": "SPOS", "Ours": ours}, x="FLOPs (M)", scale=1e-6) for title, ours in ROWS],
        ),
        Figure(
            "cells",
            "The cells that were found, first seed",
            [FoundDrawing(title, {"Method": "SPOS", "Ours": ours}) for title, ours in ROWS],
        ),
    ],
)
