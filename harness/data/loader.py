"""Batches of images in memory, made on the device from one uint8 tensor; and the plan of an epoch for all loaders.

The batch of a step is a function of (seed, step): the order of an epoch and the augmentation of
sample i in epoch e each come from their own rng, seeded by name. So an interrupted run that resumes
at step t sees the same batches, and the loader's whole state is a step number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from harness.components.dataset import DataSet, Split
from harness.components.loader import WHOLE, Batch, EpochOrder, Loader, Share, part_of
from harness.data.devices import accelerated, memory_format
from harness.errors import DataError
from harness.seeds import derive

__all__ = ["Batch", "DeviceLoader", "Loader", "in_order"]  # the first and third are defined in components


class EpochPlan(NamedTuple):
    """The epoch's order, and for each sample its crop offset and whether it is mirrored."""

    order: Tensor
    offsets: Tensor
    flips: Tensor


class Planner:
    """Plans epochs from seed and epoch alone; keeps the current one.

    `order` may replace the random permutation of an epoch (methods that resample data use it): it is given the epoch
    and returns as many indices as there are samples, repetitions allowed, or None.
    """

    def __init__(
        self,
        count: int,
        dataset: DataSet,
        seed: int,
        device: torch.device | str = "cpu",
        order: EpochOrder | None = None,
    ) -> None:
        self.count, self.seed, self.device, self.order = count, seed, device, order
        self.padding, self.flip = dataset.crop_padding, dataset.flip
        self._epoch: tuple[int, EpochPlan] | None = None

    def __call__(self, epoch: int) -> EpochPlan:
        if self._epoch is None or self._epoch[0] != epoch:
            augment = _generator(self.seed, "augment", epoch)
            offsets = torch.randint(2 * self.padding + 1, (self.count, 2), generator=augment)
            flips = torch.rand(self.count, generator=augment) < (0.5 if self.flip else 0.0)
            plan = (copied(part, self.device) for part in (self._order(epoch), offsets, flips))
            self._epoch = epoch, EpochPlan(*plan)
        return self._epoch[1]

    def _order(self, epoch: int) -> Tensor:
        chosen = self.order(epoch) if self.order else None
        if chosen is None:
            return torch.randperm(self.count, generator=_generator(self.seed, "order", epoch))
        order = torch.as_tensor(chosen, dtype=torch.long)
        # Anything else would leave some steps without images, or images without a step.
        if len(order) != self.count or not ((order >= 0) & (order < self.count)).all():
            raise DataError(f"the order of epoch {epoch} must be {self.count} indices from 0 to {self.count - 1}")
        return order


class DeviceLoader:
    """Shuffled, augmented batches of a split that is stored on the device.

    `order` is that of `Planner`.
    """

    def __init__(
        self,
        split: Split,
        dataset: DataSet,
        batch_size: int,
        seed: int,
        device: torch.device | str = "cpu",
        order: EpochOrder | None = None,
        share: Share = WHOLE,
    ) -> None:
        self.device = torch.device(device)
        self.batch_size, self.share = batch_size, share
        self.padding = dataset.crop_padding
        self.flip = dataset.flip
        self.labels = torch.from_numpy(split.labels).to(self.device)
        # Both pad once with black, as torchvision pads before it normalises; crops are windows of that.
        if self.device.type == "cpu" and (self.padding or self.flip):
            self.cut: Cut = RowWindows(split, dataset)
        else:
            self.cut = Windows(split, dataset, self.device)
        self.plan = Planner(len(split), dataset, seed, self.device, order)

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.labels) // self.batch_size)

    def batch(self, step: int) -> Batch:
        epoch, position = divmod(step, self.steps_per_epoch)
        order, offsets, flips = self.plan(epoch)
        indices = order[position * self.batch_size : (position + 1) * self.batch_size]
        whole, part = len(indices), self.share.of(len(indices))
        indices = indices[part]
        chosen = offsets[indices] if self.padding else None
        images = self.cut(indices, chosen, flips[indices] if self.flip else None)
        batch = Batch(images, self.labels[indices], indices)
        return batch if self.share.size == 1 else part_of(batch, len(indices) / whole, part.start, whole)

    def close(self) -> None:
        """Nothing to end."""


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
        return self.normalise(windows_of(self.padded, indices, (self.height, self.width), offsets, flips))


def windows_of(
    padded: Tensor, indices: Tensor, size: tuple[int, int], offsets: Tensor | None, flips: Tensor | None
) -> Tensor:
    """Windows of that size of these images, mirrored where `flips` says so, still as bytes."""
    if offsets is not None:
        windows = padded.unfold(2, size[0], 1).unfold(3, size[1], 1)
        images = windows[indices, :, offsets[:, 0], offsets[:, 1]]
    else:
        images = padded[indices]
    return images if flips is None else torch.where(flips[:, None, None, None], images.flip(3), images)


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
    """Bytes to floats with the data set's mean and deviation, in the layout of the device."""

    def __init__(self, dataset: DataSet, device: torch.device | str) -> None:
        std = torch.tensor(dataset.std, device=device).view(1, -1, 1, 1)
        mean = torch.tensor(dataset.mean, device=device).view(1, -1, 1, 1)
        self.scale, self.shift = 1 / std, -mean / std
        self.rows = self.scale[0, 0, 0, :0], self.shift[0, 0, 0, :0]
        """Scale and shift of a row of pixels, once its width is known."""

    def __call__(self, images: Tensor) -> Tensor:
        if images.device.type != "cpu" or not images.is_contiguous(memory_format=torch.channels_last):
            floats = images.to(torch.float32, memory_format=memory_format(images.device))
            return floats.mul_(self.scale).add_(self.shift)
        # A whole row of pixels at a time: the same bits, faster than three numbers at a time.
        width, channels = images.shape[3], images.shape[1]
        if len(self.rows[0]) != width * channels:
            self.rows = self.scale.flatten().repeat(width), self.shift.flatten().repeat(width)
        rows = images.permute(0, 2, 3, 1).reshape(*images.shape[:1], -1, width * channels).to(torch.float32)
        return rows.mul_(self.rows[0]).add_(self.rows[1]).view(len(images), -1, width, channels).permute(0, 3, 1, 2)


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
    if tensor.device.type != "cpu" or not accelerated(device):
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def _generator(seed: int, *names: str | int) -> torch.Generator:
    # Always a CPU generator: the same numbers on every device.
    return torch.Generator().manual_seed(derive(seed, *names))
