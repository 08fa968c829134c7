"""Batches of images that are read one at a time: torch's `DataLoader` decodes and transforms them, ahead of training.

The order, the crops and the mirroring are those of `harness.data.loader`: the same images give the same bits, streamed
or in memory. Transforms draw from rngs that are a function of seed, epoch and sample. So the number of workers
changes nothing but the speed.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.data import DataLoader, Dataset

from harness.components.augmentation import ImageTransform
from harness.components.dataset import DataSet, Split
from harness.components.loader import WHOLE, Batch, EpochOrder, Share, part_of
from harness.data.loader import Normalise, Planner, copied, windows_of
from harness.data.randomness import preserved
from harness.errors import DamagedImage, DataError, InvalidConfiguration
from harness.seeds import derive

MOST_DAMAGED = 0.001
"""The share of a split's images that may be unreadable; one image always may."""

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


def fitting(processes: int, batch: int) -> int:
    """How many of the workers have room for their batches, of so many bytes each, in the shared memory.

    A container may have little, and a worker without room is killed by a bus error. Prints a line if fewer can be used.
    """
    needed = batch * (PREFETCH + 1)  # one more is being read or used
    room = min(processes, shared_memory() // max(1, needed))
    if room < processes:
        print(
            f"{room} of {processes} data workers: {SHARED} has room for {shared_memory() >> 20} MB, all of them need "
            f"{processes * needed >> 20} MB (a container gets more by --shm-size)",
            file=sys.stderr,
            flush=True,
        )
    return room


SHARED = Path("/dev/shm")
"""Where workers put batches."""


def shared_memory() -> int:
    """Free bytes of the shared memory; without limit where the system has none of that kind."""
    try:
        found = os.statvfs(SHARED)
    except OSError:
        return 1 << 62
    return found.f_bavail * found.f_frsize


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
        self.workers = fitting(workers(device), batch_size * math.prod(split.shape) // share.size)
        self.left_out = LeftOut(split, dataset)
        self._ahead: tuple[int, Iterator[Read]] | None = None
        """The step whose batch comes next, and the batches from there to the end of the epoch."""

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.split) // self.batch_size)

    def batch(self, step: int) -> Batch:
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._ahead is None or self._ahead[0] != step:
            self.close()
            self._ahead = step, self._from(epoch, position)
        images, labels, kept, damaged = next(self._ahead[1])
        self.left_out.note(damaged)
        if not len(kept):
            raise DataError(f"{self.dataset.name}: no image of a batch can be read: {damaged[0].reason}")
        self._ahead = (step + 1, self._ahead[1]) if position + 1 < self.steps_per_epoch else None
        plan = self.plan(epoch)
        indices = self._indices(plan.order, position)[kept]
        padding = self.dataset.crop_padding
        if padding or self.dataset.flip:
            offsets = plan.offsets[indices] if padding else None
            flips = plan.flips[indices] if self.dataset.flip else None
            size = images.shape[2], images.shape[3]
            images = windows_of(pad(images, (padding,) * 4), torch.arange(len(images)), size, offsets, flips)
        images, labels, indices = (copied(one, self.device) for one in (images, labels, indices))
        batch = Batch(self.normalise(images), labels, indices)
        if self.share.size == 1:
            return batch
        whole = len(self._planned(plan.order, position))
        read = self.share.sum(len(kept)) if self.share.sum else whole
        return part_of(batch, len(kept) / read, self.share.of(whole).start, whole)

    def close(self) -> None:
        """End the workers."""
        self._ahead = None  # the iterator ends them when it is collected, which is now

    def _planned(self, order: Tensor, position: int) -> Tensor:
        return order[position * self.batch_size : (position + 1) * self.batch_size]

    def _indices(self, order: Tensor, position: int) -> Tensor:
        planned = self._planned(order, position)
        return planned[self.share.of(len(planned))]

    def _from(self, epoch: int, position: int) -> Iterator[Read]:
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


class Read(NamedTuple):
    """A batch as it was read: bytes and labels, the places in the batch of what is there, and what could not be read.

    Damaged images are left out, so a batch with one of them is smaller, or even empty.
    """

    images: Tensor
    labels: Tensor
    kept: Tensor
    damaged: list[Damaged]


class Damaged(NamedTuple):
    """An image that could not be read: its number, and why."""

    number: int
    reason: str


class LeftOut:
    """Counts the damaged images of a split. Each is named once on standard error; many of them end the trial."""

    def __init__(self, split: Split, dataset: DataSet) -> None:
        self.name, self.total, self.reasons = dataset.name, len(split), dict[int, str]()
        self.most = max(1, int(len(split) * MOST_DAMAGED))

    def note(self, damaged: Sequence[Damaged]) -> None:
        """Raises `DataError` when too many images of the split are damaged."""
        for number, reason in damaged:
            if number in self.reasons:
                continue
            self.reasons[number] = reason
            print(f"{self.name}: left out: {reason}", file=sys.stderr, flush=True)
            if len(self.reasons) > self.most:
                raise DataError(
                    f"{self.name}: {len(self.reasons)} of {self.total:,} images cannot be read, more than "
                    f"{MOST_DAMAGED:.1%}; the last: {reason}"
                )


class Samples(Dataset["tuple[Tensor, Tensor] | Damaged"]):
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

    def __getitems__(self, keys: Sequence[Key]) -> list[tuple[Tensor, Tensor] | Damaged]:
        """The samples of a batch; torch's `DataLoader` asks for all of them at once."""
        if not self.transforms:
            return [self._read(key) for key in keys]
        with preserved() as reseed:
            return [self._read(key, reseed) for key in keys]

    def __getitem__(self, key: Key) -> tuple[Tensor, Tensor] | Damaged:
        return self.__getitems__([key])[0]

    def _read(self, key: Key, reseed: Callable[[int], None] | None = None) -> tuple[Tensor, Tensor] | Damaged:
        index, occurrence = key
        try:
            pixels, label = self.split.sample(index)
        except DamagedImage as error:
            return Damaged(index, str(error))
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 3:
            what = f"{getattr(pixels, 'dtype', type(pixels).__name__)} of shape {np.shape(pixels)}"
            raise DataError(f"{self.dataset.name}: image {index} must be channels×height×width bytes, not {what}")
        # A copy: a transform may work in place, and a source may hand out a part of a read-only file.
        image = torch.from_numpy(np.array(pixels))
        if self.transforms and reseed is not None:
            reseed(derive(self.seed, "transforms", self.epoch, index, *([occurrence] if occurrence else [])))
            for transform in self.transforms:
                image = transform(image)
        return self._fitted(image, index), self._label(label, index)

    def _fitted(self, image: Tensor, index: int) -> Tensor:
        """The image at the split's size: scaled until its shorter side fits, and cut at the centre."""
        shape = tuple(self.split.shape)
        if image.shape[1:] != shape[1:]:
            from torchvision.transforms.v2 import functional

            scale = max(wanted / given for wanted, given in zip(shape[1:], image.shape[1:], strict=True))
            scale /= getattr(self.split, "crop_ratio", 1.0)
            size = [max(wanted, round(side * scale)) for wanted, side in zip(shape[1:], image.shape[1:], strict=True)]
            how = functional.InterpolationMode(getattr(self.split, "interpolation", "bilinear"))
            if size != list(image.shape[1:]):
                image = functional.resize(image, size, interpolation=how, antialias=True)
            image = functional.center_crop(image, list(shape[1:]))
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


def collated(items: Sequence[tuple[Tensor, Tensor] | Damaged]) -> Read:
    """One batch of the samples that could be read."""
    there = {place: one for place, one in enumerate(items) if not isinstance(one, Damaged)}
    damaged = [one for one in items if isinstance(one, Damaged)]
    if not there:  # the last batch of a split may be a single image
        return Read(torch.empty(0), torch.empty(0), torch.empty(0, dtype=torch.long), damaged)
    first, _ = next(iter(there.values()))
    # As decoders write pixels and as networks read them: colours side by side. Bytes are turned once, here.
    images = torch.empty((len(there), *first.shape), dtype=first.dtype, memory_format=torch.channels_last)
    for place, (image, _) in enumerate(there.values()):
        images[place] = image
    return Read(images, torch.stack([label for _, label in there.values()]), torch.tensor(list(there)), damaged)


def batches(samples: Samples, keys: Iterable[list[Key]], processes: int) -> Iterator[Read]:
    """These batches, in this order, read ahead by so many processes."""
    ahead: dict[str, Any] = {}
    if processes:
        # Forked: users' sources are in modules under private names, which another start could not import.
        start = partial(_end_with_parent, os.getpid())
        ahead = {"multiprocessing_context": "fork", "prefetch_factor": PREFETCH, "worker_init_fn": start}
    generator = torch.Generator()  # or DataLoader would draw from the global one
    loader = DataLoader(
        samples, batch_sampler=keys, num_workers=processes, generator=generator, collate_fn=collated, **ahead
    )
    return iter(loader)


def _end_with_parent(parent: int, worker: int) -> None:
    """A worker must not outlive a killed training: it would hold the training's claim and pipes."""
    for number in (signal.SIGINT, signal.SIGTERM):  # those of the training are not for its workers
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(OSError, AttributeError):  # not Linux: torch's watchdog ends the worker within seconds
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it ended before it could be watched
        os._exit(1)
