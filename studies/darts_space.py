"""Table B of the paper: SPOS ± CaLR and MS in the DARTS space, the best of random subnets retrained."""

from typing import Any

from harness.study import Figure, FoundDrawing, Row, SearchPlot, Study

from ._mobilenet import FLOPS, HOURS, MEMORY, PARAMETERS, TOP1

FIRST_EDGE = 1
"""The decision on the operation from the first input to the first node of the normal cell.

The paper does not say which edge MS clusters by. Only the two edges of a cell's first node are in every path; clusters
by another one would need one for the paths without it, the largest of all.
"""

OURS: dict[str, Any] = {"schedule.name": "calr", "clusters.name": "operation", "clusters.at": [FIRST_EDGE]}
"""CaLR and MS together, which the paper calls "Ours"."""

FOUND: dict[str, Any] = {"method.name": "spos", "search.name": "best-of-n-random", "retrain.which": 0}

ROWS = [("SPOS", False), ("SPOS + Ours", True)]

study = Study(
    name="darts_space",
    title="Architectures found in the DARTS space",
    paper="Table B",
    space="darts",
    rows=[Row({"Method": "SPOS", "Ours": ours}, FOUND | (OURS if ours else {}), shaded=ours) for _, ours in ROWS],
    group="Method",
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
