"""The emulated device: a kind of device of its own for torch, whose tensors keep their values on the CPU.

It refuses what CUDA refuses: an operation on tensors of two devices, pinned tensors of the device, a generator of the
CPU, `numpy()`. It counts every operation, and every wait of the CPU for the device, with the line of the project that
causes it. Torch's own autograd, optimisers, gradient scaler, autocast and checkpoints run as on a GPU. Values are those
of the CPU, so a trial on it gives the bytes of a trial on a CPU without the faster code that only CPUs have.

It shows nothing of speed, of the arithmetic and determinism of real kernels, of nccl, or of a lack of memory. Importing
this module registers the device with torch for the rest of the process: only processes of checks and tests do.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

from harness.environment import PROJECT

NAME = "emulated"
MODEL = "emulated GPU"
MEMORY = 16 << 30
"""Bytes that it says are free."""
OURS = tuple(f"{PROJECT / folder}/" for folder in ("harness", "methods", "spaces"))
VIEWS = frozenset(
    [
        *("alias", "as_strided", "detach", "diagonal", "expand", "lift_fresh", "permute", "select", "slice", "split"),
        *("split_with_sizes", "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze", "view", "_reshape_alias"),
        *("_unsafe_view", "empty", "empty_like", "empty_strided", "new_empty"),
    ]
)
"""Operations that compute nothing."""
WAITS = frozenset(["_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2"])
"""Operations whose result the CPU waits for."""
INDEXED = frozenset(["index", "index_put", "index_put_", "_index_put_impl_"])
MOVES = frozenset(["_to_copy", "copy_", "_foreach_copy_"])

UNORDERED = frozenset(
    [
        *("put_", "histc", "bincount", "kthvalue", "median", "cumsum", "_ctc_loss_backward", "_embedding_bag_backward"),
        *("scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_", "index_add", "index_add_", "index_copy"),
        *("index_copy_", "index_reduce", "index_reduce_", "grid_sampler_2d_backward", "grid_sampler_3d_backward"),
        *("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward", "avg_pool3d_backward"),
        *("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward", "max_pool3d_with_indices_backward"),
        *("fractional_max_pool2d_backward", "fractional_max_pool3d_backward", "max_unpool2d", "max_unpool3d"),
        *("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward"),
        *("replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward"),
        *("upsample_linear1d_backward", "upsample_bilinear2d_backward", "upsample_bicubic2d_backward"),
        *("upsample_trilinear3d_backward", "_upsample_bilinear2d_aa_backward", "_upsample_bicubic2d_aa_backward"),
        *("_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_efficient_attention_backward"),
    ]
)
"""Operations whose results on CUDA depend on the order in which threads finish, by the documentation of
`torch.use_deterministic_algorithms`. Assignments by indices (`index_put_`) count by their arguments."""

generator = torch.Generator()
"""The random numbers of the device."""
operations: Counter[str] = Counter()
"""Operations on the device, by name."""
copies: Counter[str] = Counter()
"""Copies from the CPU to the device, by line."""
waits: Counter[str] = Counter()
"""Waits of the CPU for the device, by operation and line."""
unordered: Counter[str] = Counter()
"""Operations that CUDA does not order, by name and line."""


class WrongDevice(RuntimeError):
    """What CUDA refuses, too."""


class EmulatedTensor(torch.Tensor):
    """A tensor of the device."""

    raw: torch.Tensor
    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, raw: torch.Tensor) -> EmulatedTensor:
        like = {"strides": raw.stride(), "storage_offset": raw.storage_offset(), "dtype": raw.dtype}
        make: Any = torch.Tensor._make_wrapper_subclass
        made: EmulatedTensor = make(cls, raw.size(), device=torch.device(NAME, 0), **like)
        made.raw = raw
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:  # as checkpoints are loaded: on the CPU
        raw: Any = self.raw.detach()
        return raw.__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            made: torch.Tensor = EmulatedTensor(self.raw.detach().clone())
            parameter = isinstance(self, torch.nn.Parameter)
            memo[id(self)] = torch.nn.Parameter(made, self.requires_grad) if parameter else made
        return memo[id(self)]

    def tolist(self) -> Any:
        waits[f"tolist {place()}"] += 1
        return self.raw.tolist()

    def numpy(self, **options: Any) -> Any:
        raise TypeError("can't convert a tensor of the emulated device to numpy. Use Tensor.cpu() first")

    __array__: Any = numpy

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's own has no types
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return run(func, args, kwargs or {})


def place() -> str:
    """The innermost line of the project, or of the user's folder (as ./methods/mine.py:7), that is running."""
    here = f"{Path.cwd()}/"
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(OURS) and file != __file__:
            return f"{file.removeprefix(f'{PROJECT}/')}:{frame.f_lineno}"
        if file.startswith(here) and not file.startswith((f"{PROJECT}/", sys.prefix)):
            return f"./{file.removeprefix(here)}:{frame.f_lineno}"
        frame = frame.f_back
    return "elsewhere"


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run one operation: on the values, if a tensor is on the device or its result is to be."""
    name, tensors = func.overloadpacket.__name__, list[torch.Tensor]()
    _changed((args, kwargs), tensors.append)
    there = [one for one in tensors if isinstance(one, EmulatedTensor)]
    here = [one for one in tensors if not isinstance(one, EmulatedTensor)]
    target = None if kwargs.get("device") is None else torch.device(kwargs["device"]).type
    if name == "is_pinned":
        return False
    if name == "_pin_memory":
        if there:
            raise WrongDevice("only dense CPU tensors can be pinned")
        return args[0].clone()
    if not there and target != NAME:
        return func(*args, **kwargs)
    if kwargs.get("generator") is not None:
        raise WrongDevice(f"{func}: the generator is one of the CPU, at {place()}")
    first = args[0] if args else None
    on_device = isinstance(first[0] if isinstance(first, list) and first else first, EmulatedTensor)
    moves, indexes = name in MOVES, name in INDEXED and on_device
    if there and not moves and not indexes and any(one.dim() for one in here):
        raise WrongDevice(f"{func}: tensors on two devices, at {place()}")
    if moves and here:
        copies[place()] += 1
    _count(name, args, waits_for=bool(moves and there and (target == "cpu" or not on_device)), indexes=indexes)
    own = {key: value for key, value in kwargs.items() if not (name == "_to_copy" and key == "non_blocking")}
    if target == NAME:
        own["device"] = "cpu"
    draws, chosen, aliases = _nature(func)
    if draws and chosen:
        own["generator"] = generator
    raw, own = _changed((args, own), lambda one: one.raw if isinstance(one, EmulatedTensor) else one)
    with _random_numbers() if draws and not chosen else contextlib.nullcontext():
        result = func(*raw, **own)
    if moves and (target == "cpu" or (name == "copy_" and not on_device)):
        return args[0] if name == "copy_" else result
    result = result.clone() if name == "_to_copy" and result is raw[0] else result
    if not aliases:
        return _changed(result, EmulatedTensor)
    correct: Any = return_and_correct_aliasing
    return correct(func, args, kwargs, _changed(result, EmulatedTensor))


@cache
def _nature(func: Any) -> tuple[bool, bool, bool]:
    """Whether the operation draws random numbers, can be given a generator, and has results that share memory with its
    arguments."""
    arguments, returned = func._schema.arguments, func._schema.returns
    aliases = any(one.alias_info is not None for one in (*arguments, *returned))
    chosen = any(one.name == "generator" for one in arguments)
    return chosen or torch.Tag.nondeterministic_seeded in func.tags, chosen, aliases


@contextlib.contextmanager
def _random_numbers() -> Iterator[None]:
    """Context in which operations that take no generator draw the random numbers of the device."""
    before = torch.default_generator.get_state()
    torch.default_generator.set_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(torch.default_generator.get_state())
        torch.default_generator.set_state(before)


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """The arguments or results of an operation with their tensors changed. Torch's own walk takes longer."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple | list):
        return type(value)([_changed(one, change) for one in value])
    if isinstance(value, dict):
        return {key: _changed(one, change) for key, one in value.items()}
    return value


def _count(name: str, args: Any, waits_for: bool, indexes: bool) -> None:
    masks = indexes and any(torch.is_tensor(one) and one.dtype == torch.bool for one in args[1])
    if name in WAITS or masks or waits_for:
        waits[f"{name} {place()}"] += 1
    if name not in VIEWS:
        operations[f"{name} with bias" if _has_bias(name, args) else name] += 1
    # (values, indices, new values, whether these are added)
    assigns = name.startswith(("index_put", "_index_put")) and not any(args[3:4]) and not masks
    if name in UNORDERED or assigns:
        unordered[f"{name} {place()}"] += 1


def _has_bias(name: str, args: Any) -> bool:
    """Whether it is a convolution with a bias, or the gradient of one: CUDA has a kernel of its own for the bias."""
    return (name == "convolution" and args[2] is not None) or (name == "convolution_backward" and args[-1][2])


def _lowered(operation: Any) -> Any:
    """The operation as autocast runs it: floating-point tensors are rounded to its type first."""

    def run_lowered(*args: Any, **kwargs: Any) -> Any:
        kind = torch.get_autocast_dtype(NAME)

        def cast(one: torch.Tensor) -> torch.Tensor:
            return one.to(kind) if isinstance(one, EmulatedTensor) and one.dtype == torch.float32 else one

        keys: Any = torch._C.DispatchKey
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(keys.AutocastPrivateUse1)):
            args, kwargs = _changed((args, kwargs), cast)
            return operation(*args, **kwargs)

    return run_lowered


LOWERED = ("conv2d", "linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "scaled_dot_product_attention")
"""Operations that autocast runs in half precision, as on CPUs, so that values can be compared."""

_library: Any = torch.library.Library
_autocast = [_library("_", "IMPL"), _library("aten", "IMPL")]
"""Registered as long as these exist."""


def _register_autocast() -> None:
    _autocast[0].fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for name in LOWERED:
        _autocast[1].impl(name, _lowered(getattr(torch.ops.aten, name)), "AutocastPrivateUse1")


class _Dispatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


@contextlib.contextmanager
def emulated() -> Iterator[None]:
    """Context in which the device can be used. Counts begin at zero."""
    for counts in (operations, copies, waits, unordered):
        counts.clear()
    lift: Any = torch._C._set_only_lift_cpu_tensors
    lift(True)  # torch.tensor(…, device=…) is then a copy, which is counted
    try:
        with _Dispatch():  # type: ignore[no-untyped-call]
            yield
    finally:
        lift(False)


class _Module:
    """As much of `torch.cuda` as `harness.data.devices` and torch itself use."""

    started = False

    def __getattr__(self, name: str) -> Any:
        known: dict[str, Any] = {"is_available": True, "_is_in_bad_fork": False, "current_device": 0, "device_count": 1}
        known |= {
            "get_device_name": MODEL,
            "mem_get_info": (MEMORY, MEMORY),
            "get_amp_supported_dtype": [torch.float16, torch.bfloat16],
        }
        if name not in known:
            raise AttributeError(name)
        return lambda *given: known[name]

    def init(self) -> None:
        self.started = True

    def is_initialized(self) -> bool:
        return self.started

    def max_memory_allocated(self, device: Any = None) -> int:
        self._require_start()
        return 0

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        self._require_start()

    def _require_start(self) -> None:
        if not self.started:
            raise RuntimeError("Invalid device argument 0: did you call init?")

    def manual_seed(self, seed: int) -> None:
        generator.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return generator.get_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        generator.set_state(state)

    def synchronize(self, device: Any = None) -> None:
        waits[f"synchronize {place()}"] += 1

    def device(self, which: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def _register() -> None:
    from torch.utils import backend_registration

    register: Any = backend_registration._setup_privateuseone_for_python_backend
    register(NAME, _Module())
    _register_autocast()


_register()
