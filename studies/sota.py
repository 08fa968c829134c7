"""Table A and Figure A of the paper: the methods trained here beside values quoted from the literature."""

from dataclasses import replace

from harness.study import Figure, Row, Scatter, Study

from ._words import HOURS, METHODS, OURS, TOP1

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
            [Scatter("", replace(HOURS, each_dataset=True), TOP1, log_x=True)],
            paper="Figure A",
        )
    ],
)
