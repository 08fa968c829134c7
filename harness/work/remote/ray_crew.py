"""Workers as tasks of Ray. The only module that imports Ray, and only when it is used.

Ray starts tasks and says when they are lost; it holds neither a queue of trials nor results. A task is never repeated
by Ray (`max_retries=0`): the store knows what is left. Tasks end with the driver.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.stores.board import Board
from harness.work.agreement import Agreement
from harness.work.plan import Asked
from harness.work.remote.following import Heard
from harness.work.remote.parcel import pack
from harness.work.remote.pulling import Order
from harness.work.worker import Settings

LISTENING = 0.5
"""Most seconds of one `listen`."""

OBJECTS = 100 * 2**20
"""Bytes of the object store of a Ray that is started here: only lines of JSON go through it."""


@dataclass(frozen=True)
class Wanted:
    """What is asked of Ray."""

    address: str | None = None
    """Of the cluster; None for that of RAY_ADDRESS, or else for a Ray of this machine's own."""
    workers: int | None = None
    """How many trials run in parallel; None for as many as the cluster has room for."""
    cpus: float = 1.0
    gpus: float | None = None
    """Of each trial; None for one per rank if the cluster has any."""
    device: str | None = None
    ranks: int = 1
    """Processes of a trial."""

    def __post_init__(self) -> None:
        if self.address and self.address.startswith("ray://"):
            raise UserError(
                f"--ray-address {self.address}: Ray's client cannot follow tasks; run the command on a machine of the "
                "cluster, with HOST:6379 or auto"
            )
        if self.gpus is not None and self.gpus > 1 and self.gpus != self.ranks:
            raise UserError(
                f"--gpus-per-trial {self.gpus:g}: a trial computes on one GPU per rank, and has --ranks {self.ranks}"
            )
        if self.gpus and self.device == "cpu":
            raise UserError(f"--gpus-per-trial {self.gpus:g} and --device cpu exclude each other")


@contextlib.contextmanager
def crew_of(asked: Asked, settings: Settings, wanted: Wanted, board: Board) -> Iterator[RayCrew]:
    """The workers of a cluster, to be started. Raises `UserError` if Ray is not installed or not there.

    The board is told the files of this machine: workers with others are refused.
    """
    require_ray()
    ray: Any = importlib.import_module("ray")
    with tempfile.TemporaryDirectory(prefix="harness-") as folder:
        parcel = pack(asked, Path(folder))
        _connect(ray, wanted, parcel.folder)
        try:
            there = ray.cluster_resources()
            gpus = wanted.gpus
            if gpus is None:
                gpus = float(wanted.ranks) if wanted.device != "cpu" and there.get("GPU", 0) >= 1 else 0.0
            room = int(there.get("CPU", 0) // wanted.cpus)
            room = min(room, int(there.get("GPU", 0) // gpus)) if gpus else room
            Agreement.of(asked, board).tell()
            order = Order.of(asked, settings, parcel, wanted.device, wanted.ranks)
            needs = f"{wanted.cpus:g} CPUs" + (f" and {gpus:g} GPUs" if gpus else "")
            yield RayCrew(ray, order, wanted.workers or max(1, room), wanted.ranks, needs, wanted.cpus, gpus)
        finally:
            ray.shutdown()


def require_ray() -> None:
    """Raise `UserError` if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise UserError("--executor ray needs Ray, which is not installed: pip install 'nas-harness[ray]'")


def _connect(ray: Any, wanted: Wanted, folder: Path) -> None:
    """Connect to the cluster, or start a Ray on this machine alone."""
    address = wanted.address or os.environ.get("RAY_ADDRESS")
    own: dict[str, Any] = (
        {}
        if address
        else {
            "address": "local",
            "num_cpus": max(os.cpu_count() or 1, round(wanted.cpus * (wanted.workers or 1))),
            "object_store_memory": OBJECTS,
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
        }
    )
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            **{"address": address, **own},
            runtime_env={"working_dir": str(folder)},
            log_to_driver=False,
            logging_level="ERROR",
            configure_logging=False,
        )
    except Exception as error:  # Ray raises errors of many kinds, also plain ones
        where = f"the Ray cluster {address}" if address else "Ray"
        raise UserError(f"cannot use {where}: {' '.join(str(error).split())}") from error
    finally:
        signal.signal(signal.SIGTERM, before)  # Ray puts a handler of its own in its place


def _task() -> Callable[..., Iterator[str]]:
    """The task. It is sent by value, because on a machine without the harness its module could not be imported."""

    def worker(sender: str, packed: bytes) -> Iterator[str]:
        import json
        import platform
        import sys

        import ray

        try:
            from harness.work.remote.pulling import pull
        except ImportError as error:
            text = (
                f"the harness cannot be imported on {platform.node()} by {sys.executable} ({error}): install "
                "nas-harness there; an editable installation is not sent along"
            )
            yield json.dumps([{"event": "refused", "error": text}])
            return
        yield from pull(sender, packed, [str(gpu) for gpu in ray.get_gpu_ids()])

    return worker


@dataclass
class RayCrew:
    """A `Crew` of tasks of Ray."""

    ray: Any
    order: Order
    wanted: int
    ranks: int
    needs: str
    cpus: float
    gpus: float
    tasks: dict[int, Any] = field(default_factory=dict)

    def start(self, worker: int) -> None:
        options = {"num_cpus": self.cpus, "num_gpus": self.gpus, "max_retries": 0}
        self.tasks[worker] = self.ray.remote(**options)(_task()).remote(*self.order.packed())

    def listen(self) -> Iterator[Heard]:
        numbers = {task: number for number, task in self.tasks.items()}
        ready, _ = self.ray.wait(list(numbers), num_returns=1, timeout=LISTENING, fetch_local=False)
        if ready:  # and all others that are
            ready, _ = self.ray.wait(list(numbers), num_returns=len(numbers), timeout=0, fetch_local=False)
        for task in ready:
            number = numbers[task]
            try:
                messages = json.loads(self.ray.get(next(task)))
            except StopIteration:
                del self.tasks[number]
                yield Heard(number, over=True)
            except self.ray.exceptions.RayError as error:
                del self.tasks[number]
                yield Heard(number, lost=_why(error))
            else:
                yield Heard(number, tuple(messages))

    def stop(self) -> None:
        for task in self.tasks.values():
            with contextlib.suppress(self.ray.exceptions.RayError, ValueError):
                self.ray.cancel(task)

    def drop(self, worker: int) -> None:
        task = self.tasks.pop(worker, None)
        if task is not None:
            with contextlib.suppress(self.ray.exceptions.RayError, ValueError):
                self.ray.cancel(task, force=True)


def _why(error: Exception) -> str:
    """The first sentence of Ray's error."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text.partition('. ')[0][:200]}"
