"""Table 2 of the paper: SPOS, FairNAS and FSNAS, each as it is and with CaLR and MS ("Ours")."""

from harness.study import Bars, Comparison, Figure, Row, Study

from ._words import HOURS, MEMORY, METHODS, OURS, PREDICTED, TAU, TOP1

study = Study(
    name="nb201_main",
    title="Supernet training methods on NAS-Bench-201",
    paper="Table 2",
    rows=[
        Row({"Method": label, "Ours": ours}, {"method.name": method} | (OURS if ours else {}), shaded=ours)
        for method, label in METHODS
        for ours in (False, True)
    ]
    + [Row({"Method": "Optimal", "Ours": False}, source="truth")],
    group="Method",
    factors=("Method", "Ours"),
    primary=["Ours", Comparison({"Ours": True}, {"Ours": False}, "top1_accuracy")],
    columns=[TAU, TOP1, PREDICTED, MEMORY, HOURS],
    figures=[Figure("tau", "Kendall's τ with and without CaLR and MS", [Bars("", TAU)])],
)
