"""Table F of the paper: complexity by parameters or by FLOPs?"""

from harness.study import Comparison, Row, Study

from ._words import METHODS, OURS, TAU

study = Study(
    name="complexity_metric",
    title="What CaLR takes for the complexity of a subnet",
    paper="Table F",
    rows=[
        Row(
            {"Method": label, "CaLR": ours, "MS": ours, "C(α)": name},
            {"method.name": method} | settings,
            shaded=name == "Params",
        )
        for method, label in METHODS
        for ours, name, settings in [
            (False, "–", {}),
            (True, "Params", OURS),
            (True, "FLOPs", OURS | {"schedule.complexity": "flops"}),
        ]
    ],
    group="Method",
    primary=[Comparison({"C(α)": "Params"}, {"C(α)": other}) for other in ("–", "FLOPs")],
    chooses="C(α)",
    columns=[TAU],
)
