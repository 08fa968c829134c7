"""Table 3 of the paper: what CaLR and momentum separation (MS) each add to SPOS, FairNAS and FSNAS."""

from harness.study import Column, Comparison, Row, Study

CALR = {"schedule.name": "calr"}
MS = {"clusters.name": "operation"}

study = Study(
    name="ablation_calr_ms",
    title="Ablation of CaLR and MS",
    paper="Table 3",
    rows=[
        Row(
            {"Method": label, "CaLR": calr, "MS": ms},
            {"method.name": method} | (CALR if calr else {}) | (MS if ms else {}),
        )
        for method, label in [("spos", "SPOS"), ("fairnas", "FairNAS"), ("fsnas", "FSNAS")]
        for calr, ms in [(False, False), (True, False), (False, True), (True, True)]
    ],
    group="Method",
    factors=("Method", "CaLR", "MS"),
    primary=["CaLR", "MS", Comparison({"Method": "SPOS", "CaLR": True}, {"Method": "SPOS", "CaLR": False})],
    columns=[
        Column("Kendall's τ", "kendall_tau", digits=3),
        Column("Partial τ", "partial_tau", digits=3, best=None, remark="Kendall's τ given the number of parameters."),
        Column("Top-1 acc. (%)", "top1_accuracy", digits=2),
        Column(
            "Top-1 by prediction (%)",
            "top1_accuracy_predicted",
            digits=2,
            best=None,
            remark="The looked-up accuracy of the best predicted candidate: no truth chooses among supernets.",
        ),
    ],
)
