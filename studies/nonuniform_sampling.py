"""Table G of the paper: should larger subnets be sampled more often, instead of with larger rates? With MS.

FairNAS cannot prefer paths; see `methods/fairnas.py` for what it does instead.
"""

from harness.study import Comparison, Row, Study

from ._words import CALR, METHODS, MS, TAU

COSINE = {"schedule.name": "cosine"}
"""Explicit, since a preset may have another baseline for FairNAS."""

study = Study(
    name="nonuniform_sampling",
    title="Sampling in proportion to parameters against CaLR, with MS",
    paper="Table G",
    rows=[
        Row(
            {"Method": label, "Sampling": sampling, "Schedule": schedule},
            {"method.name": method} | MS | settings,
            shaded=schedule == "CaLR",
        )
        for method, label in METHODS
        for sampling, schedule, settings in [
            ("Uniform", "CS", COSINE),
            ("#Params", "CS", COSINE | {"sampler.name": "by-complexity"}),
            ("Uniform", "CaLR", CALR),
        ]
    ],
    group="Method",
    primary=[
        Comparison({"Schedule": "CaLR"}, {"Sampling": "#Params"}),
        Comparison({"Sampling": "#Params"}, {"Sampling": "Uniform", "Schedule": "CS"}),
    ],
    columns=[TAU],
)
