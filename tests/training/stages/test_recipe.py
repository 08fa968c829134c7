"""The recipe of retraining: each of its parts changes training, and all of them together resume identically."""

from __future__ import annotations

import hashlib
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from torch.nn import functional

from harness.cli import main
from harness.components.augmentation import ImageTransform
from harness.components.dataset import DataSet, Split
from harness.components.registries import AUGMENTATIONS, DATASETS
from harness.data.augmentations import EIGENVALUES, EIGENVECTORS
from harness.data.randomness import seeded
from harness.errors import DataError, InvalidConfiguration
from harness.study.configuration import RunConfig
from harness.study.expansion import expand
from harness.study.layout import Column, Row
from harness.study.retraining import Teacher
from harness.study.study import Study
from harness.training.cost import Meter
from harness.training.stages.recipe import Lesson, RecipeTraining, make_teacher
from harness.training.stages.retrain import retrain
from harness.training.trial import Outcome, retrain_trial
from tests.stores.test_checkpoints import Record, Stop, checkpoint, weights

ARCHITECTURE = (3, 1, 2, 3, 4, 1)
TEACHER = {"name": "test_efficientnet", "weights": "random", "image_size": 32}
WHOLE: dict[str, Any] = {
    "warmup_epochs": 1,
    "label_smoothing": 0.1,
    "ema": 0.9,
    "teacher": TEACHER,
    "augment": [
        {"name": "resized-crop", "interpolation": "bicubic"},
        "flip",
        "auto-augment",
        "lighting",
        {"name": "erasing", "fill": "mean"},
        {"name": "mixup", "alpha": 0.2},
    ],
}


def coloured() -> DataSet:
    """Made-up images of 3 channels and 16 pixels, in 10 classes."""
    rng = np.random.default_rng(0)
    train, valid, test = (
        Split(rng.integers(0, 256, (count, 3, 16, 16), dtype=np.uint8), rng.integers(0, 10, count))
        for count in (20, 10, 30)
    )
    return DataSet("coloured", 10, train, valid, test, mean=(120.0, 110.0, 100.0), std=(60.0, 61.0, 62.0))


def configured(**retraining: Any) -> RunConfig:
    network = {"width": 4, "depth": 1}
    return RunConfig.from_json({"network": network, "retrain": {"epochs": 5, "batch_size": 16, **retraining}})


def trained(**retraining: Any) -> torch.Tensor:
    """All weights after the training."""
    networks, _, _ = retrain(configured(**retraining), ARCHITECTURE, coloured(), Meter(torch.device("cpu")))
    return torch.cat([one.flatten() for one in networks.networks[0].parameters()])


@pytest.fixture(scope="module")
def plain() -> torch.Tensor:
    return trained()


@pytest.mark.parametrize(
    "part",
    [
        {"warmup_epochs": 1},
        {"label_smoothing": 0.1},
        {"ema": 0.9},
        {"precision": "bfloat16"},
        {"nesterov": False},
        {"clip": 0.1},
        {"augment": ["cutout"]},
        {"teacher": {**TEACHER, "features": 0.0}},
        {"teacher": {**TEACHER, "logits": 0.0}},
        *({"augment": [one]} for one in WHOLE["augment"]),
    ],
    ids=lambda part: str(next(iter(part.values())))[:40],
)
def test_each_part_changes_the_training(part: dict[str, Any], plain: torch.Tensor) -> None:
    changed = trained(**part)
    assert torch.isfinite(changed).all() and not torch.equal(changed, plain)


def test_both_terms_of_the_teacher_count() -> None:
    both, logits = trained(teacher=TEACHER), trained(teacher={**TEACHER, "features": 0.0})
    assert not torch.equal(both, logits)


def training_of(**retraining: Any) -> RecipeTraining:
    from harness.components.registries import SPACES
    from harness.training.stages.standalone import StandaloneRecipe

    space, config = SPACES.get("nasbench201")(), configured(**retraining)
    made = RecipeTraining(
        space, ARCHITECTURE, coloured(), StandaloneRecipe(epochs=5, batch_size=16), 0, network=config.network
    )
    assert config.retrain is not None
    made.equip(config.retrain, 0)
    return made


def test_smoothed_labels_are_those_of_the_definition() -> None:
    logits, labels = torch.randn(4, 10), torch.tensor([1, 2, 3, 4])
    target = 0.9 * functional.one_hot(labels, 10) + 0.1 / 10
    loss = training_of(label_smoothing=0.1).loss(logits, torch.zeros(1), labels)
    assert loss.item() == pytest.approx(-(target * logits.log_softmax(1)).sum(1).mean().item(), rel=1e-5)


def test_the_average_of_the_weights_is_kept_and_judged() -> None:
    training = training_of(ema=0.5)
    (name, first), *_ = training.network.named_parameters()
    expected = first.detach().clone()
    for _ in range(3):
        training.advance()
        expected = 0.5 * expected + 0.5 * dict(training.network.named_parameters())[name].detach()
    kept = dict(training.judged.named_parameters())[name]
    assert torch.allclose(kept, expected, atol=1e-6) and training.judged is not training.network


def test_the_rate_rises_over_the_warm_up() -> None:
    """The first step of a warm-up has a rate of zero, later ones rise in a line to the schedule's."""
    rates = []

    class Watched(RecipeTraining):
        def descend(self, loss: torch.Tensor) -> None:
            rates.append(self.optimiser.param_groups[0]["lr"])
            super().descend(loss)

    import harness.training.stages.retrain as stage

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "RecipeTraining", Watched)
        trained(warmup_epochs=2, epochs=4)
    cosine = [0.5 * (1 + math.cos(math.pi * step / 8)) for step in range(8)]
    assert rates == pytest.approx([0.1 * min(1, step / 4) * cosine[step] for step in range(8)])


def test_features_are_projected_to_the_teachers_and_learned() -> None:
    training = training_of(teacher=TEACHER)
    lesson = training.lesson
    assert lesson is not None and lesson.projection.weight.shape[2:] == (1, 1)
    before = lesson.projection.weight.detach().clone()
    training.advance()
    assert not torch.equal(lesson.projection.weight, before)
    assert not any(one.requires_grad for one in lesson.teacher.parameters()) and not lesson.teacher.training
    assert set(lesson.state_dict()) == {"projection.weight", "projection.bias"}  # the teacher is not stored


def test_the_teacher_sees_images_as_it_was_trained_on_them() -> None:
    dataset = coloured()
    teacher = Teacher("test_efficientnet", "random", features=0.0)
    lesson = Lesson(training_of().network, teacher, dataset, 0, torch.device("cpu"))
    bytes_ = torch.from_numpy(dataset.train.images[:2]).float()
    ours = (bytes_ - torch.tensor(dataset.mean).view(1, 3, 1, 1)) / torch.tensor(dataset.std).view(1, 3, 1, 1)
    config = lesson.teacher.pretrained_cfg
    mean, std = (torch.tensor(config[key]).view(1, 3, 1, 1) for key in ("mean", "std"))  # type: ignore[index]
    assert torch.allclose(ours * lesson.scale + lesson.shift, (bytes_ / 255 - mean) / std, atol=1e-5)


def bound(name: str, **options: Any) -> ImageTransform:
    transform: ImageTransform = AUGMENTATIONS.get(name)(**options).bind(coloured())
    return transform


def test_light_is_added_along_the_principal_components() -> None:
    image = torch.full((3, 4, 4), 128, dtype=torch.uint8)
    with seeded(3):
        lit = bound("lighting", deviation=0.1)(image)
    with seeded(3):
        amounts = torch.randn(3) * 0.1
    light = torch.zeros(3)
    for amount, value, vector in zip(amounts, EIGENVALUES, EIGENVECTORS, strict=True):
        light += 255 * amount * value * torch.tensor(vector)
    assert torch.equal(lit[:, 0, 0], (128 + light).round().to(torch.uint8)) and lit.dtype == torch.uint8
    assert (lit == lit[:, :1, :1]).all() and not torch.equal(lit, image)
    vectors = torch.tensor(EIGENVECTORS)
    assert torch.allclose(vectors @ vectors.T, torch.eye(3), atol=2e-3)


def test_erasing_fills_with_black_or_with_the_mean_colour() -> None:
    image = torch.full((3, 16, 16), 200, dtype=torch.uint8)
    for fill, colour in (("black", [0, 0, 0]), ("mean", [120, 110, 100])):
        with seeded(0):
            erased = bound("erasing", probability=1.0, fill=fill)(image)
        changed = (erased != image).any(0)
        assert 0.01 <= changed.float().mean() <= 0.4
        assert (erased[:, changed] == torch.tensor(colour)[:, None]).all()


def pieces(folder: Path, config: RunConfig, saves: int) -> tuple[Outcome, int]:
    for number in range(1, 50):
        with suppress(Stop):
            kept = checkpoint(folder, config, saves)
            return retrain_trial(config, ARCHITECTURE, watch=Record().watch(), checkpoint=kept), number
    raise AssertionError("it does not get on")


def test_cutout_is_a_square_that_may_reach_over_the_border() -> None:
    cut = AUGMENTATIONS.get("cutout")(length=4).bind(coloured())
    images, labels = torch.ones(500, 3, 8, 8), torch.arange(500)
    with seeded(0):
        changed, same = cut(images, labels)
    holes = changed == 0
    assert torch.equal(same, labels) and bool((holes == holes[:, :1]).all()) and bool(images.all())
    heights, widths = (holes[:, 0].any(dim).sum(1) for dim in (2, 1))
    assert set(heights.tolist()) == set(widths.tolist()) == {2, 3, 4}
    assert torch.equal(holes[:, 0].sum((1, 2)), heights * widths)
    with pytest.raises(InvalidConfiguration, match="cutout.length must be from 1 to 1000, not 0"):
        AUGMENTATIONS.get("cutout")(length=0)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_the_whole_recipe_resumes_identically(precision: str, tmp_path: Path, toy_project: Path) -> None:
    if "coloured" not in DATASETS:
        DATASETS.register("coloured")(coloured)
    document = {**configured(**WHOLE, precision=precision).json(), "dataset": "coloured", "benchmark": None}
    config = RunConfig.from_json(document)
    whole = retrain_trial(config, ARCHITECTURE)
    resumed, number = pieces(tmp_path, config, saves=3)
    assert number > 2 and resumed.result == whole.result and weights(resumed) == weights(whole)
    assert whole.cost["passes"] == 10


def test_top_5_counts_the_first_five_answers() -> None:
    networks, top1, top5 = retrain(configured(epochs=1), ARCHITECTURE, coloured(), Meter(torch.device("cpu")))
    test = coloured()
    images = (torch.from_numpy(test.test.images).float() - torch.tensor(test.mean).view(1, 3, 1, 1)) / torch.tensor(
        test.std
    ).view(1, 3, 1, 1)
    with torch.no_grad():
        order = networks.networks[0].eval()(images).view(-1, 10).argsort(1, descending=True)
    labels = torch.from_numpy(test.test.labels)[:, None]
    assert top1 == pytest.approx(100 * (order[:, :1] == labels).any(1).float().mean().item())
    assert top5 == pytest.approx(100 * (order[:, :5] == labels).any(1).float().mean().item()) and top5 > top1


def test_weights_of_a_teacher_come_from_a_file_with_its_checksum(data: Path) -> None:
    stored = timm.create_model("test_efficientnet", num_classes=10).state_dict()
    folder = data / "teachers"
    folder.mkdir(parents=True)
    torch.save(stored, folder / "mine.pt")
    checksum = hashlib.sha256((folder / "mine.pt").read_bytes()).hexdigest()
    loaded = make_teacher(Teacher("test_efficientnet", "mine.pt", checksum), coloured(), 0).state_dict()
    assert all(torch.equal(loaded[key], stored[key]) for key in stored)
    with pytest.raises(DataError, match="has the SHA-256"):
        make_teacher(Teacher("test_efficientnet", "mine.pt", "0" * 64), coloured(), 0)
    with pytest.raises(DataError, match="missing"):
        make_teacher(Teacher("test_efficientnet", "other.pt", checksum), coloured(), 0)
    torch.save({"other": torch.zeros(1)}, folder / "mine.pt")
    checksum = hashlib.sha256((folder / "mine.pt").read_bytes()).hexdigest()
    with pytest.raises(DataError, match="does not hold the weights of test_efficientnet"):
        make_teacher(Teacher("test_efficientnet", "mine.pt", checksum), coloured(), 0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"teacher": {"weights": "random"}}, "retrain.teacher.name is missing"),
        ({"teacher": {"name": "x", "weights": "a/b.pt", "sha256": "0"}}, "file name in `teachers/`"),
        ({"teacher": {"name": "x", "weights": "mine.pt"}}, "give retrain.teacher.sha256"),
        ({"teacher": {"name": "x", "logits": -1}}, "retrain.teacher.logits must not be negative"),
        ({"ema": 1.0}, r"retrain.ema must be in \[0, 1\)"),
        ({"label_smoothing": 1.0}, "retrain.label_smoothing"),
        ({"precision": "half"}, "retrain.precision is 'half'; allowed: float32"),
        ({"augment": [{"name": "erasing", "fill": "white"}]}, "erasing.fill is 'white'; allowed: black, mean"),
    ],
)
def test_wrong_settings_are_refused_before_anything_runs(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        configured(**wrong)


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        ({"name": "no_such_network", "weights": "random"}, "cannot be made by timm: Unknown model"),
        ({**TEACHER, "stride": 3}, "no feature map of 6×6 for images of 16 pixels"),
    ],
)
def test_a_teacher_that_cannot_teach_is_refused(teacher: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        trained(teacher=teacher)


def test_without_timm_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "timm", None)
    with pytest.raises(InvalidConfiguration, match=r"pip install 'nas-harness\[imagenet\]'"):
        trained(ema=0.9)


def test_studies_and_overrides_set_the_recipe() -> None:
    row = Row({"": ""}, {"retrain.epochs": 2, "retrain.teacher.name": "test_efficientnet", "retrain.ema": 0.9})
    study = Study("recipe", "Recipe", [row], [Column("Retrained", "retrained_accuracy")])
    from harness.components.preset import get_preset

    (request, *_) = expand(study, get_preset("tiny"), overrides={"retrain.teacher.stride": 8})
    config = request.trial.config.retrain
    assert config is not None and config.teacher == Teacher("test_efficientnet", stride=8) and config.ema == 0.9
    assert main(["plan", "retrain_scheduler", "--preset", "tiny", "with", "retrain.teacher.size=3"]) == 2
