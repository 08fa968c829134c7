"""Table E and Figure C of the paper: which function g of complexity should set the decay ratio? With MS."""

from collections.abc import Sequence

from harness.study import Comparison, Computed, Figure, Request, Row, Series, Study

from ._words import METHODS, MS, TAU, decay_ratios

FUNCTIONS = [("eˣ", "exp"), ("x", "linear"), ("log x", "log")]


def ratios(requests: Sequence[Request]) -> list[Series]:
    """γ over the number of parameters, for each g."""
    return decay_ratios(requests, {f"g(x) = {label}": {"function": function} for label, function in FUNCTIONS})


study = Study(
    name="decay_function",
    title="Functions g(x) that give CaLR's decay ratio, with MS",
    paper="Table E",
    rows=[
        Row(
            {"Method": label, "CaLR": calr, "MS": True, "g(x)": g},
            {"method.name": method} | MS | settings,
            shaded=g == "log x",
        )
        for method, label in METHODS
        for calr, g, settings in [
            (False, "–", {}),
            *((True, g, {"schedule.name": "calr", "schedule.function": function}) for g, function in FUNCTIONS),
        ]
    ],
    group="Method",
    primary=[Comparison({"g(x)": "log x"}, {"g(x)": other}) for other in ("–", "x")],
    chooses="g(x)",
    columns=[TAU],
    figures=[
        Figure(
            "decay_ratio",
            "Decay ratio over complexity for each g(x); e to the number of millions",
            [Computed("", "C(α), millions of parameters", "γ(α)", ratios)],
            paper="Figure C",
        )
    ],
)
