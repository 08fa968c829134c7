"""Batch normalisation that several ranks share is batch normalisation of the whole batch, and costs few passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import batch_norm
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from harness.training import parts
from harness.training.parts import Division, divided
from harness.training.ranks import ALONE, Ranks
from tests.parallel import in_group

SHAPE = (11, 6, 5, 4)
CUT = [0, 3, 7, 11]
"""Where each rank's part begins: parts have different lengths."""


def given(dtype: torch.dtype = torch.double) -> tuple[Tensor, ...]:
    """Images, weight, bias, and a gradient."""
    make = torch.Generator().manual_seed(0)
    images, gradient = (torch.randn(SHAPE, dtype=torch.double, generator=make) for _ in range(2))
    images = (3 * images + 2).to(dtype).contiguous(memory_format=torch.channels_last)
    weight, bias = (torch.rand(6, dtype=torch.double, generator=make).to(dtype) + 0.5 for _ in range(2))
    return images, weight, bias, gradient.to(dtype)


def shared(ranks: Ranks) -> Any:
    def normalise(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return parts._across(ranks, x, weight, bias, 1e-5, None)[0]

    return normalise


def derivatives(normalise: Any, images: Tensor, weight: Tensor, bias: Tensor, gradient: Tensor) -> dict[str, Tensor]:
    """What it returns, its gradients, and the gradients of these."""
    of = [one.clone().requires_grad_() for one in (images, weight, bias)]
    y = normalise(*of)
    first = torch.autograd.grad((y * gradient).sum() + y.pow(3).sum(), of, create_graph=True)
    second = torch.autograd.grad(first[0].square().sum(), of[:2])
    found = {"y": y, "images": first[0], "images twice": second[0]}
    return {name: one.detach() for name, one in found.items()} | {
        "weight, summed": first[1].detach(),
        "bias, summed": first[2].detach(),
        "weight twice, summed": second[1],
    }


def on_ranks(ranks: Ranks) -> dict[str, Any]:
    own = slice(CUT[ranks.index], CUT[ranks.index + 1])
    images, weight, bias, gradient = given()
    found: dict[str, Any] = dict(derivatives(shared(ranks), images[own], weight, bias, gradient[own]))
    norm = torch.nn.BatchNorm2d(6, dtype=torch.double)
    division = Division(1, ranks)
    division.prepare(norm)
    with divided(division):
        norm(images[own])
    found["running"] = [norm.running_mean, norm.running_var]
    return found


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    return in_group(3, on_ranks)


def test_several_ranks_normalise_as_one_batch(found: list[dict[str, Any]]) -> None:
    """The definition of synchronised batch normalisation, also differentiated twice."""
    wanted = derivatives(lambda x, weight, bias: batch_norm(x, None, None, weight, bias, True, 0.0, 1e-5), *given())
    for name, one in wanted.items():
        pieces = [rank[name] for rank in found]
        assert torch.allclose(sum(pieces) if "summed" in name else torch.cat(pieces), one, rtol=1e-10, atol=1e-10), name


def test_running_statistics_are_of_the_whole_batch(found: list[dict[str, Any]]) -> None:
    norm = torch.nn.BatchNorm2d(6, dtype=torch.double)
    norm(given()[0])
    for rank in found:
        assert torch.allclose(torch.stack(rank["running"]), torch.stack(list(norm.buffers())[:2]), rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_half_precision_takes_its_statistics_in_float32(dtype: torch.dtype) -> None:
    images, *_, gradient = given(dtype)
    weight, bias = (one.float() for one in given()[1:3])
    found, wanted = (
        derivatives(one, images, weight, bias, gradient)
        for one in (
            shared(ALONE),
            lambda x, weight, bias: batch_norm(x.float(), None, None, weight, bias, True, 0.0, 1e-5).to(dtype),
        )
    )
    assert found["y"].dtype == dtype and found["y"].is_contiguous(memory_format=torch.channels_last)
    for name in ("y", "images", "weight, summed", "bias, summed"):
        assert torch.allclose(found[name].float(), wanted[name].float(), rtol=1e-2, atol=1e-2), name


class Passes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts how often a tensor of the size of the images is read or written, and all operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.passes = self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        touched = [one for one in tree_leaves((args, kwargs, result)) if torch.is_tensor(one)]
        if not any(tag.name == "inplace_view" for tag in func.tags) and not func.is_view:
            self.operations += 1
            self.passes += sum(one.numel() == torch.Size(SHAPE).numel() for one in touched)
        return result


def test_shared_normalisation_moves_the_images_fifteen_times() -> None:
    images, weight, bias, gradient = given()
    of = [one.requires_grad_() for one in (images, weight, bias)]
    with Passes() as counted:
        y = shared(ALONE)(*of)
        torch.autograd.grad(y, of, gradient)
    assert counted.passes <= 15 and counted.operations <= 50, (counted.passes, counted.operations)
