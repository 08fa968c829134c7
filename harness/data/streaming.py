"""Batches of images that are read one at a time: torch's `DataLoader` decodes and transforms them, ahead of training.

The order, the crops and the mirroring are those of `harness.data.loader`: the same images give the same bits, streamed
or in memory. Transforms draw from rngs that are a function of seed, epoch and sample. So the number of workers
changes nothing but the speed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.data import DataLoader, Dataset

from harness.components.augmentation import ImageTransform
from harness.components.dataset import DataSet, Split
from harness.components.loader import WHOLE, Batch, EpochOrder, Share
from harness.data.loader import Normalise, Planner, copied, shared, windows_of
from harness.data.randomness import seeded
from harness.errors import DataError, InvalidConfiguration
from harness.seeds import derive

PREFETCH = 2
"""Batches that each worker has ready."""

Key = tuple[int, int]
"""A sample's number, and how often it came before in the epoch."""


def workers(device: torch.device | str) -> int:
    """How many processes read images: `HARNESS_DATA_WORKERS`, or 4 for a GPU; none for a CPU, whose cores train."""
    text = os.environ.get("HARNESS_DATA_WORKERS", "")
    if not text:
        return 0 if torch.device(device).type == "cpu" else 4
    if not text.isdecimal():
        raise InvalidConfiguration(f"HARNESS_DATA_WORKERS must be a whole number from 0 on, not {text!r}")
    return int(text)


class StreamLoader:
    """Shuffled, transformed batches of a split that is read image by image.

    Images are read ahead until the end of the epoch and not beyond it: the order of the next one may depend on the
    training.
    """

    def __init__(
        self,
        split: Split,
        dataset: DataSet,
        batch_size: int,
        seed: int,
        device: torch.device | str = "cpu",
        order: EpochOrder | None = None,
        transforms: Sequence[ImageTransform] = (),
        share: Share = WHOLE,
    ) -> None:
        self.split, self.dataset, self.batch_size, self.seed = split, dataset, batch_size, seed
        self.device, self.transforms, self.share = torch.device(device), transforms, share
        self.plan = Planner(len(split), dataset, seed, "cpu", order)
        self.normalise = Normalise(dataset, device)
        self.workers = workers(device)
        self._ahead: tuple[int, Iterator[tuple[Tensor, Tensor]]] | None = None
        """The step whose batch comes next, and the batches from there to the end of the epoch."""

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.split) // self.batch_size)

    def batch(self, step: int) -> Batch:
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._ahead is None or self._ahead[0] != step:
            self.close()
            self._ahead = step, self._from(epoch, position)
        images, labels = next(self._ahead[1])
        self._ahead = (step + 1, self._ahead[1]) if position + 1 < self.steps_per_epoch else None
        plan = self.plan(epoch)
        indices = self._indices(plan.order, position)
        padding = self.dataset.crop_padding
        if padding or self.dataset.flip:
            offsets = plan.offsets[indices] if padding else None
            flips = plan.flips[indices] if self.dataset.flip else None
            size = images.shape[2], images.shape[3]
            images = windows_of(pad(images, (padding,) * 4), torch.arange(len(images)), size, offsets, flips)
        images, labels, indices = (copied(one, self.device) for one in (images, labels, indices))
        return Batch(self.normalise(images), labels, indices)

    def close(self) -> None:
        """End the workers."""
        self._ahead = None  # the iterator ends them when it is collected, which is now

    def _indices(self, order: Tensor, position: int) -> Tensor:
        return shared(order[position * self.batch_size : (position + 1) * self.batch_size], self.share)

    def _from(self, epoch: int, position: int) -> Iterator[tuple[Tensor, Tensor]]:
        samples = Samples(self.split, self.dataset, self.transforms, self.seed, epoch)
        return batches(samples, self._keys(self.plan(epoch).order, position), self.workers)

    def _keys(self, order: Tensor, position: int) -> Iterator[list[Key]]:
        """The keys of the epoch's batches from that position on."""
        times = occurrences(order) if self.transforms else torch.zeros_like(order)
        for place in range(position, self.steps_per_epoch):
            numbers, before = (self._indices(one, place).tolist() for one in (order, times))
            yield list(zip(numbers, before, strict=True))


def occurrences(order: Tensor) -> Tensor:
    """For each place in the order, how often its sample came before."""
    grouped, places = torch.sort(order, stable=True)
    count = torch.arange(len(order))
    first = torch.ones(len(order), dtype=torch.bool)
    first[1:] = grouped[1:] != grouped[:-1]
    begun = torch.where(first, count, 0).cummax(0).values  # where each sample's group begins
    return torch.empty_like(order).scatter_(0, places, count - begun)


class Samples(Dataset[tuple[Tensor, Tensor]]):
    """The samples of one epoch of training, transformed; or of an evaluation (`transforms` and `seed` None)."""

    def __init__(
        self,
        split: Split,
        dataset: DataSet,
        transforms: Sequence[ImageTransform] | None = None,
        seed: int = 0,
        epoch: int = 0,
    ) -> None:
        self.split, self.dataset, self.transforms = split, dataset, transforms
        self.seed, self.epoch = seed, epoch

    def __getitem__(self, key: Key) -> tuple[Tensor, Tensor]:
        index, occurrence = key
        pixels, label = self.split.sample(index)
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 3:
            what = f"{getattr(pixels, 'dtype', type(pixels).__name__)} of shape {np.shape(pixels)}"
            raise DataError(f"{self.dataset.name}: image {index} must be channels×height×width bytes, not {what}")
        # A copy: a transform may work in place, and a source may hand out a part of a read-only file.
        image = torch.from_numpy(np.array(pixels))
        if self.transforms:
            with seeded(derive(self.seed, "transforms", self.epoch, index, *([occurrence] if occurrence else []))):
                for transform in self.transforms:
                    image = transform(image)
        return self._fitted(image, index), self._label(label, index)

    def _fitted(self, image: Tensor, index: int) -> Tensor:
        """The image at the split's size: scaled until its shorter side fits, and cut at the centre."""
        shape = tuple(self.split.shape)
        if image.shape[1:] != shape[1:]:
            from torchvision.transforms.v2 import functional

            scale = max(wanted / given for wanted, given in zip(shape[1:], image.shape[1:], strict=True))
            size = [max(wanted, round(side * scale)) for wanted, side in zip(shape[1:], image.shape[1:], strict=True)]
            image = functional.center_crop(functional.resize(image, size, antialias=True), list(shape[1:]))
        if tuple(image.shape) != shape or image.dtype != torch.uint8:
            found = f"{image.dtype} of shape {tuple(image.shape)}"
            raise DataError(f"{self.dataset.name}: image {index} must be uint8 of shape {shape}, not {found}")
        return image

    def _label(self, label: Any, index: int) -> Tensor:
        classes = self.dataset.classes
        if isinstance(label, np.ndarray) and label.ndim:
            if label.shape != (classes,) or self.transforms is None:
                wanted = f"{classes} probabilities" if self.transforms is not None else "a class"
                raise DataError(f"{self.dataset.name}: the label of image {index} must be {wanted}, not {label}")
            return torch.from_numpy(label.astype(np.float32))
        if not 0 <= int(label) < classes:
            raise DataError(f"{self.dataset.name}: the label of image {index} must be 0 to {classes - 1}, not {label}")
        return torch.tensor(int(label))


def batches(samples: Samples, keys: Iterable[list[Key]], processes: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Images (bytes) and labels of these batches, in this order, read ahead by so many processes."""
    ahead: dict[str, Any] = {}
    if processes:
        # Forked: users' sources are in modules under private names, which another start could not import.
        ahead = {"multiprocessing_context": "fork", "prefetch_factor": PREFETCH, "worker_init_fn": _end_with_parent}
    generator = torch.Generator()  # or DataLoader would draw from the global one
    loader = DataLoader(samples, batch_sampler=keys, num_workers=processes, generator=generator, **ahead)
    return iter(loader)


def _end_with_parent(worker: int) -> None:
    """A worker must not outlive a killed training: it would hold the training's claim and pipes."""
    for number in (signal.SIGINT, signal.SIGTERM):  # those of the training are not for its workers
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(OSError, AttributeError):  # not Linux: torch's watchdog ends the worker within seconds
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
