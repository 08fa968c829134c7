"""Figures E to G of the paper: what SPOS, FairNAS and FSNAS find with CaLR and MS, under three limits, first seed."""

from harness.study import Figure, FoundDrawing, Row, Study

from ._mobilenet import FLOPS, OURS, PARAMETERS, SIZES, SPACE, TOP1, found
from ._words import METHODS

study = Study(
    name="searched_subnets",
    title="What is found in the MobileNet space with CaLR and MS",
    space=SPACE,
    rows=[
        Row({"Method": f"{label} + Ours", "Limit": size}, found(size, method) | OURS)
        for method, label in METHODS
        for size in SIZES
    ],
    group="Method",
    columns=[PARAMETERS, FLOPS, TOP1],
    figures=[
        Figure(
            f"{method}_found",
            f"Architectures found by {label} + Ours",
            [FoundDrawing(size, {"Method": f"{label} + Ours", "Limit": size}) for size in SIZES],
            paper=f"Figure {letter}",
        )
        for (method, label), letter in zip(METHODS, "EFG", strict=True)
    ],
)
