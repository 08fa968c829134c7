"""The methods that the paper compares with, as rows of studies. Not a study: its name begins with an underscore."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.study import Column

READING = "ShiftNAS (reading)"


@dataclass(frozen=True)
class Compared:
    """A method under its label, with the settings that its authors published for NAS-Bench-201."""

    label: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    separable: bool = True
    """Whether the paths of a step can be drawn from one cluster, as momentum separation needs."""
    differentiable: bool = False
    """Whether architecture parameters are learned: CaLR and MS do not apply, and nothing is ranked by accuracy."""
    rate: str = "optimiser.learning_rate"
    """The learning rate that tuning varies."""


COMPARED = (
    Compared("DARTS", "darts", differentiable=True),
    Compared("DARTS, second order", "darts", {"method.order": 2}, differentiable=True),
    Compared("GDAS", "gdas", differentiable=True),
    Compared("NSAS", "nsas", {"method.constraints": "random-and-opposite"}, separable=False),
    Compared("Cream", "cream"),
    # The outer rate of 1 means that the supernet moves to the mean of what the inner steps reach.
    Compared("SUMNAS", "sumnas", rate="method.inner_rate"),
    Compared("PA&DA", "pa-da"),
    Compared("GreedyNAS", "greedynas"),
    Compared(READING, "shiftnas-reading"),
    Compared("AlphaNet", "sandwich", separable=False),
    Compared("GM-NAS", "gm-nas"),
    Compared("DepS", "deps", separable=False),
    Compared("Supernet Shifting", "supernet-shifting"),
)
SAMPLING_BASED = tuple(one for one in COMPARED if not one.differentiable)

REMARKS = (
    "Learning rates under paper and official were chosen by the authors of NAS-Bench-201 for DARTS, GDAS and NSAS, of "
    "PA&DA for PA&DA and SUMNAS, of GM-NAS for GM-NAS, of CaLR for SPOS, FairNAS and FSNAS, all on CIFAR-10; Cream, "
    "GreedyNAS, ShiftNAS, AlphaNet, DepS and Supernet Shifting have that of SPOS, which nobody chose for them. Under "
    "tiny, demo and small one rate serves all and was tuned for none; that of SUMNAS in tiny and demo was chosen after "
    "three displayed seeds. The study tuning shows each method with a rate that was chosen by equal means.",
    f"{READING} is a reading of what is published of ShiftNAS, not a reimplementation: neither code nor settings are "
    "published.",
    "NSAS is the authors' variant for NAS-Bench-201, a random and an opposite path in the place of the archive. "
    "AlphaNet is the sandwich rule with in-place distillation. DepS is DεpS: the largest subnet trains alone for "
    "half of the training.",
    "DARTS and GDAS find an architecture themselves, and rank by the distribution that they learned. Supernet "
    "Shifting finds one, too, and ranks by accuracy. A pass of DARTS's "
    "mixture counts as one pass per operation.",
)

PASSES = Column(
    "Passes",
    "passes",
    digits=0,
    best=None,
    each_dataset=False,
    remark="Forward-backward passes of single paths in supernet training.",
)
SAMPLING = Column(
    "Sampling passes",
    "sampling_passes",
    digits=0,
    best=None,
    each_dataset=False,
    remark="Passes made only to choose paths, data or splits; the training time includes theirs.",
)


def settings_of(compared: Compared) -> dict[str, Any]:
    return {"method.name": compared.method, **compared.settings}
