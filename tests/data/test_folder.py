"""The data set `folder`: any tree of images, and trees that are none."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from harness.components.dataset import SPLITS, DataSet
from harness.data import cache, trees
from harness.data.folder import FOLDER
from harness.errors import DataError
from tests.data.formats import png, random_bytes, write_tree

CLASSES = ["bee", "ant", "cat"]


def ids(dataset: DataSet) -> dict[str, set[tuple[int, int]]]:
    """Which images a split has, by what stands in their first pixels."""
    return {
        name: {(int(image[0, 0, 0]), int(image[0, 0, 1])) for image in getattr(dataset, name).images} for name in SPLITS
    }


def refused() -> str:
    with pytest.raises(DataError) as raised:
        FOLDER()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_tree_with_all_parts(data: Path) -> None:
    for part, count in (("train", 8), ("valid", 3), ("test", 2)):
        write_tree(data / "folder" / part, CLASSES, count, side=16)
    (data / "folder" / "train" / "ant" / "notes.txt").write_text("not an image")
    (data / "folder" / "train" / ".hidden").mkdir()
    dataset = FOLDER()
    assert [len(getattr(dataset, name)) for name in SPLITS] == [24, 9, 6]
    assert (dataset.classes, dataset.image_channels, dataset.image_size) == (3, 3, 16)
    assert (dataset.crop_padding, dataset.flip) == (2, True)
    for name in SPLITS:
        split = getattr(dataset, name)
        # Classes are numbered by the alphabet: ant, bee, cat.
        assert split.labels.tolist() == [[1, 0, 2][number] for number in split.images[:, 0, 0, 0]]
    channels = dataset.train.images.astype(float)
    assert dataset.mean == pytest.approx(channels.mean((0, 2, 3)), abs=0.006)
    assert dataset.std == pytest.approx(channels.std((0, 2, 3)), abs=0.006)


@pytest.mark.parametrize("given", [[], ["valid"], ["test"]])
def test_a_missing_part_is_a_fifth_of_the_training_images(data: Path, given: list[str]) -> None:
    write_tree(data / "folder" / "train", CLASSES, 10)
    for part in given:
        write_tree(data / "folder" / part, CLASSES, 4)
    dataset = FOLDER()
    sizes = {"train": 18 if not given else 24, "valid": 6, "test": 6, **dict.fromkeys(given, 12)}
    assert {name: len(getattr(dataset, name)) for name in SPLITS} == sizes
    own = [found for name, found in ids(dataset).items() if name not in given]
    assert len(set.union(*own)) == sum(map(len, own)) == 30
    again = FOLDER.decode(FOLDER.found(), data)
    assert again.checksum() == dataset.checksum()


def test_another_folder_may_be_named(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path / "elsewhere" / "train", CLASSES, 5)
    monkeypatch.setenv("HARNESS_DATA_FOLDER", str(tmp_path / "elsewhere"))
    first = FOLDER.fingerprint()
    write_tree(tmp_path / "other" / "train", CLASSES, 6)
    monkeypatch.setenv("HARNESS_DATA_FOLDER", str(tmp_path / "other"))
    assert len(FOLDER().train) == 12 and FOLDER.fingerprint() != first


@pytest.mark.parametrize("mode", ["L", "RGBA", "P"])
def test_gray_images_stay_gray_and_others_get_three_channels(data: Path, mode: str) -> None:
    write_tree(data / "folder" / "train", CLASSES, 5, mode=mode)
    assert FOLDER().image_channels == (1 if mode == "L" else 3)


def test_one_image_in_colours_makes_all_of_them_colours(data: Path) -> None:
    write_tree(data / "folder" / "train", CLASSES, 5, mode="L")
    Image.fromarray(random_bytes(8, 8, 3)).save(data / "folder" / "train" / "ant" / "0000.png")
    assert FOLDER().image_channels == 3


def test_jpeg_images(data: Path) -> None:
    place = data / "folder" / "train" / "ant"
    place.mkdir(parents=True)
    for number, suffix in enumerate(("jpg", "JPEG", "jpeg", "JPG", "png")):
        Image.new("RGB", (8, 8), (10 * number, 100, 200)).save(place / f"{number}.{suffix}")
    dataset = FOLDER()
    assert len(dataset.train) == 3
    assert all(abs(int(value) - 100) < 4 for value in dataset.train.images[:, 1].ravel())


def test_several_processes_decode_what_one_decodes(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(data / "folder" / "train", CLASSES, 20)
    alone = FOLDER().checksum()
    monkeypatch.setattr(trees, "IN_ONE_PROCESS", 10)
    monkeypatch.setattr(trees, "cores", lambda: 2)
    (data / "several").mkdir()
    assert FOLDER.decode(FOLDER.found(), data / "several").checksum() == alone
    (wrong := data / "folder" / "train" / "cat" / "0019.png").write_bytes(b"no image")
    with pytest.raises(DataError) as raised:
        FOLDER.decode(FOLDER.found(), data / "several")
    assert str(raised.value) == f"{wrong}: is neither a JPEG nor a PNG image"


def test_added_and_removed_images_are_seen(data: Path) -> None:
    write_tree(data / "folder" / "train", CLASSES, 5)
    before = FOLDER().checksum()
    extra = data / "folder" / "train" / "ant" / "more.png"
    extra.write_bytes(png(8))
    assert FOLDER().checksum() != before
    extra.unlink()
    assert FOLDER().checksum() == before


def test_images_changed_in_place_are_found_by_a_refresh(data: Path) -> None:
    write_tree(data / "folder" / "train", CLASSES, 5)
    before = FOLDER().checksum()
    file = data / "folder" / "train" / "ant" / "0001.png"
    file.write_bytes(png(8))
    warnings, problems = FOLDER.refresh(FOLDER.found())
    assert "changed in place" in warnings[0] and not problems
    assert FOLDER().checksum() != before
    assert FOLDER.refresh(FOLDER.found()) == ([], [])


def test_a_damaged_entry_is_found_by_a_refresh(data: Path) -> None:
    write_tree(data / "folder" / "train", CLASSES, 5)
    before = FOLDER().checksum()
    file = FOLDER.entry(FOLDER.found()) / "train_images.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    warnings, problems = FOLDER.refresh(FOLDER.found())
    assert not warnings and "do not match their checksum" in problems[0]
    assert FOLDER().computed_checksum() == before


def test_a_damaged_header_is_repaired_by_loading(data: Path) -> None:
    write_tree(data / "folder" / "train", CLASSES, 5)
    before = FOLDER().checksum()
    file = FOLDER.entry(FOLDER.found()) / "train_images.npy"
    file.write_bytes(bytes(file.stat().st_size))
    assert FOLDER().computed_checksum() == before


def test_images_that_are_refused(data: Path) -> None:
    write_tree(data / "folder" / "train", CLASSES, 5)
    file = data / "folder" / "train" / "cat" / "0002.png"
    good = file.read_bytes()
    deep = Image.fromarray(np.zeros((8, 8), np.uint16))
    deep.save(data / "deep.png")
    for content, message in (
        (png(9), "has 9×9 pixels, not 8×8; all images of a data set must have the same size"),
        (b"text", "is neither a JPEG nor a PNG image"),
        (b"", "is neither a JPEG nor a PNG image"),
        (good[: len(good) // 2], "truncated or damaged"),
        ((data / "deep.png").read_bytes(), "images must have eight bits per channel"),
    ):
        file.write_bytes(content)
        assert refused().startswith(f"{file}: ") and message in refused()
    file.write_bytes(good)
    assert len(FOLDER().train) == 9


def test_trees_that_are_refused(data: Path) -> None:
    root = data / "folder"
    assert refused().startswith(f"data set folder not found: looked for {root / 'train'}; put a tree")
    (root / "train").mkdir(parents=True)
    assert refused().startswith(f"{root / 'train'}: has no class folders")
    (root / "train" / "ant").mkdir()
    assert refused() == f"{root / 'train' / 'ant'}: holds no image (.jpg, .jpeg, .png)"
    (root / "train" / "ant" / "1.png").write_bytes(png(8))
    assert refused() == f"{root / 'train'}: holds too few images to divide, 1"
    write_tree(root / "train", ["ant"], 5)
    write_tree(root / "valid", CLASSES, 1)
    assert refused() == f"{root / 'train' / 'bee'}: missing, while valid has that class"
    write_tree(root / "train", [*CLASSES, "dog"], 5)
    assert refused() == f"{root / 'valid' / 'dog'}: missing, while train has that class"


def test_images_must_be_square(data: Path) -> None:
    (place := data / "folder" / "train" / "ant").mkdir(parents=True)
    for number in range(3):
        Image.new("RGB", (8, 6)).save(place / f"{number}.png")
    assert refused() == f"{data / 'folder'}: images must be square, not 8×6 pixels"


def test_decoded_images_are_kept_outside_of_the_data(data: Path) -> None:
    write_tree(data / "folder" / "train", CLASSES, 5)
    before = sorted(os.walk(data))
    FOLDER()
    assert sorted(os.walk(data)) == before
    folder = FOLDER.entry(FOLDER.found())
    assert cache.read(folder) is not None and folder.is_relative_to(os.environ["HARNESS_CACHE"])
