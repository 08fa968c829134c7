"""Table K and Figure 3 of the paper: how far should decay ratios differ? γ′ = γ_max = 1/γ_min."""

from collections.abc import Sequence

from harness.study import Comparison, Computed, Figure, Request, Row, Series, Study

from ._words import OURS, TAU, decay_ratios

VALUES = (2, 3, 4)


def rates(requests: Sequence[Request]) -> list[Series]:
    """The learning rate over training for several decay ratios."""
    rate = requests[0].trial.config.optimiser.learning_rate
    times = [step / 100 for step in range(101)]
    return [
        Series(f"γ = {gamma:g}", times, [rate * (1 - time) ** gamma for time in times])
        for gamma in (0.25, 0.5, 1.0, 2.0, 4.0)
    ]


def ratios(requests: Sequence[Request]) -> list[Series]:
    """γ over the number of parameters, for each γ′."""
    return decay_ratios(requests, {f"γ′ = {value}": {"gamma_prime": float(value)} for value in VALUES})


study = Study(
    name="gamma_grid",
    title="CaLR's range of decay ratios, with MS",
    paper="Table K",
    rows=[
        Row(
            {"Method": "SPOS", "CaLR": ours, "MS": ours, "γ′": name},
            {"method.name": "spos"} | settings,
            shaded=name == "4",
        )
        for ours, name, settings in [
            (False, "–", {}),
            *((True, str(value), OURS | {"schedule.gamma_prime": float(value)}) for value in VALUES),
        ]
    ],
    group="Method",
    primary=[Comparison({"γ′": "4"}, {"γ′": other}) for other in ("–", "2")],
    chooses="γ′",
    columns=[TAU],
    figures=[
        Figure(
            "calr",
            "(a) Learning rates for several decay ratios; (b) the decay ratio over complexity",
            [
                Computed("(a)", "Progress t/T", "Learning rate", rates),
                Computed("(b)", "C(α), millions of parameters", "γ(α)", ratios),
            ],
            paper="Figure 3",
        )
    ],
)
