"""Out of memory: a trial's own failure, which names the settings that would help."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator

import torch

from harness.errors import HarnessError
from harness.study.configuration import RunConfig

_GPU = re.compile(r"CUDA|cuda|CUBLAS|CUDNN|CUSOLVER|CUSPARSE|NCCL|nccl")
_LACK = re.compile(r"can't allocate memory|(CUDA|Cuda|cuda).*out of memory|_ALLOC_FAILED|cudaErrorMemoryAllocation")
"""Errors for which torch has no class: at the start of CUDA, of its libraries, and of the machine."""


class OutOfMemory(HarnessError):
    """The trial needs more memory than its device, or its machine, has left."""


@contextlib.contextmanager
def memory_explained(config: RunConfig, ranks: int = 1) -> Iterator[None]:
    """Within the block, an error for lack of memory becomes `OutOfMemory`."""
    try:
        yield
    except (RuntimeError, MemoryError, OSError) as error:
        if not is_out_of_memory(error):
            raise
        on_gpu = isinstance(error, torch.OutOfMemoryError) or bool(_GPU.search(str(error)))
        where, advice = "GPU" if on_gpu else "machine", _advice(config, on_gpu, ranks)
        raise OutOfMemory(f"out of memory on the {where}: {_beginning(error)}. {advice}") from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was missing: a GPU's, or the machine's, for which torch has no class of its own."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and bool(_LACK.search(str(error)))


def _beginning(error: BaseException, most: int = 200) -> str:
    """The first sentences of the error: torch adds a page of advice about its allocator."""
    text = " ".join(str(error).split()).removeprefix("CUDA out of memory. ") or type(error).__name__
    return (text[:most].rpartition(". ")[0] or text[:most] if len(text) > most else text).rstrip(".")


def _advice(config: RunConfig, on_gpu: bool, ranks: int) -> str:
    """What would need less memory, the settings that keep the trial the same first."""
    stage, settings = ("train", config.train) if config.retrain is None else ("retrain", config.retrain)
    sizes = [f"{stage}.batch_size={settings.batch_size}"]
    if config.retrain is None:
        sizes.append(f"rank.batch_size={config.rank.batch_size}")
    fewer = "fewer trials on one GPU (--per-device)" if on_gpu else "fewer trials at once (--jobs)"
    # Ranks of one machine share its memory: only those with a device each have more.
    more = f", more ranks (--ranks {2 * ranks}: each has a part of the batch and a GPU of its own)" if on_gpu else ""
    coarser = f", {stage}.precision=bfloat16" if on_gpu and settings.precision in ("float32", "tf32") else ""
    return f"This would help: {fewer}{more}; or, as another trial, smaller batches (now {', '.join(sizes)}){coarser}"
