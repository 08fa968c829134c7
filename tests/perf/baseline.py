"""What speed is measured against: a NAS-Bench-201 supernet as most research code writes it.

One module for every operation of every edge, all in torch's default order of dimensions (NCHW), images
through a DataLoader that transforms them one by one, one SGD over all parameters, a loss that is read at
every step. It computes what ours computes: `weights_of` gives it the weights of one of our supernets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from harness.components.dataset import DataSet, Split
from harness.components.space import Architecture

EDGES = ((1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2))


class Zero(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mul(0.0)


class ReLUConvBN(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.op = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2),
            nn.BatchNorm2d(outputs, affine=False, track_running_stats=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.op(x)  # type: ignore[no-any-return]


class SearchCell(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.edges = nn.ModuleList(
            nn.ModuleList(
                [
                    Zero(),
                    nn.Identity(),
                    ReLUConvBN(channels, channels, 1),
                    ReLUConvBN(channels, channels, 3),
                    nn.AvgPool2d(3, 1, 1, count_include_pad=False),
                ]
            )
            for _ in EDGES
        )

    def forward(self, x: Tensor, architecture: Architecture) -> Tensor:
        nodes = [x]
        for node in (1, 2, 3):
            terms = [
                self.edges[edge][architecture[edge]](nodes[source])  # type: ignore[index]
                for edge, (target, source) in enumerate(EDGES)
                if target == node
            ]
            nodes.append(sum(terms[1:], terms[0]))
        return nodes[-1]


class ResidualReduction(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = ReLUConvBN(inputs, outputs, 3, 2)
        self.second = ReLUConvBN(outputs, outputs, 3)
        self.shortcut = nn.Sequential(nn.AvgPool2d(2, 2), nn.Conv2d(inputs, outputs, 1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)) + self.shortcut(x)  # type: ignore[no-any-return]


class PlainSupernet(nn.Module):
    def __init__(self, width: int, depth: int, classes: int, image_channels: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(image_channels, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width, affine=False, track_running_stats=False),
        )
        self.blocks = nn.ModuleList()
        for stage in range(3):
            if stage:
                self.blocks.append(ResidualReduction(width * 2 ** (stage - 1), width * 2**stage))
            self.blocks.extend(SearchCell(width * 2**stage) for _ in range(depth))
        self.last = nn.Sequential(
            nn.BatchNorm2d(4 * width, affine=False, track_running_stats=False), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        )
        self.classifier = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor, architecture: Architecture) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x, architecture) if isinstance(block, SearchCell) else block(x)
        return self.classifier(self.last(x).flatten(1))  # type: ignore[no-any-return]


def weights_of(ours: nn.Module, plain: PlainSupernet) -> None:
    """Give the plain supernet the weights of ours."""
    state = ours.state_dict()
    named: dict[str, Tensor] = {"stem.0.weight": state["stem.weight"]}
    named["classifier.weight"] = state["classifier.weight"].flatten(1)
    named["classifier.bias"] = state["classifier.bias"]
    for name, value in state.items():
        place = name.split(".")
        if place[0] != "blocks":
            continue
        if place[2] == "convolutions":
            edge, operation = place[3].split("_")
            named[f"blocks.{place[1]}.edges.{edge}.{operation}.op.1.{place[-1]}"] = value
        elif place[2] == "shortcut":
            named[f"blocks.{place[1]}.shortcut.1.weight"] = value
        else:
            named[f"blocks.{place[1]}.{place[2]}.op.1.{place[-1]}"] = value
    plain.load_state_dict({name: value.contiguous() for name, value in named.items()})


class ImageFolderLike(Dataset[tuple[Tensor, int]]):
    """Images one at a time, through PIL as torchvision's data sets do it."""

    def __init__(self, split: Split, transform: Any) -> None:
        self.images = np.ascontiguousarray(split.images.transpose(0, 2, 3, 1))
        self.labels = split.labels
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        pixels = self.images[index]
        image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
        return self.transform(image), int(self.labels[index])


def loader(dataset: DataSet, batch_size: int, workers: int) -> DataLoader[Any]:
    """Shuffled and augmented training batches."""
    steps: list[Any] = []
    if dataset.flip:
        steps.append(transforms.RandomHorizontalFlip())
    if dataset.crop_padding:
        steps.append(transforms.RandomCrop(dataset.image_size, padding=dataset.crop_padding))
    mean, std = [m / 255 for m in dataset.mean], [s / 255 for s in dataset.std]
    steps += [transforms.ToTensor(), transforms.Normalize(mean, std)]
    folder = ImageFolderLike(dataset.train, transforms.Compose(steps))
    return DataLoader(folder, batch_size, shuffle=True, num_workers=workers, persistent_workers=workers > 0)


class PlainTraining:
    """One SGD over all parameters."""

    def __init__(self, network: PlainSupernet, learning_rate: float = 0.025) -> None:
        self.network = network
        self.optimiser = torch.optim.SGD(
            network.parameters(), lr=learning_rate, momentum=0.9, nesterov=True, weight_decay=5e-4
        )
        self.criterion = nn.CrossEntropyLoss()

    def step(self, images: Tensor, labels: Tensor, architecture: Architecture) -> float:
        self.network.train()
        self.optimiser.zero_grad()
        loss = self.criterion(self.network(images, architecture), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 5.0)
        self.optimiser.step()
        return float(loss.item())
