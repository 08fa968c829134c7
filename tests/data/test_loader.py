"""The loader's batches, against a slow reference that handles one image at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.components.dataset import DataSet, Split
from harness.data.loader import Batch, DeviceLoader, RowWindows, Windows, in_order
from harness.errors import DataError
from harness.seeds import derive


def dataset(
    count: int = 23, channels: int = 3, height: int = 8, width: int = 8, padding: int = 0, flip: bool = False
) -> DataSet:
    rng = np.random.default_rng([count, channels, height, width])
    images = rng.integers(0, 256, (count, channels, height, width), np.uint8)
    split = Split(images, rng.integers(0, 10, count))
    mean, std = (120.0, 110.0, 100.0)[:channels], (60.0, 62.0, 64.0)[:channels]
    return DataSet("random", 10, split, split, split, mean, std, padding, flip)


def loader(data: DataSet, batch_size: int = 5, seed: int = 1) -> DeviceLoader:
    return DeviceLoader(data.train, data, batch_size, seed)


def epoch(of: DeviceLoader, number: int) -> list[Batch]:
    return [of.batch(number * of.steps_per_epoch + step) for step in range(of.steps_per_epoch)]


def samples(batches: list[Batch]) -> list[int]:
    return [int(index) for batch in batches for index in batch.indices]


def same(one: Batch, other: Batch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def slow(data: DataSet, sample: int, top: int, left: int, mirrored: bool) -> npt.NDArray[np.float64]:
    """One image: black around it, a window of it, mirrored, normalised."""
    image = data.train.images[sample]
    channels, height, width = image.shape
    result = np.empty(image.shape)
    for channel in range(channels):
        for y in range(height):
            for x in range(width):
                row = y + top - data.crop_padding
                column = (width - 1 - x if mirrored else x) + left - data.crop_padding
                inside = 0 <= row < height and 0 <= column < width
                pixel = float(image[channel, row, column]) if inside else 0.0
                result[channel, y, x] = (pixel - data.mean[channel]) / data.std[channel]
    return result


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 9),
    channels=st.integers(1, 3),
    height=st.integers(1, 7),
    width=st.integers(1, 7),
    padding=st.integers(0, 4),
    flip=st.booleans(),
    seed=st.integers(0, 2**62),
    step=st.integers(0, 20),
)
def test_batches_equal_the_slow_reference(
    count: int, channels: int, height: int, width: int, padding: int, flip: bool, seed: int, step: int
) -> None:
    data = dataset(count, channels, height, width, padding, flip)
    ours = loader(data, batch_size=4, seed=seed)
    batch = ours.batch(step)
    # The draws of an epoch are for all samples, in their own order, from a generator with a name.
    rng = torch.Generator().manual_seed(derive(seed, "augment", step // ours.steps_per_epoch))
    offsets = torch.randint(2 * padding + 1, (count, 2), generator=rng).tolist()
    mirrored = (torch.rand(count, generator=rng) < 0.5).tolist()
    assert len(batch.images) == len(batch.labels) == len(batch.indices) > 0
    for image, label, index in zip(batch.images, batch.labels, batch.indices.tolist(), strict=True):
        top, left = offsets[index]
        expected = slow(data, index, top, left, flip and mirrored[index])
        np.testing.assert_allclose(image.numpy(), expected, atol=1e-5)
        assert label == data.train.labels[index]


def test_all_windows_and_both_directions_occur_alike() -> None:
    image = np.arange(1, 26, dtype=np.uint8).reshape(1, 1, 5, 5)
    split = Split(np.repeat(image, 3600, 0), np.zeros(3600, np.int64))
    data = DataSet("one image", 1, split, split, split, (0.0,), (1.0,), crop_padding=1, flip=True)
    batch = loader(data, batch_size=3600).batch(0)
    windows = Counter(tuple(pixels) for pixels in batch.images.flatten(1).int().tolist())
    expected = {
        tuple(slow(data, 0, top, left, mirrored).astype(int).ravel().tolist())
        for top in range(3)
        for left in range(3)
        for mirrored in (False, True)
    }
    assert set(windows) == expected
    assert all(abs(seen - 200) < 70 for seen in windows.values())  # 5 deviations


@given(count=st.integers(1, 40), batch_size=st.integers(1, 45), seed=st.integers(0, 2**62), number=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_an_epoch_has_every_sample_once(count: int, batch_size: int, seed: int, number: int) -> None:
    ours = loader(dataset(count, 1, 2, 2), batch_size, seed)
    batches = epoch(ours, number)
    assert sorted(samples(batches)) == list(range(count))
    sizes = [len(batch.images) for batch in batches]
    assert sizes[:-1] == [batch_size] * (len(sizes) - 1)
    assert 1 <= sizes[-1] <= batch_size


def test_the_last_batch_of_an_epoch_may_be_smaller() -> None:
    ours = loader(dataset(23), batch_size=5)
    assert ours.steps_per_epoch == 5
    assert [len(ours.batch(step).images) for step in range(7)] == [5, 5, 5, 5, 3, 5, 5]


def test_a_batch_does_not_depend_on_what_was_asked_for_before() -> None:
    """So an interrupted run that goes on at any step sees the same batches."""
    data = dataset(padding=2, flip=True)
    through = loader(data)
    in_sequence = [through.batch(step) for step in range(15)]
    for step in (14, 3, 7, 7, 0, 12):
        assert same(loader(data).batch(step), in_sequence[step])
        assert same(through.batch(step), in_sequence[step])


def test_batches_do_not_depend_on_the_global_generator() -> None:
    data = dataset(padding=2, flip=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        state = torch.get_rng_state()
        one = loader(data).batch(0)
        assert torch.equal(torch.get_rng_state(), state)
        torch.manual_seed(2)
        assert same(one, loader(data).batch(0))


def test_epochs_and_seeds_differ_in_order_and_augmentation() -> None:
    data = dataset(padding=2, flip=True)
    orders, first_images = set(), []
    for seed, number in [(1, 0), (1, 1), (2, 0), (2, 1)]:
        batches = epoch(loader(data, seed=seed), number)
        orders.add(tuple(samples(batches)))
        images = torch.cat([batch.images for batch in batches])
        first_images.append(images[samples(batches).index(0)])
    assert len(orders) == 4
    assert any(not torch.equal(first_images[0], other) for other in first_images[1:])


def test_a_method_may_give_its_own_order() -> None:
    data = dataset(7, padding=1, flip=True)
    own: dict[int, Sequence[int] | None] = {0: [6, 6, 0, 1, 1, 1, 2], 1: None, 2: range(7)}
    asked: list[int] = []

    def order(number: int) -> Sequence[int] | None:
        asked.append(number)
        return own[number]

    ours = DeviceLoader(data.train, data, 3, 1, order=order)
    assert samples(epoch(ours, 0)) == own[0]
    assert samples(epoch(ours, 1)) == samples(epoch(loader(data, 3), 1))
    assert samples(epoch(ours, 2)) == list(range(7))
    assert asked == [0, 1, 2]
    # The augmentation belongs to sample and epoch, whatever the order.
    ours_by_sample, shuffled = epoch(ours, 2), epoch(loader(data, 3), 2)
    images = torch.cat([batch.images for batch in shuffled])
    assert torch.equal(torch.cat([b.images for b in ours_by_sample])[samples(shuffled)], images)


@pytest.mark.parametrize("bad", [[0, 1, 2], [0, 1, 2, 3, 4], [0, 1, 2, 4], [0, 1, 2, -1]])
def test_an_order_that_does_not_fill_the_epoch_is_refused(bad: list[int]) -> None:
    data = dataset(4)
    with pytest.raises(DataError, match="order of epoch 0 must be 4 indices from 0 to 3"):
        DeviceLoader(data.train, data, 2, 1, order=lambda number: bad).batch(0)


@pytest.mark.parametrize(("padding", "flip"), [(0, False), (0, True), (2, False), (2, True)])
def test_images_are_floats_in_channels_last_order(padding: int, flip: bool) -> None:
    data = dataset(padding=padding, flip=flip)
    images = loader(data).batch(0).images
    assert images.dtype == torch.float32
    assert images.shape == (5, 3, 8, 8)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert not images.is_contiguous()


def test_making_batches_leaves_the_data_as_it_was() -> None:
    data = dataset()
    before = data.checksum()
    epoch(loader(data), 0)
    list(in_order(data.valid, data, 4))
    assert data.checksum() == before


def test_in_order_gives_a_split_once_as_it_is() -> None:
    data = dataset(11, padding=2, flip=True)
    batches = list(in_order(data.valid, data, 4))
    assert [len(labels) for _, labels in batches] == [4, 4, 3]
    assert torch.cat([labels for _, labels in batches]).tolist() == data.valid.labels.tolist()
    assert all(images.is_contiguous(memory_format=torch.channels_last) for images, _ in batches)
    images = torch.cat([images for images, _ in batches])
    middle = data.crop_padding
    for sample in range(11):
        np.testing.assert_allclose(images[sample].numpy(), slow(data, sample, middle, middle, False), atol=1e-5)


@pytest.mark.parametrize(("padding", "flip"), [(2, True), (2, False), (0, True)])
@pytest.mark.parametrize("channels", [1, 3])
def test_whole_rows_give_the_bits_of_single_windows(padding: int, flip: bool, channels: int) -> None:
    """The quick way on a CPU against the one that runs on every device."""
    images = dataset(30, channels, 7, 9, padding, flip)
    quick, plain = DeviceLoader(images.train, images, 8, 5), DeviceLoader(images.train, images, 8, 5)
    assert isinstance(quick.cut, RowWindows)
    plain.cut = Windows(images.train, images, torch.device("cpu"))
    for step in range(8):
        found, right = quick.batch(step), plain.batch(step)
        assert torch.equal(found.images, right.images)
        assert found.images.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(found.labels, right.labels)
