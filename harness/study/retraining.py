"""The configuration of retraining: what a found architecture is trained with as a stand-alone network. No torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from harness.components.option import added
from harness.components.preset import default_name
from harness.components.registries import AUGMENTATIONS, ORDERS, SCHEDULES
from harness.study.reader import Component, complete, require, require_precision

SHUFFLED = Component("shuffled")
"""The default order of samples."""


def complete_order(section: Any, where: str) -> None:
    """Check the section's order of samples; the default stays as it is, and out of the text."""
    if section.order != SHUFFLED:
        object.__setattr__(section, "order", complete((section.order,), ORDERS, where)[0])


def complete_group(section: Any, where: str) -> None:
    """Check the section's group of batch normalisation; a group of the whole batch is None."""
    group, batch = section.bn_group, section.batch_size
    require(
        group is None or (2 <= group <= batch and batch % group == 0),
        f"{where}.bn_group must divide {where}.batch_size, which is {batch}, into groups of at least 2 images, "
        f"or be null for the whole batch; not {group}",
    )
    if group == batch:
        object.__setattr__(section, "bn_group", None)


@dataclass(frozen=True)
class Teacher:
    """A network of timm whose answers and features the retrained network learns, too."""

    name: str
    """timm's name of the model, such as `tf_efficientnet_b3.ns_jft_in1k`."""
    weights: str = "released"
    """`released`: those that timm loads for the name. `random`: none, for tries. Else a file in `teachers/` of the data
    folder (`.safetensors`, or tensors stored by torch)."""
    sha256: str | None = None
    """The checksum of that file: it says which weights these are."""
    image_size: int | None = None
    """Images are scaled to this size for the teacher; null for the data set's size."""
    logits: float = 1.0
    """The weight of the cross-entropy with the teacher's answers."""
    features: float = 1.0
    """The weight of the smooth L1 distance between projected and the teacher's features."""
    stride: int = 16
    """The last feature maps of this stride are compared."""

    def __post_init__(self) -> None:
        file = self.weights not in ("released", "random")
        require(not file or bool(self.sha256), "retrain.teacher.weights is a file: give retrain.teacher.sha256, too")
        require(file or not self.sha256, f"retrain.teacher.sha256 is for a file of weights, not for {self.weights!r}")
        inside = self.weights not in ("", ".", "..") and not {"/", "\\"} & set(self.weights)
        require(inside, f"retrain.teacher.weights must be a file name in `teachers/`, not {self.weights!r}")
        for name in ("logits", "features"):
            require(getattr(self, name) >= 0, f"retrain.teacher.{name} must not be negative, not {getattr(self, name)}")
        size = self.image_size
        require(size is None or size >= 1, f"retrain.teacher.image_size must be at least 1, or null, not {size}")
        require(self.stride >= 1, f"retrain.teacher.stride must be at least 1, not {self.stride}")


@dataclass(frozen=True)
class Retraining:
    """How an architecture that was found is trained as a stand-alone network.

    The schedule is the default preset's unless one is named.
    """

    schedule: Component = Component("")
    """How the learning rate falls."""
    epochs: int = 200
    """Epochs of the network."""
    batch_size: int = 256
    """Images per step."""
    learning_rate: float = 0.1
    """The initial learning rate."""
    momentum: float = 0.9
    """The factor of momentum; 0 for none."""
    weight_decay: float = 5e-4
    """The factor of the weights in their decay."""
    with_valid: bool = False
    """Whether training also uses the ranking images: for benchmarks whose training set contains both."""
    augment: tuple[Component, ...] = added(())
    """Transforms and batch augmentations in this order, as in `train`."""
    network: Any = added(None)
    """Settings of the network that differ from the supernet's; null for the same."""
    order: Component = added(SHUFFLED)
    """The order of samples, as in `train`."""
    which: int = added(0)
    """Which of several found architectures is retrained, counted from 0, the best."""
    warmup_epochs: int = added(0)
    """Epochs over which the learning rate rises linearly to what the schedule says."""
    label_smoothing: float = added(0.0)
    """The share of the label that all classes get, evenly."""
    precision: str = added("float32")
    """The number format of the passes, as in `train`."""
    ema: float | None = added(None)
    """The decay of a moving average of the weights, which is then evaluated and kept; null for none."""
    teacher: Teacher | None = added(None)
    """A network whose answers and features are learned too; null for none."""
    nesterov: bool = added(True)
    """Whether momentum is Nesterov's."""
    clip: float | None = added(None)
    """The largest norm of all gradients together; null for no limit."""
    auxiliary: float = added(0.0)
    """The weight of the auxiliary head's loss, for networks that have one (`auxiliary`); 0 for none."""
    drop_path: float = added(0.0)
    """The probability of drop-path at the end of training, for networks that offer it; it rises linearly by epochs."""
    bn_group: int | None = added(None)
    """Images of a batch whose statistics batch normalisation takes together, as in `train`."""

    def __post_init__(self) -> None:
        named = self.schedule if self.schedule.name else replace(self.schedule, name=default_name("schedule.name"))
        object.__setattr__(self, "schedule", complete((named,), SCHEDULES, "retrain.schedule")[0])
        object.__setattr__(self, "augment", complete(self.augment, AUGMENTATIONS, "retrain.augment"))
        complete_order(self, "retrain.order")
        require(self.which >= 0, f"retrain.which must not be negative, not {self.which}")
        for name in ("epochs", "batch_size"):
            require(getattr(self, name) >= 1, f"retrain.{name} must be at least 1, not {getattr(self, name)}")
        complete_group(self, "retrain")
        require(self.learning_rate > 0, f"retrain.learning_rate must be above 0, not {self.learning_rate}")
        require(0 <= self.momentum < 1, f"retrain.momentum must be in [0, 1), not {self.momentum}")
        require(self.weight_decay >= 0, f"retrain.weight_decay must not be negative, not {self.weight_decay}")
        require(self.warmup_epochs >= 0, f"retrain.warmup_epochs must not be negative, not {self.warmup_epochs}")
        smoothing = self.label_smoothing
        require(0 <= smoothing < 1, f"retrain.label_smoothing must be in [0, 1), not {smoothing}")
        require_precision(self.precision, "retrain.precision")
        require(self.ema is None or 0 <= self.ema < 1, f"retrain.ema must be in [0, 1), or null, not {self.ema}")
        require(self.clip is None or self.clip > 0, f"retrain.clip must be above 0, or null, not {self.clip}")
        require(self.auxiliary >= 0, f"retrain.auxiliary must not be negative, not {self.auxiliary}")
        require(0 <= self.drop_path < 1, f"retrain.drop_path must be in [0, 1), not {self.drop_path}")
