"""Out of memory: which errors mean it, and what the message says."""

from __future__ import annotations

import errno

import pytest
import torch

from harness.study.configuration import RunConfig
from harness.training.memory import OutOfMemory, memory_explained

PLAIN = RunConfig()
RETRAINED = RunConfig.from_json({"retrain": {"batch_size": 96}})


def test_a_real_lack_of_the_machines_memory_names_what_would_help() -> None:
    with pytest.raises(OutOfMemory, match="machine: .*can't allocate memory") as caught, memory_explained(RETRAINED):
        torch.empty(1 << 60)
    text = str(caught.value)
    assert "--jobs" in text and "retrain.batch_size=96" in text
    assert "--ranks" not in text and "rank.batch_size" not in text  # ranks would share the same memory


def test_a_lack_of_a_gpus_memory_names_the_settings_of_gpus() -> None:
    long = "CUDA out of memory. Tried to allocate 2 GiB. GPU 0 has 24 GiB. " + "See the documentation of torch. " * 20
    with pytest.raises(OutOfMemory) as caught, memory_explained(PLAIN, ranks=2):
        raise torch.OutOfMemoryError(long)
    text = str(caught.value)
    assert text.startswith("out of memory on the GPU: Tried to allocate 2 GiB. GPU 0 has 24 GiB. See")
    assert len(text) < 600 and "--per-device" in text and "--ranks 4" in text and "train.precision=bfloat16" in text


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "NCCL error in: ProcessGroupNCCL.cpp:2000, unhandled cuda error\nLast error: Cuda failure 2 'out of memory'",
    ],
)
def test_every_form_of_a_gpus_lack_of_memory_has_advice(text: str) -> None:
    with pytest.raises(OutOfMemory, match="^out of memory on the GPU: .*--per-device"), memory_explained(PLAIN):
        raise RuntimeError(text)


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_other_errors_stay_what_they_are(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, memory_explained(PLAIN):
        raise error
    assert caught.value is error


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory")])
def test_pythons_own_errors_count(error: BaseException) -> None:
    with pytest.raises(OutOfMemory, match="on the machine: "), memory_explained(PLAIN):
        raise error
