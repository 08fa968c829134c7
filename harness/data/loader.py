"""Batches for training and evaluation, made on the device from one uint8 tensor.

The batch of a step is a function of (seed, step): the order of an epoch and the augmentation of
sample i in epoch e each come from their own rng, seeded by name. So an interrupted run that resumes
at step t sees the same batches, and the loader's whole state is a step number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from harness.components.dataset import DataSet, Split
from harness.errors import DataError
from harness.seeds import derive


class Batch(NamedTuple):
    """Normalised images (channels_last), labels, and which samples they are."""

    images: Tensor
    labels: Tensor
    indices: Tensor


class Loader(Protocol):
    """The interface of training to data. Streaming data sets implement the same two members."""

    @property
    def steps_per_epoch(self) -> int: ...

    def batch(self, step: int) -> Batch:
        """The batch of that step, counted from the start of training."""
        ...


class DeviceLoader:
    """Shuffled, augmented batches of a split that is stored on the device.

    `order` may replace the shuffled order of an epoch (methods that resample data use it): it is given
    the epoch and returns as many indices as there are samples, repetitions allowed, or None.
    """

    def __init__(
        self,
        split: Split,
        dataset: DataSet,
        batch_size: int,
        seed: int,
        device: torch.device | str = "cpu",
        order: Callable[[int], Sequence[int] | None] | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.batch_size = batch_size
        self.seed = seed
        self.padding = dataset.crop_padding
        self.flip = dataset.flip
        self.own_order = order
        self.labels = torch.from_numpy(split.labels).to(self.device)
        self.height, self.width = split.images.shape[2:]
        # Both pad once with black, as torchvision pads before it normalises; crops are windows of that.
        if self.device.type == "cpu" and (self.padding or self.flip):
            self.cut: Cut = RowWindows(split, dataset)
        else:
            self.cut = Windows(split, dataset, self.device)
        self._epoch: tuple[int, Tensor, Tensor, Tensor] | None = None

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.labels) // self.batch_size)

    def batch(self, step: int) -> Batch:
        epoch, position = divmod(step, self.steps_per_epoch)
        order, offsets, flips = self._plan(epoch)
        indices = order[position * self.batch_size : (position + 1) * self.batch_size]
        chosen = offsets[indices] if self.padding else None
        images = self.cut(indices, chosen, flips[indices] if self.flip else None)
        return Batch(images, self.labels[indices], indices)

    def _plan(self, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
        """The epoch's order, and for each sample its crop offset and whether it is mirrored."""
        if self._epoch is None or self._epoch[0] != epoch:
            count = len(self.labels)
            chosen = self.own_order(epoch) if self.own_order else None
            if chosen is None:
                order = torch.randperm(count, generator=_generator(self.seed, "order", epoch))
            else:
                order = torch.as_tensor(chosen, dtype=torch.long)
                # Anything else would leave some steps without images, or images without a step.
                if len(order) != count or not ((order >= 0) & (order < count)).all():
                    raise DataError(f"the order of epoch {epoch} must be {count} indices from 0 to {count - 1}")
            augment = _generator(self.seed, "augment", epoch)
            offsets = torch.randint(2 * self.padding + 1, (count, 2), generator=augment)
            flips = torch.rand(count, generator=augment) < (0.5 if self.flip else 0.0)
            order, offsets, flips = (copied(plan, self.device) for plan in (order, offsets, flips))
            self._epoch = epoch, order, offsets, flips
        return self._epoch[1:]


Cut = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]
"""(samples, their crop offsets or None, whether each is mirrored or None) → normalised images."""


class Windows:
    """Each sample's window of its padded image, mirrored if `flips` says so, on any device."""

    def __init__(self, split: Split, dataset: DataSet, device: torch.device) -> None:
        images = torch.from_numpy(split.images).to(device)
        self.height, self.width = images.shape[2:]
        self.padded = torch.nn.functional.pad(images, (dataset.crop_padding,) * 4)
        self.normalise = Normalise(dataset, device)

    def __call__(self, indices: Tensor, offsets: Tensor | None, flips: Tensor | None) -> Tensor:
        if offsets is not None:
            windows = self.padded.unfold(2, self.height, 1).unfold(3, self.width, 1)
            images = windows[indices, :, offsets[:, 0], offsets[:, 1]]
        else:
            images = self.padded[indices]
        if flips is not None:
            images = torch.where(flips[:, None, None, None], images.flip(3), images)
        return self.normalise(images)


class RowWindows:
    """`Windows` for a CPU: the same bits, several times as fast, because whole rows of pixels are copied at once.

    With the channels of a pixel stored side by side, a row of a window is one run of bytes.
    """

    def __init__(self, split: Split, dataset: DataSet) -> None:
        self.count, self.channels, self.height, self.width = split.images.shape
        around = (dataset.crop_padding, dataset.crop_padding)
        self.padded = np.pad(split.images.transpose(0, 2, 3, 1), ((0, 0), around, around, (0, 0)))
        self.padded = np.ascontiguousarray(self.padded)
        self.row = self.width * self.channels
        if self.padded.size:
            starts = self.padded.size // self.channels - self.width + 1
            self.runs = np.lib.stride_tricks.as_strided(
                self.padded, (starts, self.row), (self.channels, 1), writeable=False
            )
        normalise = Normalise(dataset, "cpu")
        self.scale, self.shift = (one.flatten().repeat(self.width) for one in (normalise.scale, normalise.shift))
        pixels = np.arange(self.row).reshape(self.width, self.channels)
        self.mirrored = pixels[::-1].ravel().copy()

    def __call__(self, indices: Tensor, offsets: Tensor | None, flips: Tensor | None) -> Tensor:
        _, rows, columns, _ = self.padded.shape
        first = indices.numpy() * rows
        if offsets is not None:
            chosen = offsets.numpy()
            starts = (first[:, None] + chosen[:, :1] + np.arange(self.height)) * columns + chosen[:, 1:]
        else:
            starts = (first[:, None] + np.arange(self.height)) * columns
        runs = self.runs[starts]
        if flips is not None:
            which = flips.numpy()
            runs[which] = runs[which].take(self.mirrored, axis=2)
        floats = torch.from_numpy(runs).to(torch.float32).mul_(self.scale).add_(self.shift)
        return floats.view(len(indices), self.height, self.width, self.channels).permute(0, 3, 1, 2)


class Normalise:
    """Bytes to floats with the data set's mean and deviation, in channels_last order."""

    def __init__(self, dataset: DataSet, device: torch.device | str) -> None:
        std = torch.tensor(dataset.std, device=device).view(1, -1, 1, 1)
        mean = torch.tensor(dataset.mean, device=device).view(1, -1, 1, 1)
        self.scale, self.shift = 1 / std, -mean / std

    def __call__(self, images: Tensor) -> Tensor:
        floats = images.to(torch.float32, memory_format=torch.channels_last)
        return floats.mul_(self.scale).add_(self.shift)


def in_order(
    split: Split, dataset: DataSet, batch_size: int, device: torch.device | str = "cpu"
) -> Iterator[tuple[Tensor, Tensor]]:
    """Iterate over a split once, in its own order and without augmentation, as (images, labels)."""
    normalise = Normalise(dataset, device)
    for start in range(0, len(split), batch_size):
        images = copied(torch.from_numpy(split.images[start : start + batch_size]), device)
        labels = copied(torch.from_numpy(split.labels[start : start + batch_size]), device)
        yield normalise(images), labels


def copied(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on that device. A GPU fetches it from pinned memory while the CPU continues."""
    if torch.device(device).type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def _generator(seed: int, *names: str | int) -> torch.Generator:
    # Always a CPU generator: the same numbers on every device.
    return torch.Generator().manual_seed(derive(seed, *names))
