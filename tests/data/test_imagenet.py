"""ImageNet in torchvision's folders: the index, the fingerprint, damaged images, and the decoded form."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import functional

from harness.cli import main
from harness.components.dataset import SPLITS, inputs_of
from harness.components.registries import AUGMENTATIONS, DATASETS
from harness.data import decoded as decoding
from harness.data.decoded import IMAGENET_256
from harness.data.imagenet import IMAGENET, ImageNet, pixels
from harness.data.loading import EvaluationBatches, evaluation_batches, loader_for
from harness.data.places import cache_folder
from harness.errors import DamagedImage, DataError

CLASSES = ("n01440764", "n01443537", "n02102040")


def write(path: Path, seed: int, size: tuple[int, int] = (60, 45), mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    coarse.resize(size, Image.Resampling.BILINEAR).convert(mode).save(path, "JPEG", quality=90)


@pytest.fixture
def tree(data: Path) -> Path:
    """Made-up images in the real layout: 12 per class to train, 4 to test, of different sizes."""
    root = data / "imagenet"
    seed = itertools.count()
    for name in CLASSES:
        for number in range(12):  # of several sizes
            write(root / "train" / name / f"{name}_{number}.JPEG", next(seed), (50 + number, 40 + 2 * number))
        for number in range(4):
            write(root / "val" / name / f"ILSVRC2012_val_{number:08d}.JPEG", next(seed))
    return root


def small(decoded: bool = False) -> Any:
    """The data set at a size that is quick, otherwise as it is."""
    kind = type(IMAGENET_256) if decoded else ImageNet
    return kind("imagenet", image_size=28, **({"side": 32} if decoded else {}))


def damage(tree: Path, split: str, number: int, content: bytes | None = None) -> Path:
    """Break an image of that split; its first half by default, as an interrupted copy leaves it."""
    source = getattr(small()(), split).source
    path = tree / os.fsdecode(source.names[number])
    path.write_bytes(path.read_bytes()[:400] if content is None else content)
    return path


def test_the_splits_and_their_images(tree: Path) -> None:
    dataset = IMAGENET()
    assert [len(getattr(dataset, split)) for split in SPLITS] == [30, 6, 12]  # a fifth of each class is held out
    assert (dataset.classes, dataset.train.shape) == (3, (3, 224, 224))
    names = {split: [os.fsdecode(one) for one in getattr(dataset, split).source.names] for split in SPLITS}
    assert len(set(itertools.chain(*names.values()))) == 48
    for split, found in names.items():
        for number, name in enumerate(found):
            image, label = getattr(dataset, split).sample(number)
            assert label == CLASSES.index(name.split("/")[1]) and image.dtype == np.uint8
            assert np.array_equal(image, pixels(tree / name))
        assert {name.split("/")[1] for name in found[:6]} != {CLASSES[0]}  # not in the order of the classes
    assert sorted(name.split("/")[1] for name in names["valid"]) == sorted(CLASSES * 2)
    assert "imagenet" in DATASETS and "imagenet-256" in DATASETS


def test_planning_knows_the_size_of_images_without_an_index(tree: Path) -> None:
    assert inputs_of("imagenet") == {"classes": 3, "image_channels": 3, "image_size": 224}
    assert not cache_folder().exists() and IMAGENET().inputs == inputs_of("imagenet")
    (tree / "train").rename(tree / "elsewhere")
    assert inputs_of("imagenet") is None


def test_planning_decodes_nothing_and_looks_at_the_folders_a_few_times(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find, looks = ImageNet.find, itertools.count()

    def counted(self: ImageNet) -> Any:
        next(looks)
        return find(self)

    monkeypatch.setattr(ImageNet, "find", counted)
    monkeypatch.chdir(tmp_path)  # where there is no store yet
    paper = ["--preset", "paper", "with", "dataset=imagenet-256"]
    assert main(["plan", "mobilenet_main", *paper, "rank.images=6"]) == 0
    assert "60 waiting" in (out := capsys.readouterr().out) and "passes over" in out
    assert next(looks) < 10
    assert main(["plan", "mobilenet_main", *paper, "rank.images=7"]) == 2
    assert "rank.images is 7; imagenet-256 has 6 to rank on" in capsys.readouterr().err
    assert list(cache_folder().iterdir()) and not list(cache_folder().rglob("train-0*"))


def test_evaluation_scales_and_cuts_the_centre(tree: Path) -> None:
    dataset = small()()
    (images, _), *_ = evaluation_batches(dataset, dataset.test, 4)
    first = torch.from_numpy(dataset.test.sample(0)[0])
    bicubic = functional.InterpolationMode.BICUBIC
    scaled = functional.resize(first, [32, round(32 / 45 * 60)], interpolation=bicubic, antialias=True)
    expected = functional.center_crop(scaled, [28, 28]).float()
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (dataset.mean, dataset.std))
    assert torch.allclose(images[0], (expected - mean) / std, atol=1e-5)


def test_images_of_other_modes_are_read_as_three_channels(tree: Path, tmp_path: Path) -> None:
    for mode in ("L", "CMYK"):
        write(tmp_path / "other.JPEG", 3, mode=mode)
        assert pixels(tmp_path / "other.JPEG").shape == (3, 45, 60)
    Image.new("RGB", (9, 7), (1, 2, 3)).save(tmp_path / "png.JPEG", "PNG")  # ImageNet has one of these
    assert pixels(tmp_path / "png.JPEG")[:, 0, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize("content", [b"", b"not an image", None])
def test_an_image_that_cannot_be_read_is_named(content: bytes | None, tree: Path) -> None:
    path = damage(tree, "train", 0, content)
    with pytest.raises(DamagedImage, match=path.name):
        pixels(path)


def train_batches(dataset: Any, count: int, workers: int, first: int = 0) -> list[Any]:
    augment = [AUGMENTATIONS.get("resized-crop")(), AUGMENTATIONS.get("flip")()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_DATA_WORKERS", str(workers))
        loader = loader_for(dataset, "train", 8, 5, augment=augment)
        found = [loader.batch(step) for step in range(first, first + count)]
        loader.close()
    return found


@pytest.mark.parametrize("decoded", [False, True])
def test_batches_do_not_depend_on_workers_or_on_where_training_resumes(decoded: bool, tree: Path) -> None:
    dataset = small(decoded)()
    alone, helped = train_batches(dataset, 6, 0), train_batches(dataset, 6, 2)
    resumed = train_batches(dataset, 3, 2, first=3)
    for one, other in itertools.chain(zip(alone, helped, strict=True), zip(alone[3:], resumed, strict=True)):
        assert all(torch.equal(mine, its) for mine, its in zip(one, other, strict=True))
    assert sorted(torch.cat([one.indices for one in alone[:4]]).tolist()) == list(range(30))
    assert not torch.equal(alone[0].images, alone[4].images)  # another epoch


@pytest.mark.parametrize("decoded", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_image_is_left_out_and_named(
    decoded: bool, workers: int, tree: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = damage(tree, "train", 3)
    batches = train_batches(small(decoded)(), 8, workers)
    assert [len(one.labels) for one in batches[:4]].count(8) == 2 and sum(len(one.labels) for one in batches) == 58
    assert all(len(one.images) == len(one.labels) == len(one.indices) for one in batches)
    assert 3 not in torch.cat([one.indices for one in batches]).tolist()
    said = capfd.readouterr().err
    assert f"left out: {path}" in said


def test_too_many_damaged_images_end_the_trial(tree: Path) -> None:
    damage(tree, "train", 3)
    damage(tree, "train", 7)
    with pytest.raises(DataError, match=r"2 of 30 images cannot be read, more than 0\.1%; the last: .*JPEG"):
        train_batches(small()(), 8, 0)


def test_accuracies_are_over_the_images_that_can_be_read(tree: Path) -> None:
    damage(tree, "valid", 1)
    dataset = small()()
    batches = EvaluationBatches(dataset, dataset.valid, 4)
    assert [len(labels) for labels in batches.labels] == [3, 2]
    assert [len(images) for images, _ in evaluation_batches(dataset, dataset.valid, 4)] == [3, 2]


@pytest.mark.parametrize("decoded", [False, True])
def test_the_last_batch_may_be_a_single_damaged_image(decoded: bool, tree: Path) -> None:
    damage(tree, "valid", 5)
    dataset = small(decoded)()
    assert [len(labels) for labels in EvaluationBatches(dataset, dataset.valid, 5).labels] == [5]
    damage(tree, "valid", 0)
    with pytest.raises(DataError, match=r"no image can be read: .*JPEG"):
        EvaluationBatches(small()(), small()().valid.head(1), 5)


def test_damaged_images_are_counted_over_all_pieces_when_decoding(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "PIECE", 8)
    damage(tree, "train", 3)
    damage(tree, "train", 12)
    with pytest.raises(DataError, match=r"2 of 30 images cannot be read"):
        small(decoded=True)()


def test_a_piece_may_end_with_a_damaged_image(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "PIECE", 29)
    decoding._piece.cache_clear()
    damage(tree, "train", 29)
    with pytest.raises(DamagedImage, match="JPEG"):
        small(decoded=True)().train.sample(29)
    decoding._piece.cache_clear()


def test_the_fingerprint_follows_names_sizes_and_contents(tree: Path) -> None:
    def fingerprint() -> str:
        return ImageNet("imagenet").fingerprint()  # a new object remembers nothing

    first = fingerprint()
    assert fingerprint() == first
    assert type(IMAGENET_256)("imagenet-256").fingerprint() != first  # other pixels
    changed = tree / "train" / CLASSES[0] / "added.JPEG"
    write(changed, 99)
    second = fingerprint()
    assert second != first
    changed.unlink()
    assert fingerprint() == first
    damage(tree, "train", 0, b"x" * 500)
    os.utime(tree / "train" / CLASSES[0])  # else the folders have not changed, and `data check` must find it
    os.utime(tree / "train" / CLASSES[1])
    os.utime(tree / "train" / CLASSES[2])
    assert fingerprint() != first


def test_the_index_is_made_once_and_checked_on_request(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = ImageNet("imagenet")
    first = dataset.fingerprint()
    damage(tree, "train", 0)  # in place: no folder changes
    assert ImageNet("imagenet").fingerprint() == first
    assert main(["data", "check", "imagenet"]) == 0
    said = capsys.readouterr().out
    assert "changed in place" in said and "30 train, 6 valid, 12 test" in said and "imagenet: verified" in said
    assert ImageNet("imagenet").fingerprint() != first


def test_what_is_missing_or_wrong_is_said(data: Path, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "val" / CLASSES[0]).rename(tree / "val" / "n99999999")
    with pytest.raises(DataError, match="n01440764: missing, while train has that class"):
        IMAGENET()
    (tree / "val").rename(tree / "elsewhere")
    with pytest.raises(DataError, match=r"looked for .*train or .*val; put torchvision's folders"):
        IMAGENET()
    assert main(["data", "list"]) == 0 and "torchvision's folders" in capsys.readouterr().out


def test_decoded_images_are_the_scaled_ones_and_are_made_once(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "PIECE", 8)
    decoding._piece.cache_clear()
    made = small(decoded=True)
    dataset, streamed = made(), small()()
    image, label = dataset.train.sample(11)
    original = torch.from_numpy(streamed.train.sample(11)[0])
    scale = 32 / min(original.shape[1:])
    size = [round(side * scale) for side in original.shape[1:]]
    bicubic = functional.InterpolationMode.BICUBIC
    scaled = functional.resize(original, size, interpolation=bicubic, antialias=True)
    expected = functional.center_crop(scaled, [32, 32])
    assert np.array_equal(image, expected.numpy()) and label == streamed.train.sample(11)[1]
    # Evaluation cuts the same part of the scaled image that it cuts of the original.
    ours, theirs = (next(iter(evaluation_batches(one, one.test, 4)))[0] for one in (dataset, streamed))
    assert torch.equal(ours, theirs)
    files = sorted((made.entry(made.found()).with_name(made.entry(made.found()).name + "-32")).glob("*.npy"))
    assert len(files) == 4 + 1 + 2
    before = [file.stat().st_mtime_ns for file in files]
    files[1].unlink()  # an interrupted build
    decoding._piece.cache_clear()
    assert np.array_equal(made().train.sample(11)[0], image)
    assert [file.stat().st_mtime_ns == time for file, time in zip(files, before, strict=True)].count(False) == 1
    assert json.loads(files[1].with_suffix(".json").read_text()) == {}


def test_a_disk_that_is_too_small_is_refused_at_once(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 1000})())
    with pytest.raises(DataError, match=r"need .* GB in .*, where 0\.0 GB are free; set HARNESS_CACHE"):
        small(decoded=True)()
