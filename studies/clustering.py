"""Table 5, Figures 5 and B of the paper: which subnets should share a momentum? MS without CaLR.

The paper compares the clusterings on SPOS. FairNAS and FSNAS are included with and without MS for
Figure B; the paths of a fair step of FairNAS cannot all be in one random cluster.
"""

from harness.study import Comparison, Curves, Figure, Line, Row, Study

from ._words import METHODS, MS, TAU

SPREAD = {"observe.spread": True}
CLUSTERINGS = [
    (False, "–", {}),
    (True, "Random", {"clusters.name": "random"}),
    (True, "Operation-based", MS),
]


def lines(method: str, metric: str) -> list[Line]:
    """One line for each way of clustering that the method has a row for."""
    own = [row.labels for row in ROWS if row.labels["Method"] == method]
    names = {"–": method, "Random": f"{method} + MS (random)", "Operation-based": f"{method} + MS"}
    return [Line(names[str(labels["Clustering"])], labels, metric) for labels in own]


ROWS = [
    Row(
        {"Method": label, "MS": ms, "Clustering": clustering},
        {"method.name": method} | settings | SPREAD,
        shaded=clustering == "Operation-based",
    )
    for method, label in METHODS
    for ms, clustering, settings in CLUSTERINGS
    if method == "spos" or clustering != "Random"
]

study = Study(
    name="clustering",
    title="Ways of clustering subnets for MS",
    paper="Table 5",
    rows=ROWS,
    group="Method",
    primary=[
        Comparison({"Clustering": "Operation-based"}, {"MS": False}),
        Comparison({"Method": "SPOS", "Clustering": "Operation-based"}, {"Method": "SPOS", "Clustering": "Random"}),
    ],
    columns=[TAU],
    figures=[
        Figure(
            "spread",
            "How gradients and momenta of SPOS vary over the steps of an epoch",
            [
                Curves("Gradients", "Mean standard deviation", lines("SPOS", "gradient_spread")),
                Curves("Momenta", "Mean standard deviation", lines("SPOS", "momentum_spread")),
            ],
            paper="Figure 5",
        ),
        Figure(
            "gradient_spread",
            "How gradients vary over the steps of an epoch, by method",
            [Curves(label, "Mean standard deviation", lines(label, "gradient_spread")) for _, label in METHODS],
            paper="Figure B",
        ),
    ],
)
