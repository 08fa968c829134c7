"""Does the winner change with the architectures that Kendall's τ is taken over? The ablation's trials, judged anew."""

from harness.study import Column, Row, Study

from ._words import CALR, METHODS, MS, TAU

TIES = "The range over 200 ways to choose among equally accurate architectures, as far as these were predicted."

study = Study(
    name="selection_sensitivity",
    title="Kendall's τ by selection of architectures",
    rows=[
        Row(
            {"Method": label, "CaLR": calr, "MS": ms},
            {"method.name": method} | (CALR if calr else {}) | (MS if ms else {}),
        )
        for method, label in METHODS
        for calr, ms in [(False, False), (True, False), (False, True), (True, True)]
    ],
    columns=[
        TAU,
        Column("All", "panel.all.tau", remark="Every architecture that was predicted."),
        Column("Equal width", "panel.equal_width.tau"),
        Column("Equal width, lowest", "panel.equal_width.lowest", best=None, remark=TIES),
        Column("Equal width, highest", "panel.equal_width.highest", best=None),
        Column("Equal count", "panel.equal_count.tau"),
        Column("Equal count, lowest", "panel.equal_count.lowest", best=None, remark=TIES),
        Column("Equal count, highest", "panel.equal_count.highest", best=None),
        Column("Best 10 %", "panel.best_10_percent.tau"),
        Column("Best 30 %", "panel.best_30_percent.tau"),
        Column("n, all", "panel.all.count", digits=0, best=None, each_dataset=False),
        Column("n, equal width", "panel.equal_width.count", digits=0, best=None, each_dataset=False),
        Column("n, equal count", "panel.equal_count.count", digits=0, best=None, each_dataset=False),
        Column("n, best 10 %", "panel.best_10_percent.count", digits=0, best=None, each_dataset=False),
        Column("n, best 30 %", "panel.best_30_percent.count", digits=0, best=None, each_dataset=False),
        Column(
            "Error",
            "panel.equal_width.error",
            best=None,
            each_dataset=False,
            remark="The standard deviation of τ (equal width) over bootstrap samples of the architectures.",
        ),
        Column(
            "Ceiling",
            "panel.equal_width.ceiling",
            best=None,
            each_dataset=False,
            remark="τ (equal width) of a predictor that knows the truth without its noise.",
        ),
    ],
)
