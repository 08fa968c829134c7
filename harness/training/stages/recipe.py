"""What retraining may add to the stand-alone steps: smoothed labels, half precision, averaged weights, a teacher.

An auxiliary head is a submodule `auxiliary` of the network that gives logits in training. Drop-path is an attribute
`drop_path` of the network, the present probability; such a network says by `stochastic` that it draws random numbers.

The averaged weights are timm's `ModelEmaV3`; the teacher is a model of timm. timm comes with the extra `[imagenet]`.
Distillation of features is ours: the student's last feature map of a stride is projected by a 1×1 convolution to the
teacher's channels and compared by the smooth L1 distance.
"""

from __future__ import annotations

import hashlib
import importlib
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.nn import functional

from harness.components.dataset import DataSet
from harness.data.places import data_folder
from harness.data.randomness import step_randomness
from harness.errors import DataError, InvalidConfiguration
from harness.seeds import derive
from harness.study.retraining import Retraining, Teacher
from harness.training.precision import autocast, make_scaler, restore_scaler
from harness.training.stages.standalone import StandaloneTraining, initialise
from harness.training.weights import read


def timm() -> Any:
    """The library timm. Raises `InvalidConfiguration` with what to install where it is missing."""
    try:
        return importlib.import_module("timm")
    except ModuleNotFoundError as error:
        if error.name != "timm":
            raise
        raise InvalidConfiguration(
            "retrain.teacher and retrain.ema need timm, which is not installed: pip install 'nas-harness[imagenet]'"
        ) from error


class RecipeTraining(StandaloneTraining):
    """Stand-alone training with the additions of `Retraining`. Without any it is the plain one, bit by bit."""

    def equip(self, settings: Retraining, seed: int) -> None:
        """Add what the settings ask for. Called once, before the first step."""
        self.smoothing, self.precision = settings.label_smoothing, settings.precision
        self.clip, self.auxiliary, self.drop_path = settings.clip, settings.auxiliary, settings.drop_path
        if self.auxiliary:
            self.side = Tap(self.network, _offered(self.network, "auxiliary", "a second classifier"))
        if self.drop_path:
            setattr(self.network, _offered(self.network, "drop_path", "a probability"), self.drop_path)
            self.randomness = step_randomness(self.network, derive(seed, "standalone network"), self.device)
        self.scaler = make_scaler(settings.precision, self.device)
        self.average: Any = None
        self.lesson: Lesson | None = None
        if settings.ema is not None:
            timm()
            ema = importlib.import_module("timm.utils").ModelEmaV3
            self.average = ema(self.network, decay=settings.ema)
            self.average.requires_grad_(False)
        if settings.teacher is not None:
            self.lesson = Lesson(self.network, settings.teacher, self.dataset, seed, self.device)
            if own := list(self.lesson.parameters()):
                self.optimiser.add_param_group({"params": own})
        for group in self.optimiser.param_groups:
            group["nesterov"] = settings.nesterov and group["momentum"] > 0

    def advance(self) -> torch.Tensor:
        if self.drop_path:
            epoch = self.step // self.steps_per_epoch
            network: Any = self.network
            network.drop_path = self.drop_path * epoch / self.recipe.epochs
        return super().advance()

    @property
    def judged(self) -> torch.nn.Module:
        """The network that is evaluated and kept: the averaged one, if there is one."""
        return self.network if self.average is None else self.average.module

    def loss(self, logits: torch.Tensor, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = functional.cross_entropy(logits, labels, label_smoothing=self.smoothing)
        if self.auxiliary:
            own = functional.cross_entropy(self.side.output, labels, label_smoothing=self.smoothing)
            loss = loss + self.auxiliary * own
        return loss if self.lesson is None else loss + self.lesson(logits, images)

    def passes(self) -> AbstractContextManager[Any]:
        return autocast(self.precision, self.device)

    def descend(self, loss: torch.Tensor) -> None:
        with self.division.ranks.summing(self.trained()):
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if self.clip is not None:
            self.scaler.unscale_(self.optimiser)
            torch.nn.utils.clip_grad_norm_(self.trained(), self.clip)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        if self.average is not None:
            self.average.update(self.network)

    def state(self) -> dict[str, Any]:
        more: dict[str, Any] = {} if self.average is None else {"average": self.average.module.state_dict()}
        if self.scaler.is_enabled():
            more["scaler"] = self.scaler.state_dict()
        if self.lesson is not None:
            more["lesson"] = self.lesson.state_dict()
        return super().state() | more

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        super().restore(state, device)
        if self.scaler.is_enabled():
            restore_scaler(self.scaler, state)
        if self.average is not None:
            self.average.module.load_state_dict(state["average"])
        if self.lesson is not None:
            self.lesson.load_state_dict(state["lesson"])


def _offered(network: torch.nn.Module, name: str, what: str) -> str:
    """The name of something that the network must have. Raises `InvalidConfiguration` where it has none."""
    if getattr(network, name, None) is None:
        raise InvalidConfiguration(
            f"retrain.{name} needs a network with the attribute `{name}` ({what}); {type(network).__name__} has none. "
            f"See `harness explain retrain.network` for what the space can add, or leave retrain.{name} out"
        )
    return name


class Lesson(torch.nn.Module):
    """The terms that a teacher adds to the loss: of its logits and of its features.

    Only the projection is trained and stored; the teacher is the same whenever it is made.
    """

    def __init__(
        self, student: torch.nn.Module, settings: Teacher, dataset: DataSet, seed: int, device: torch.device
    ) -> None:
        super().__init__()
        self.settings = settings
        self._teacher = (make_teacher(settings, dataset, derive(seed, "teacher")).to(device),)  # no submodule of ours
        self.size = settings.image_size or dataset.image_size
        mean, std = (torch.tensor(values, device=device).view(1, -1, 1, 1) for values in (dataset.mean, dataset.std))
        to = _normalisation(self.teacher, dataset, device)
        # Images come normalised for the student, on the scale of bytes: (x·std + mean)/255 normalised for the teacher.
        self.scale, self.shift = std / (255 * to[1]), (mean / 255 - to[0]) / to[1]
        self.tap: Tap | None = None
        if settings.features:
            sides = (dataset.image_size, self.size)
            images = [torch.zeros(2, dataset.image_channels, side, side, device=device) for side in sides]
            own, its = find_map(student, images[0], settings), find_map(self.teacher, images[1], settings)
            self.tap, self.its_tap = Tap(student, own[0]), Tap(self.teacher, its[0])
            with torch.random.fork_rng(devices=[]):
                self.projection = torch.nn.Conv2d(own[1], its[1], 1)
            initialise(self.projection, derive(seed, "projection"))
            self.projection.to(device)

    @property
    def teacher(self) -> torch.nn.Module:
        return self._teacher[0]

    def forward(self, logits: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        """The terms for the student's logits of these images, which must be the student's last ones."""
        with torch.no_grad():
            seen = images * self.scale + self.shift
            if seen.shape[-1] != self.size:
                seen = functional.interpolate(seen, size=(self.size, self.size), mode="bilinear", antialias=True)
            answers = self.teacher(seen)
        terms = self.settings.logits * functional.cross_entropy(logits, answers.softmax(1))
        if self.tap is not None:
            mine = self.projection(self.tap.output)
            target = functional.adaptive_avg_pool2d(self.its_tap.output, mine.shape[-2:])
            terms = terms + self.settings.features * functional.smooth_l1_loss(mine, target.detach())
        return terms


class Tap:
    """Remembers the last output of a module, by its name in the network."""

    output: torch.Tensor

    def __init__(self, network: torch.nn.Module, name: str) -> None:
        network.get_submodule(name).register_forward_hook(self._keep)

    def _keep(self, module: torch.nn.Module, given: Any, output: torch.Tensor) -> None:
        self.output = output


def find_map(network: torch.nn.Module, images: torch.Tensor, settings: Teacher) -> tuple[str, int]:
    """The name of the last module whose output is a feature map of the stride, and its channels."""
    wanted = -(-images.shape[-1] // settings.stride)
    found: dict[str, int] = {}

    def note(name: str) -> Any:
        def hook(module: torch.nn.Module, given: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor) and output.dim() == 4 and output.shape[-1] == wanted:
                found.pop(name, None)
                found[name] = output.shape[1]

        return hook

    hooks = [module.register_forward_hook(note(name)) for name, module in network.named_modules() if name]
    was = network.training
    try:
        with torch.no_grad():
            network.eval()(images)
    finally:
        network.train(was)
        for one in hooks:
            one.remove()
    if not found:
        raise InvalidConfiguration(
            f"retrain.teacher.stride is {settings.stride}, but {type(network).__name__} has no feature map of "
            f"{wanted}×{wanted} for images of {images.shape[-1]} pixels: take another stride, or features=0"
        )
    return list(found.items())[-1]


def make_teacher(settings: Teacher, dataset: DataSet, seed: int) -> torch.nn.Module:
    """The teacher, frozen and in evaluation mode. Raises an error with the reason where it cannot be made."""
    library = timm()
    released = settings.weights == "released"
    options: dict[str, Any] = {"pretrained": released, "in_chans": dataset.image_channels}
    if not released:
        options["num_classes"] = dataset.classes
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        try:
            teacher: torch.nn.Module = library.create_model(settings.name, **options)
        except Exception as error:  # timm and its hub raise many kinds
            text = " ".join(str(error).split())[:300]
            raise InvalidConfiguration(f"retrain.teacher {settings.name!r} cannot be made by timm: {text}") from error
    if settings.weights not in ("released", "random"):
        _load(teacher, settings)
    if (count := int(teacher.num_classes)) != dataset.classes:  # type: ignore[arg-type]
        raise InvalidConfiguration(
            f"retrain.teacher {settings.name!r} knows {count} classes; {dataset.name} has {dataset.classes}"
        )
    return teacher.eval().requires_grad_(False)


def _load(teacher: torch.nn.Module, settings: Teacher) -> None:
    """Load weights from a file of the data folder, after its checksum was verified."""
    path = data_folder() / "teachers" / settings.weights
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f"the weights of retrain.teacher are missing: {path}") from error
    if found != settings.sha256:
        raise DataError(f"{path} has the SHA-256 {found}, not {settings.sha256} (retrain.teacher.sha256)")
    try:
        (weights,) = read(path)
        teacher.load_state_dict(weights)
    except (DataError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        text = " ".join(str(error).split())[:300]
        raise DataError(f"{path} does not hold the weights of {settings.name}: {text}") from error


def _normalisation(teacher: Any, dataset: DataSet, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and deviation of the images that the teacher was trained on, on the scale of 0 to 1."""
    config = getattr(teacher, "pretrained_cfg", None) or {}
    mean, std = config.get("mean") or (0.5,), config.get("std") or (0.5,)
    if len(mean) != dataset.image_channels:
        mean, std = ([sum(values) / len(values)] * dataset.image_channels for values in (mean, std))
    made = (torch.tensor([float(value) for value in values], device=device).view(1, -1, 1, 1) for values in (mean, std))
    return next(made), next(made)
