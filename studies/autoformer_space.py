"""Table C of the paper: AutoFormer ± CaLR and MS, searched under three limits of parameters, without retraining."""

from harness.study import Column, Comparison, Figure, FromPreset, Row, SearchPlot, Study

from ._mobilenet import OURS, SIZES
from ._words import HOURS, MEMORY

LIMIT = "Limit"
"""The label of the limits of parameters, which presets define: 6, 7.5 and 9 M in the paper."""


study = Study(
    name="autoformer_space",
    title="Architectures found in the AutoFormer space",
    paper="Table C",
    space="autoformer",
    rows=[
        Row(
            {"Method": "Autoformer", LIMIT: size, "Ours": ours},
            {
                "method.name": "autoformer",
                "search.name": "evolution",
                "search.limits.parameters": [None, FromPreset(size)],
                "search.test_accuracy": True,
                **(OURS if ours else {}),
            },
            shaded=ours,
        )
        for size in SIZES
        for ours in (False, True)
    ],
    group=LIMIT,
    primary=[Comparison({"Ours": True}, {"Ours": False})],
    columns=[
        Column(
            "# Params (M)",
            "found_parameters",
            digits=3,
            best=None,
            scale=1e-6,
            remark="The limits S, M and L are 6, 7.5 and 9 M in the paper; other presets have their own.",
        ),
        Column(
            "Top-1 Acc. (%)",
            "found_accuracy",
            digits=2,
            remark="On the test images, with the weights of the supernet: nothing is retrained.",
        ),
        MEMORY,
        HOURS,
    ],
    figures=[
        Figure(
            "searches",
            "Every architecture that the searches scored, first seed",
            [
                SearchPlot(
                    f"Autoformer-{size}{' + Ours' * ours}",
                    {"Method": "Autoformer", LIMIT: size, "Ours": ours},
                    count="parameters",
                    x="Parameters (M)",
                    scale=1e-6,
                )
                for size in SIZES
                for ours in (False, True)
            ],
        )
    ],
)
