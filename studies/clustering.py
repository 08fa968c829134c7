"""Table 5, Figures 5 and B of the paper: which subnets should share a momentum? MS without CaLR.

Momenta spread within clusters in Figure 5(b): pooled over clusters they spread more by construction where the clusters'
gradients differ. A figure that the paper does not have shows how similar gradients are, by the number of edges in which
subnets differ.

The paper compares the clusterings on SPOS. FairNAS and FSNAS are included with and without MS for
Figure B; the paths of a fair step of FairNAS cannot all be in one random cluster.
"""

from harness.study import Comparison, Curves, Figure, Line, Row, Study

from ._words import METHODS, MS, TAU

SPREAD = {"observe.spread": True, "observe.spread_within": True}
POINTS = {"observe.similarity_every": 4}
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


def by_distance(method: str, most: int) -> list[Line]:
    """The baseline's gradients: one line per number of edges in which two subnets differ."""
    labels: dict[str, str | bool] = {"Method": method, "MS": False, "Clustering": "–"}
    return [Line(f"{n} edge{'s' * (n > 1)}", labels, f"gradient_similarity_{n}") for n in range(1, most + 1)]


ROWS = [
    Row(
        {"Method": label, "MS": ms, "Clustering": clustering},
        {"method.name": method} | settings | SPREAD,
        points=POINTS,
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
    chooses="The clustering",
    columns=[TAU],
    figures=[
        Figure(
            "spread",
            "How gradients and momenta of SPOS vary over the steps of an epoch",
            [
                Curves("Gradients", "Mean standard deviation", lines("SPOS", "gradient_spread")),
                Curves("Momenta", "Mean standard deviation", lines("SPOS", "momentum_spread_within")),
                Curves("Momenta, pooled over clusters", "Mean standard deviation", lines("SPOS", "momentum_spread")),
            ],
            paper="Figure 5",
        ),
        Figure(
            "similarity",
            "Similarity of the first layer's gradients, by the number of edges in which two subnets differ",
            [Curves(label, "Cosine", by_distance(label, 6 - (method == "fsnas"))) for method, label in METHODS],
        ),
        Figure(
            "gradient_spread",
            "How gradients vary over the steps of an epoch, by method",
            [Curves(label, "Mean standard deviation", lines(label, "gradient_spread")) for _, label in METHODS],
            paper="Figure B",
        ),
    ],
)
