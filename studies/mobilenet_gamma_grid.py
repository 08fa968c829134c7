"""Table L of the paper: CaLR's γ' on the MobileNet space, SPOS under the smallest limit, with a shorter retraining."""

from harness.study import Comparison, Row, Study

from ._mobilenet import OURS, SPACE, TOP1, found

study = Study(
    name="mobilenet_gamma_grid",
    title="γ' on the MobileNet space",
    paper="Table L",
    space=SPACE,
    rows=[
        Row({"Method": "SPOS-S", "CaLR": False, "MS": False, "γ′": "–"}, found("S")),
        *(
            Row(
                {"Method": "SPOS-S", "CaLR": True, "MS": True, "γ′": f"{gamma:g}"},
                found("S") | OURS | {"schedule.gamma_prime": gamma},
                shaded=True,
            )
            for gamma in (2.0, 3.0, 4.0)
        ),
    ],
    group="Method",
    primary=[Comparison({"γ′": "3"}, {"γ′": other}) for other in ("–", "2")],
    chooses="γ′",
    columns=[TOP1],
)
