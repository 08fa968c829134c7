"""The cache of decoded data: whole or not there, built once, and never trusted blindly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.components.dataset import SPLITS, DataSet
from harness.data import cache
from harness.data.loader import DeviceLoader, in_order
from harness.errors import DataError
from tests.data.formats import small_set


@pytest.fixture
def folder(data: Path) -> Path:
    """An entry of the small data set."""
    folder = cache.entry("small", "0" * 64)
    cache.build(folder, lambda scratch: small_set(), {"from": "the test"})
    return folder


def record(folder: Path) -> cache.Record:
    found = cache.read(folder)
    assert found is not None
    return found


def test_what_is_built_is_what_is_loaded(folder: Path) -> None:
    original, loaded = small_set(), cache.load(folder, record(folder))
    for split in SPLITS:
        ours, theirs = getattr(loaded, split), getattr(original, split)
        assert np.array_equal(ours.images, theirs.images) and np.array_equal(ours.labels, theirs.labels)
    parts = {split: getattr(original, split) for split in SPLITS}
    assert replace(loaded, **parts) == replace(original, **parts)
    assert loaded.checksum() == original.checksum() == loaded.computed_checksum()
    assert record(folder).about == {"from": "the test"}
    assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777  # others may share the cache
    assert record(folder).counts == {"train": 20, "valid": 10, "test": 5}


def test_images_are_mapped_and_torch_takes_them_without_a_warning(folder: Path) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    loaded = cache.load(folder, record(folder))
    base = loaded.valid.images
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base, np.memmap)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = DeviceLoader(loaded.train, loaded, 8, seed=1).batch(0)
        images, labels = next(in_order(loaded.valid, loaded, 10))
    assert torch.isfinite(batch.images).all() and len(images) == len(labels) == 10
    loaded.valid.images[:] = 0  # a copy of the process's own: the file stays
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_a_second_use_decodes_nothing(folder: Path) -> None:
    def decode(scratch: Path) -> DataSet:
        raise AssertionError("decoded again")

    assert cache.build(folder, decode, {}) == record(folder)


def test_an_error_while_decoding_leaves_nothing(data: Path) -> None:
    folder = cache.entry("small", "1" * 64)

    def decode(scratch: Path) -> DataSet:
        (scratch / "half").write_bytes(b"images")
        raise DataError("image 7 is damaged")

    with pytest.raises(DataError, match="^image 7 is damaged$"):
        cache.build(folder, decode, {})
    assert [file.name for file in folder.parent.iterdir() if file.suffix != ".lock"] == []


def test_leftovers_of_a_process_that_died_are_removed(folder: Path) -> None:
    leftover = folder.parent / f".{folder.name}.abc.part"
    leftover.mkdir()
    (leftover / "train_images.npy").write_bytes(b"half")
    cache.remove(folder)
    cache.build(folder, lambda scratch: small_set(), {})
    assert not leftover.exists() and cache.read(folder) is not None


@pytest.mark.parametrize("file", ["train_images.npy", "valid_labels.npy", cache.RECORD])
@pytest.mark.parametrize("damage", ["truncated", "missing", "empty"])
def test_visible_damage_makes_it_built_again(folder: Path, file: str, damage: str) -> None:
    path = folder / file
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: 200 if damage == "truncated" else 0])
    assert cache.read(folder) is None
    cache.build(folder, lambda scratch: small_set(), {})
    assert cache.verify(folder, record(folder))


def test_an_entry_of_another_version_is_built_again(folder: Path) -> None:
    document = json.loads((folder / cache.RECORD).read_text())
    (folder / cache.RECORD).write_text(json.dumps({**document, "format": cache.FORMAT + 1}))
    assert cache.read(folder) is None


@pytest.mark.parametrize("file", ["train_images.npy", "test_labels.npy"])
def test_a_changed_byte_is_found_by_verifying(folder: Path, file: str) -> None:
    content = bytearray((folder / file).read_bytes())
    content[-8] ^= 1
    (folder / file).write_bytes(content)
    assert cache.read(folder) is not None
    assert not cache.verify(folder, record(folder))


def test_a_header_that_is_damaged_ends_in_a_message(folder: Path) -> None:
    content = bytearray((folder / "train_images.npy").read_bytes())
    content[:6] = b"\0" * 6
    (folder / "train_images.npy").write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        cache.load(folder, record(folder))
    assert not cache.verify(folder, record(folder))


def test_a_cache_that_cannot_be_written(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "file").write_text("no folder")
    monkeypatch.setenv("HARNESS_CACHE", str(data / "file"))
    with pytest.raises(DataError, match="cannot be written to .*/file/data .*; set HARNESS_CACHE"):
        cache.build(cache.entry("small", "0" * 64), lambda scratch: small_set(), {})


BUILDER = """
import sys
from pathlib import Path
from harness.data import cache
from tests.data.formats import small_set

def decode(scratch):
    with open(sys.argv[2], "a") as log:
        log.write("decoded\\n")
    return small_set()

print("ready", flush=True)
sys.stdin.readline()
print(cache.build(Path(sys.argv[1]), decode, {}).checksum)
"""


def test_processes_that_build_at_once_build_once(data: Path) -> None:
    folder, log = cache.entry("small", "2" * 64), data / "log"
    command = [sys.executable, "-c", BUILDER, str(folder), str(log)]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    builders = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(3)
    ]
    for builder in builders:
        assert builder.stdout and builder.stdout.readline() == "ready\n"
    for builder in builders:
        assert builder.stdin
        builder.stdin.write("go\n")
        builder.stdin.flush()
    answers = {builder.communicate()[0].strip() for builder in builders}
    assert answers == {small_set().checksum()}
    assert log.read_text() == "decoded\n"
    assert cache.verify(folder, record(folder))
