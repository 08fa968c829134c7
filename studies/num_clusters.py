"""Table 6 of the paper: how many clusters? Subnets clustered by one to four edges, with CaLR."""

from harness.study import Comparison, Row, Study

from ._words import CALR, MEMORY, MS, TAU

study = Study(
    name="num_clusters",
    title="Number of clusters of MS, with CaLR",
    paper="Table 6",
    rows=[
        Row({"Method": "SPOS", "Clusters": str(5**edges)}, {"method.name": "spos", "clusters.edges": edges} | CALR | MS)
        for edges in (1, 2, 3, 4)
    ],
    group="Method",
    primary=[Comparison({"Clusters": clusters}, {"Clusters": "5"}) for clusters in ("25", "625")],
    chooses="The number of clusters",
    columns=[TAU, MEMORY],
)
