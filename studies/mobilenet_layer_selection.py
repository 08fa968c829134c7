"""Table M of the paper: the layer whose operation decides the momentum buffer, the first or the last searchable one."""

from harness.study import Comparison, Row, Study

from ._mobilenet import CALR, SPACE, TOP1, found

study = Study(
    name="mobilenet_layer_selection",
    title="The layer that MS clusters by, on the MobileNet space",
    paper="Table M",
    space=SPACE,
    rows=[
        Row({"Method": "SPOS-S", "CaLR": False, "MS": False, "Layer selection": "–"}, found("S")),
        *(
            Row(
                {"Method": "SPOS-S", "CaLR": True, "MS": True, "Layer selection": layer},
                found("S") | CALR | {"clusters.name": rule},
                shaded=True,
            )
            for layer, rule in (("First layer", "first-layer"), ("Last layer", "last-layer"))
        ),
    ],
    group="Method",
    primary=[
        Comparison({"Layer selection": "First layer"}, {"Layer selection": other}) for other in ("–", "Last layer")
    ],
    chooses="The layer",
    columns=[TOP1],
)
