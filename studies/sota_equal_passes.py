"""The methods of `sota`, all with the passes of SPOS. Presets of equal passes share the trials of `sota`."""

from harness.study import Study

from ._compared import PASSES, REMARKS, SAMPLING
from ._words import HOURS, MEMORY, PREDICTED, TAU, TOP1
from .sota import BASELINES, TRAINED

study = Study(
    name="sota_equal_passes",
    title="Search performance of all methods at equal passes",
    rows=[*TRAINED.values(), *BASELINES],
    columns=[TOP1, PREDICTED, TAU, PASSES, SAMPLING, HOURS, MEMORY],
    equal_passes=True,
    remarks=REMARKS,
)
