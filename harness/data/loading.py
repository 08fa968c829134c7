"""Batches of any data set, for training and for evaluation: from memory or streamed, augmented as configured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from harness.components.augmentation import Augmentation, BatchAugmentation, BatchTransform, Order, Transform
from harness.components.dataset import DataSet, Split, Stream
from harness.components.loader import WHOLE, Batch, EpochOrder, Loader, Share, part_of
from harness.data.devices import accelerated, free_bytes, laid_out
from harness.data.loader import DeviceLoader, Normalise, copied, in_order
from harness.data.randomness import seeded
from harness.data.streaming import LeftOut, Samples, StreamLoader, batches, fitting, workers
from harness.errors import DataError, InvalidConfiguration
from harness.seeds import derive

FREE_SHARE = 0.5
"""The share of a GPU's free memory that images of evaluations may take: passes need the rest."""


def loader_for(
    dataset: DataSet,
    split: str,
    batch_size: int,
    seed: int,
    device: torch.device | str = "cpu",
    *,
    own_order: EpochOrder | None = None,
    order: Order | None = None,
    augment: Sequence[Augmentation] = (),
    share: Share = WHOLE,
    without: Sequence[int] = (),
) -> Loader:
    """The loader of a split ("train", "valid" or "test"): shuffled batches by step.

    `own_order` is a method's, and may leave an epoch to `order` by returning None; without both, an epoch is a
    random permutation. No batch has a sample of `without`: others, drawn at random, take their places.
    """
    for one in augment:
        if not isinstance(one, Transform | BatchAugmentation):
            raise InvalidConfiguration(f"{type(one).__name__} is neither a Transform nor a BatchAugmentation")
    images: Split = getattr(dataset, split)
    chosen = _order(len(images), seed, own_order, order)
    if without:
        chosen = _without(without, len(images), seed, chosen)
    transforms = [one.bind(dataset) for one in augment if isinstance(one, Transform)]
    on_batches = [one.bind(dataset) for one in augment if isinstance(one, BatchAugmentation)]
    read = WHOLE if on_batches else share  # images of a batch may be mixed: each process makes the whole of it
    loader: Loader
    if not isinstance(images, Stream) and not transforms:
        loader = DeviceLoader(images, dataset, batch_size, seed, device, chosen, read)
    else:
        loader = StreamLoader(images, dataset, batch_size, seed, device, chosen, transforms, read)
    return AugmentedLoader(loader, on_batches, seed, device, share) if on_batches else loader


def _order(count: int, seed: int, own: EpochOrder | None, order: Order | None) -> EpochOrder | None:
    if order is None:
        return own

    def chosen(epoch: int) -> Sequence[int] | Tensor | None:
        indices = own(epoch) if own else None
        if indices is None:
            with seeded(derive(seed, "order", epoch)):
                indices = order.indices(count, epoch)
        return indices

    return chosen


def _without(left_out: Sequence[int], count: int, seed: int, order: EpochOrder | None) -> EpochOrder:
    """The same order with other samples in the places of those that are left out."""
    allowed = torch.ones(count, dtype=torch.bool)
    allowed[list(left_out)] = False
    others = allowed.nonzero().flatten()

    def chosen(epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(derive(seed, "left out", epoch))
        given = order(epoch) if order else None
        indices = torch.randperm(count, generator=generator) if given is None else torch.as_tensor(given).long()
        stand_ins = others[torch.randint(len(others), (len(indices),), generator=generator)]
        return torch.where(allowed[indices], indices, stand_ins)

    return chosen


class AugmentedLoader:
    """Another loader's batches, changed as a whole. Step k draws from rngs that are a function of seed and step."""

    def __init__(
        self,
        loader: Loader,
        transforms: Sequence[BatchTransform],
        seed: int,
        device: torch.device | str,
        share: Share = WHOLE,
    ) -> None:
        self.loader, self.transforms, self.seed, self.device, self.share = loader, transforms, seed, device, share

    @property
    def steps_per_epoch(self) -> int:
        return self.loader.steps_per_epoch

    def batch(self, step: int) -> Batch:
        images, labels, indices = self.loader.batch(step)
        with seeded(derive(self.seed, "batch augmentation", step), self.device):
            for transform in self.transforms:
                images, labels = transform(images, labels)
        whole, part = len(labels), self.share.of(len(labels))
        images = laid_out(images[part])
        batch = Batch(images, labels[part], indices[part])
        return batch if self.share.size == 1 else part_of(batch, len(batch.labels) / whole, part.start, whole)

    def close(self) -> None:
        self.loader.close()


class EvaluationBatches(Sequence["tuple[Tensor, Tensor]"]):
    """A split's batches (images, labels) in its own order, without augmentation, as often as they are needed.

    Images that were in memory are held normalised on the device. Streamed ones are read once and held as bytes: on the
    GPU where they take at most half of its free memory, else in memory. Each use normalises them again.
    """

    def __init__(self, dataset: DataSet, images: Split, batch_size: int, device: torch.device | str = "cpu") -> None:
        self.device, self.images = device, _ImagesOf(self)
        self._normalise = Normalise(dataset, device) if isinstance(images, Stream) else None
        read = evaluation_batches if self._normalise is None else _streamed
        self._held = list(read(dataset, images, batch_size, device))
        self.labels = [copied(labels, device) for _, labels in self._held]
        if self._normalise is not None and accelerated(device):
            size = sum(pixels.numel() for pixels, _ in self._held)
            if size <= free_bytes(device) * FREE_SHARE:
                self._held = [(copied(pixels, device), labels) for pixels, labels in self._held]

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, number: Any) -> Any:
        images = self._held[number][0]
        if self._normalise is not None:
            images = self._normalise(copied(images, self.device))
        return images, self.labels[number]


class _ImagesOf(Sequence["Tensor"]):
    def __init__(self, batches: EvaluationBatches) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: Any) -> Any:
        return self.batches[number][0]


def evaluation_batches(
    dataset: DataSet, images: Split, batch_size: int, device: torch.device | str = "cpu"
) -> Iterator[tuple[Tensor, Tensor]]:
    """Iterate over a split (or its head) once, in its own order and without augmentation, as (images, labels)."""
    if not isinstance(images, Stream):
        yield from in_order(images, dataset, batch_size, device)
        return
    normalise = Normalise(dataset, device)
    for pixels, labels in _streamed(dataset, images, batch_size, device):
        yield normalise(copied(pixels, device)), copied(labels, device)


def _streamed(
    dataset: DataSet, images: Split, batch_size: int, device: torch.device | str
) -> Iterator[tuple[Tensor, Tensor]]:
    """Images as bytes, not on the device."""
    starts = range(0, len(images), batch_size)
    keys = ([(index, 0) for index in range(start, min(start + batch_size, len(images)))] for start in starts)
    left_out = LeftOut(images, dataset)
    processes = fitting(workers(device), batch_size * math.prod(images.shape))
    for read in batches(Samples(images, dataset), keys, processes):
        left_out.note(read.damaged)
        if len(read.kept):
            yield read.images, read.labels
        elif len(images) == len(read.damaged):
            raise DataError(f"{dataset.name}: no image can be read: {read.damaged[0].reason}")
