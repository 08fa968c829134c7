"""Table J of the paper: is momentum needed at all? β = 0, β = 0.9, and MS."""

from harness.study import Comparison, Row, Study

from ._words import METHODS, MS, TAU

study = Study(
    name="no_momentum",
    title="Training without momentum, with it, and with MS",
    paper="Table J",
    rows=[
        Row({"Method": label, "MS": ms, "β": beta}, {"method.name": method} | settings, shaded=ms)
        for method, label in METHODS
        for ms, beta, settings in [
            (False, "0", {"optimiser.momentum": 0.0}),
            (False, "0.9", {}),
            (True, "0.9", MS),
        ]
    ],
    group="Method",
    primary=[
        Comparison({"MS": False, "β": "0.9"}, {"MS": False, "β": "0"}),
        Comparison({"MS": True}, {"MS": False, "β": "0.9"}),
    ],
    columns=[TAU],
)
