"""Table A and Figure A of the paper: the methods trained here beside values quoted from the literature.

The preset `paper` has the published epochs, batch and rates of every method, where there are any; docs/methods.md lists
what differs from its paper and code. `sota_equal_passes` gives all methods the passes of SPOS.
"""

from dataclasses import replace

from harness.study import Comparison, Figure, Row, Scatter, Study

from ._compared import COMPARED, PASSES, REMARKS, SAMPLING, settings_of
from ._words import HOURS, MEMORY, METHODS, OURS, PREDICTED, TAU, TOP1

QUOTED = ("DARTS", "GDAS", "NSAS", "Cream", "SUMNAS", "PA&DA")
"""The methods of Table A whose values the paper quotes."""

TRAINED = {
    one.label: Row(
        {"Method": f"{one.label}, trained here" if one.label in QUOTED else one.label, "Ours": False}, settings_of(one)
    )
    for one in COMPARED
}
BASELINES = [
    Row({"Method": label, "Ours": ours}, {"method.name": method} | (OURS if ours else {}), shaded=ours)
    for method, label in METHODS
    for ours in (False, True)
]


def quoted_and_trained(label: str) -> list[Row]:
    """The paper's quotation, and below it what is measured here."""
    quotation = Row({"Method": label, "Ours": False}, source="paper")
    return [quotation, *([TRAINED[label]] if label in TRAINED else [])]


ROWS = [row for label in QUOTED for row in quoted_and_trained(label)]
ROWS += [row for label, row in TRAINED.items() if label not in QUOTED]

study = Study(
    name="sota",
    title="Search performance compared with the literature",
    paper="Table A",
    rows=ROWS + BASELINES,
    group="Method",
    primary=[
        Comparison({"Method": label, "Ours": True}, {"Method": label, "Ours": False}) for label in ("SPOS", "FairNAS")
    ],
    columns=[TOP1, PREDICTED, TAU, PASSES, SAMPLING, HOURS, MEMORY],
    figures=[
        Figure(
            "search_time",
            "Accuracy of what was found over the time of supernet training; quoted values have no time",
            [Scatter("", replace(HOURS, each_dataset=True), TOP1, log_x=True)],
            paper="Figure A",
        )
    ],
    references=True,
    remarks=REMARKS,
)
