"""One interface for images in memory and streamed ones: the same bits, at every step, for any number of workers."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from harness.components.augmentation import Augmentation, BatchAugmentation, Transform
from harness.components.dataset import DataSet, Sample, Split, Stream, joined
from harness.components.loader import Batch, Loader, Share
from harness.components.registries import AUGMENTATIONS, ORDERS
from harness.data import streaming
from harness.data.loader import DeviceLoader
from harness.data.loading import EvaluationBatches, evaluation_batches, loader_for
from harness.data.orders import Repeated
from harness.data.streaming import StreamLoader, occurrences
from harness.errors import DamagedImage, DataError, InvalidConfiguration
from tests.processes import all_gone, descendants

COUNT, CLASSES = 23, 3


class Formula:
    """Images by a formula; counts how often each is read."""

    def __init__(self, count: int = COUNT, size: tuple[int, int] = (6, 6)) -> None:
        self.count, self.size = count, size
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.count

    def sample(self, index: int) -> Sample:
        self.read.append(index)
        pixels = np.arange(3 * self.size[0] * self.size[1]).reshape(3, *self.size) * (index + 1)
        return (pixels % 251).astype(np.uint8), index % CLASSES


def resident(source: Formula) -> Split:
    samples = [source.sample(index) for index in range(len(source))]
    return Split(np.stack([image for image, _ in samples]), np.array([label for _, label in samples], np.int64))


def data(split: Split, padding: int = 0, flip: bool = False) -> DataSet:
    channels = ((100.0, 90.0, 80.0), (60.0, 50.0, 40.0))
    return DataSet("formula", CLASSES, split, split, split, *channels, crop_padding=padding, flip=flip)


def streamed(padding: int = 0, flip: bool = False) -> DataSet:
    return data(Stream(Formula(), (3, 6, 6)), padding, flip)


def in_memory(padding: int = 0, flip: bool = False) -> DataSet:
    return data(resident(Formula()), padding, flip)


def augmentation(name: str, **options: Any) -> Augmentation:
    return AUGMENTATIONS.get(name)(**options)  # type: ignore[no-any-return]


def same(first: Batch, second: Batch) -> bool:
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


ALL = ("crop", "resized-crop", "flip", "rand-augment", "timm-rand-augment", "erasing", "mixup", "cutmix")


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize(("padding", "flip"), [(0, False), (2, True), (0, True), (1, False)])
def test_streamed_batches_are_those_of_images_in_memory(
    padding: int, flip: bool, workers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_DATA_WORKERS", workers)
    ours, theirs = (loader_for(make(padding, flip), "train", 5, seed=3) for make in (streamed, in_memory))
    assert isinstance(ours, StreamLoader) and isinstance(theirs, DeviceLoader)
    assert ours.steps_per_epoch == theirs.steps_per_epoch == 5
    for step in range(12):
        assert same(ours.batch(step), theirs.batch(step))


def test_fewer_workers_read_where_the_shared_memory_is_small(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A container has 64 MB by default: a worker without room is killed by a bus error."""
    monkeypatch.setattr(streaming, "shared_memory", lambda: 64 << 20)
    assert streaming.fitting(4, 5 << 20) == 4 and not capsys.readouterr().err
    assert streaming.fitting(4, 16 << 20) == 1
    assert "1 of 4 data workers: /dev/shm has room for 64 MB, all of them need 192 MB" in capsys.readouterr().err
    monkeypatch.setattr(streaming, "shared_memory", lambda: 0)
    monkeypatch.setenv("HARNESS_DATA_WORKERS", "2")
    ours, theirs = (loader_for(make(2, True), "train", 5, seed=3) for make in (streamed, in_memory))
    assert all(same(ours.batch(step), theirs.batch(step)) for step in range(3))
    assert "0 of 2 data workers" in capsys.readouterr().err


@pytest.mark.parametrize("workers", ["0", "1"])
def test_any_step_can_be_the_first(workers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    augment = [augmentation(name) for name in ALL]
    monkeypatch.setenv("HARNESS_DATA_WORKERS", "0")
    whole = loader_for(streamed(1, True), "train", 5, 3, augment=augment)
    batches = [whole.batch(step) for step in range(10)]
    monkeypatch.setenv("HARNESS_DATA_WORKERS", workers)
    for first in (0, 3, 7):
        torch.manual_seed(first), random.seed(first), np.random.seed(first)
        later = loader_for(streamed(1, True), "train", 5, 3, augment=augment)
        for step in range(first, 10):
            assert same(later.batch(step), batches[step])
    for step in (9, 2, 2):
        assert same(whole.batch(step), batches[step])


def test_another_seed_and_another_epoch_give_other_transforms() -> None:
    crop = [augmentation("resized-crop")]
    stored = ORDERS.get("stored")()
    first, second = (loader_for(streamed(), "train", COUNT, seed, order=stored, augment=crop) for seed in (0, 1))
    assert torch.equal(first.batch(0).indices, torch.arange(COUNT))
    assert not torch.equal(first.batch(0).images, first.batch(1).images)
    assert not torch.equal(first.batch(0).images, second.batch(0).images)


def test_global_rngs_are_left_alone() -> None:
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = random.random(), float(np.random.rand()), float(torch.rand(()))
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    loader = loader_for(streamed(1, True), "train", 5, 3, augment=[augmentation(name) for name in ALL])
    for step in (0, 1, 6):
        loader.batch(step)
    assert (random.random(), float(np.random.rand()), float(torch.rand(()))) == expected


class ThreeRngs(Transform):
    """Adds what each library's global rng gives."""

    def bind(self, dataset: DataSet) -> Any:
        def noisy(image: torch.Tensor) -> torch.Tensor:
            noise = torch.randint(99, ()) + random.randrange(99) + int(np.random.randint(50))
            return (image // 255 + noise).to(torch.uint8)

        return noisy


class Noise(BatchAugmentation):
    def bind(self, dataset: DataSet) -> Any:
        return lambda images, labels: (images + torch.randn(()) + random.random() + np.random.rand(), labels)


@pytest.mark.parametrize("kind", [ThreeRngs, Noise])
def test_a_transform_may_use_any_global_rng(kind: type[Augmentation]) -> None:
    def batch() -> Batch:
        return loader_for(in_memory(), "train", 9, 3, augment=[kind()]).batch(1)

    first = batch()
    torch.rand(5), random.random(), np.random.rand(7)
    assert same(first, batch())
    assert not same(first, loader_for(in_memory(), "train", 9, 3).batch(1))


def test_a_repeated_sample_is_transformed_anew_each_time() -> None:
    loader = loader_for(streamed(), "train", COUNT, 0, order=Repeated(3), augment=[augmentation("resized-crop")])
    images, _, indices = loader.batch(0)
    assert len(set(indices.tolist())) == 8
    first = images[indices == indices[0]]
    assert len(first) == 3 and not torch.equal(first[0], first[1]) and not torch.equal(first[1], first[2])
    later = loader_for(streamed(), "train", 4, 0, order=Repeated(3), augment=[augmentation("resized-crop")])
    assert torch.equal(later.batch(1).images, images[4:8])  # occurrences before the first step read count too


def test_occurrences_count_from_the_start_of_the_epoch() -> None:
    assert occurrences(torch.tensor([4, 2, 4, 4, 0, 2])).tolist() == [0, 0, 1, 2, 0, 1]
    assert occurrences(torch.randperm(50)).tolist() == [0] * 50


def test_a_methods_own_order_comes_first() -> None:
    own = list(range(COUNT))[::-1]
    orders: list[int] = []

    def by_method(epoch: int) -> Sequence[int] | None:
        orders.append(epoch)
        return own if epoch == 1 else None

    loader = loader_for(streamed(), "train", 8, 0, own_order=by_method, order=ORDERS.get("stored")())
    assert [loader.batch(step).indices[0].item() for step in range(6)] == [0, 8, 16, 22, 14, 6]
    assert orders == [0, 1]  # once per epoch, and not before the epoch begins


@pytest.mark.parametrize("make", [streamed, in_memory])
@pytest.mark.parametrize("own", [None, lambda epoch: list(range(COUNT))])
def test_samples_that_are_left_out_are_in_no_batch(make: Any, own: Any) -> None:
    out = (0, 5, 22)
    loader, again = (loader_for(make(), "train", 8, 3, own_order=own, without=out) for _ in range(2))
    epochs = [torch.cat([loader.batch(step).indices for step in range(3 * e, 3 * e + 3)]) for e in range(2)]
    assert all(len(epoch) == COUNT and set(epoch.tolist()) == set(range(COUNT)) - set(out) for epoch in epochs)
    assert not torch.equal(*epochs)
    assert torch.equal(again.batch(4).indices, loader.batch(4).indices)
    if own is not None:  # in the places of the others nothing changes
        kept = [place for place in range(COUNT) if place not in out]
        assert epochs[0][kept].tolist() == kept


@pytest.mark.parametrize("make", [streamed, in_memory])
def test_chosen_samples_are_those_of_their_numbers(make: Any) -> None:
    whole = make().train
    some = whole.chosen([7, 2, 9])
    assert len(some) == 3 and some.shape == whole.shape
    for place, index in enumerate((7, 2, 9)):
        (image, label), (expected, wanted) = some.sample(place), whole.sample(index)
        assert np.array_equal(image, expected) and label == wanted
    assert [labels.tolist() for _, labels in evaluation_batches(make(), some, 2)] == [[7 % CLASSES, 2], [0]]


@pytest.mark.parametrize("make", [streamed, in_memory])
def test_shares_make_up_the_batch(make: Any) -> None:
    crops = [augmentation("resized-crop")] if make is streamed else []
    whole: Loader = loader_for(make(1, True), "train", 5, 3, augment=crops)
    shares = [loader_for(make(1, True), "train", 5, 3, augment=crops, share=Share(index, 2)) for index in range(2)]
    for step in range(6):
        batch = whole.batch(step)
        parts: list[Any] = [loader.batch(step) for loader in shares]
        for one, first, second in zip(batch, *parts, strict=True):
            assert torch.equal(one, torch.cat((first, second))) and 0 <= len(first) - len(second) <= 1
        assert sum(part.weight for part in parts) == 1 and [part.start for part in parts] == [0, len(parts[0].labels)]
        assert all(part.whole == len(batch.labels) for part in parts)
        assert parts[0]._replace(images=batch.images).weight == parts[0].weight
    with pytest.raises(InvalidConfiguration, match="share 2 of 2"):
        Share(2, 2)
    with pytest.raises(InvalidConfiguration, match="3 groups cannot be shared by 2 processes"):
        Share(0, 2, 3)


@pytest.mark.parametrize(("size", "groups"), [(1, 1), (2, 1), (4, 2), (2, 2), (2, 6), (3, 6), (6, 3)])
def test_groups_lie_in_shares_or_span_whole_ones(size: int, groups: int) -> None:
    """However many processes there are, the groups have the same images, and their sizes differ by one at most."""
    for count in range(6, 20):
        whole = list(torch.arange(count).tensor_split(groups))
        shares = [torch.arange(count)[Share(index, size, groups).of(count)] for index in range(size)]
        if groups >= size:
            found = [group for share in shares for group in share.tensor_split(groups // size)]
        else:
            found = [torch.cat(shares[start : start + size // groups]) for start in range(0, size, size // groups)]
        assert all(torch.equal(one, other) for one, other in zip(whole, found, strict=True))
        assert min(map(len, shares)) > 0


def test_shares_of_mixed_batches_are_parts_of_the_whole_one() -> None:
    mixed = [augmentation("mixup", alpha=1.0)]
    whole = loader_for(in_memory(), "train", 8, 0, augment=mixed)
    shares = [loader_for(in_memory(), "train", 8, 0, augment=mixed, share=Share(index, 2)) for index in range(2)]
    for step in (0, 2):
        parts = [loader.batch(step) for loader in shares]
        for one, first, second in zip(whole.batch(step), *parts, strict=True):
            assert torch.equal(one, torch.cat((first, second)))


def test_the_weight_of_a_part_counts_images_that_can_be_read() -> None:
    class Damaged(Formula):
        def sample(self, index: int) -> Sample:
            if index == 4:
                raise DamagedImage("image 4 is damaged")
            return super().sample(index)

    split = Stream(Damaged(), (3, 6, 6))
    seen: list[float] = []

    def counted(value: float) -> float:
        seen.append(value)
        return 22.0

    shares = [Share(index, 2, 1, counted) for index in range(2)]
    parts: list[Any] = [loader_for(data(split), "train", COUNT, 0, share=one).batch(0) for one in shares]
    assert sum(seen) == COUNT - 1 == sum(len(part.labels) for part in parts)
    assert sum(part.weight for part in parts) == pytest.approx(1)


@pytest.mark.parametrize("name", ["mixup", "cutmix"])
def test_mixing_gives_soft_labels_that_the_loss_accepts(name: str) -> None:
    plain = loader_for(in_memory(), "train", 8, 0).batch(2)
    images, labels, indices = loader_for(in_memory(), "train", 8, 0, augment=[augmentation(name, alpha=1.0)]).batch(2)
    assert torch.equal(indices, plain.indices) and not torch.equal(images, plain.images)
    assert labels.shape == (7, CLASSES) and labels.dtype == torch.float32
    assert torch.allclose(labels.sum(1), torch.ones(7)) and ((labels > 0).sum(1) > 1).any()
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert functional.cross_entropy(torch.randn(7, CLASSES), labels, label_smoothing=0.1).isfinite()


def test_sources_may_have_soft_labels_in_training_only() -> None:
    class Soft(Formula):
        def sample(self, index: int) -> Sample:
            return super().sample(index)[0], np.full(CLASSES, 1 / CLASSES, np.float32)

    soft = data(Stream(Soft(), (3, 6, 6)))
    labels = loader_for(soft, "train", 4, 0).batch(0).labels
    assert labels.shape == (4, CLASSES) and labels.dtype == torch.float32
    with pytest.raises(DataError, match="label of image 0 must be a class"):
        list(evaluation_batches(soft, soft.valid, 4))


def test_images_of_other_sizes_are_fitted() -> None:
    wide = data(Stream(Formula(5, (12, 20)), (3, 6, 6)))
    assert loader_for(wide, "train", 5, 0).batch(0).images.shape == (5, 3, 6, 6)
    assert next(evaluation_batches(wide, wide.valid, 2))[0].shape == (2, 3, 6, 6)
    with pytest.raises(DataError, match=r"image \d must be uint8 of shape \(4, 6, 6\), not torch.uint8 of shape"):
        stream = Stream(Formula(5), (4, 6, 6))
        four = DataSet("formula", CLASSES, stream, stream, stream, (1.0,) * 4, (1.0,) * 4)
        loader_for(four, "train", 5, 0).batch(0)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_evaluation_reads_the_head_in_order_and_only_once(workers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_DATA_WORKERS", workers)
    ours, theirs = streamed(), in_memory()
    batches, expected = (EvaluationBatches(one, one.valid.head(17), 5) for one in (ours, theirs))
    for _ in range(2):
        for (images, labels), (known, known_labels) in zip(batches, expected, strict=True):
            assert torch.equal(images, known) and torch.equal(labels, known_labels)
    assert len(batches.images) == len(batches.labels) == 4 and torch.equal(batches.images[3], expected[3][0])
    assert isinstance(ours.valid, Stream) and isinstance(ours.valid.source, Formula)
    assert ours.valid.source.read == (list(range(17)) if workers == "0" else [])


def test_streams_are_joined_cut_and_checked() -> None:
    both = joined([in_memory().train, streamed().train.head(4)])
    assert isinstance(both, Stream) and len(both) == COUNT + 4 and len(both.head(9)) == 9
    assert (both.sample(COUNT + 1)[0] == both.sample(1)[0]).all()
    changed = replace(streamed(), train=both)
    assert len({one.checksum() for one in (streamed(), streamed(1), changed)}) == 3
    with pytest.raises(DataError, match="not in memory"):
        assert both.images is None
    with pytest.raises(DataError, match="channels, height and width"):
        Stream(Formula(), (6, 6))
    few = replace(streamed(), classes=2)
    with pytest.raises(DataError, match="must be 0 to 1, not 2"):
        loader_for(few, "train", 23, 0).batch(0)
    with pytest.raises(InvalidConfiguration, match="from 0 to 1, not 2"):
        augmentation("flip", probability=2.0)


def test_workers_are_a_whole_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_DATA_WORKERS", "many")
    with pytest.raises(InvalidConfiguration, match="HARNESS_DATA_WORKERS"):
        loader_for(streamed(), "train", 5, 0)


KILLED = """
import sys
from torch.utils.data._utils import worker
worker.MP_STATUS_CHECK_INTERVAL = 600  # torch's own watchdog does not end them
from tests.data.test_loading import loader_for, streamed
loader = loader_for(streamed(), "train", 5, 0)
loader.batch(0)
print("reading", flush=True)
sys.stdin.read()
"""


def test_workers_end_with_a_killed_training() -> None:
    environment = os.environ | {"HARNESS_DATA_WORKERS": "2", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", KILLED]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "reading\n"
        workers = descendants(process.pid)
        process.send_signal(signal.SIGKILL)
        assert len(workers) == 2 and all_gone(workers, within=60)


ORPHAN = """
import os, time
from harness.data.streaming import _end_with_parent
parent = os.getpid()
if os.fork() == 0:
    while os.getppid() == parent:
        time.sleep(0.01)
    _end_with_parent(parent, 0)
    print("outlived it")
"""


def test_a_worker_ends_whose_training_was_killed_before_it_began() -> None:
    command = [sys.executable, "-c", ORPHAN]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}, capture_output=True)
    assert (done.stdout, done.stderr, done.returncode) == (b"", b"", 0)


def bound(name: str, dataset: DataSet, **options: Any) -> Any:
    made: Any = augmentation(name, **options)
    return made.bind(dataset)


@pytest.mark.parametrize("channels", [1, 3])
def test_timms_rand_augment_changes_small_images_of_any_colour(channels: int) -> None:
    split = Split(np.full((4, channels, 8, 8), 90, np.uint8), np.zeros(4, np.int64))
    split.images[:, :, 2:5, 1:4] = 200
    few = DataSet("few", 2, split, split, split, (90.0,) * channels, (50.0,) * channels)
    change = bound("timm-rand-augment", few)
    image = torch.from_numpy(split.images[0])
    random.seed(0), np.random.seed(0)
    changed = [change(image) for _ in range(20)]
    assert all(one.shape == image.shape and one.dtype == torch.uint8 for one in changed)
    assert sum(not torch.equal(one, image) for one in changed) > 5
    strongest = bound("timm-rand-augment", few, policy="rand-m10-n9-inc1")
    assert all(strongest(image).shape == image.shape for _ in range(20))  # posterised to 0 bits, if timm had its way
    with pytest.raises(InvalidConfiguration, match="timm-rand-augment.policy is 'auto-m9', which timm does not know"):
        bound("timm-rand-augment", few, policy="auto-m9")


def test_erased_rectangles_may_be_noise_of_the_data_sets_colours() -> None:
    image = torch.zeros(3, 40, 40, dtype=torch.uint8)
    torch.manual_seed(0)
    erase = bound("erasing", data(resident(Formula())), probability=1.0, largest=0.9, fill="noise")
    noise = torch.stack([erase(image) for _ in range(30)]).permute(1, 0, 2, 3).flatten(1).float()
    where = noise.sum(0) > 0
    means = [channel[where].mean().item() for channel in noise]
    assert 0.05 < where.float().mean() < 0.9 and means == sorted(means, reverse=True)  # the means are 100, 90, 80
    assert means[0] == pytest.approx(101, abs=4)  # cut at 0
    assert not image.any()
    never = bound("erasing", data(resident(Formula())), probability=0.0, fill="noise")
    assert never(image) is image


def test_each_batch_is_mixed_one_way_or_the_other() -> None:
    mixing = bound("mixing", data(resident(Formula())))
    images = torch.arange(1.0, 7).view(6, 1, 1, 1).expand(6, 3, 6, 6)
    torch.manual_seed(0)
    ways = []
    for _ in range(30):
        mixed, labels = mixing(images.clone(), torch.arange(6) % CLASSES)
        assert labels.shape == (6, CLASSES) and torch.allclose(labels.sum(1), torch.ones(6))
        ways.append(bool((mixed == mixed.round()).all()))  # pixels of one image or of the other
    assert 5 < sum(ways) < 25
    only = bound("mixing", data(resident(Formula())), switch=1.0)
    assert all(bool((one == one.round()).all()) for one, _ in (only(images, torch.arange(6) % 3) for _ in range(5)))
