"""Table A and Figure A of the paper: the methods trained here beside values quoted from the literature."""

from harness.study import Column, Figure, Row, Scatter, Study

from ._words import METHODS, OURS, TOP1

HOURS = Column("Training (h)", "stage_seconds.train", digits=4, scale=1 / 3600)

study = Study(
    name="sota",
    title="Search performance beside the literature",
    paper="Table A",
    rows=[
        Row({"Method": label, "Ours": False}, source="paper")
        for label in ("DARTS", "GDAS", "NSAS", "Cream", "SUMNAS", "PA&DA")
    ]
    + [
        Row({"Method": label, "Ours": ours}, {"method.name": method} | (OURS if ours else {}), shaded=ours)
        for method, label in METHODS
        for ours in (False, True)
    ],
    group="Method",
    columns=[TOP1],
    figures=[
        Figure(
            "search_time",
            "Accuracy of what was found over the time of supernet training; quoted values have no time",
            [Scatter("", HOURS, TOP1, log_x=True)],
            paper="Figure A",
        )
    ],
)
