"""A trial's checkpoint: one file in a work folder, written atomically. Imports torch only to save and load.

The file starts with one line of JSON, of fixed length: what made it, and a checksum over that and everything
that follows. Then comes a document of plain types and tensors as `torch.save` writes it. Loading never runs
code that the file might contain. This module does not know what the state means: see `harness.training.state`.

The file name is derived from the trial's key and from everything that is measured during the run, so that
another request for the same trial never resumes from a state that has observed something else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from harness.documents import canonical
from harness.errors import HarnessError, NotReadable, is_machines_fault
from harness.files import living_writer, make_durable, make_folder, open_regular, write
from harness.interruption import held_back

if TYPE_CHECKING:
    from harness.study.trial import Trial

SCHEMA = 2
"""Changes with the format of the file, and of the document in it (`harness.training.state`)."""

SUFFIX = ".checkpoint"
_HEADER = 1024
"""Bytes of the first line, including the newline."""


class CheckpointNotWritten(HarnessError, OSError):
    """The folder of checkpoints cannot be used. The previous checkpoint is kept."""

    def __str__(self) -> str:
        return f"cannot write the checkpoint {self.filename}: {self.strerror}"


class Checkpoint:
    """One trial's checkpoint. Owned by the process that runs the trial."""

    def __init__(
        self,
        folder: Path,
        trial: Trial,
        *,
        every: float = 60.0,
        threads: int,
        device: str,
        run: str | None = None,
        ranks: int = 1,
    ) -> None:
        """`every`: minimum number of seconds between two periodic saves. `run`: the run whose weights are ranked.

        `ranks` is the number of processes that train together.
        """
        request = _request(trial, run)
        self.path = checkpoint_path(folder, trial, run)
        self.every = every
        # A state must match all of these for a resumed run to give the bytes of an uninterrupted run.
        self._made = {"key": trial.key, "request": request, "threads": threads, "device": device.partition(":")[0]}
        self._ranks = ranks
        self._last = time.monotonic()
        self._asked_often = self._stop = self._failing = False
        self.trained = False
        """Whether training is over in the state that is saved next: any number of ranks may continue from there."""
        self.tell: Callable[[str], object] = print
        """Tells why a checkpoint is not used, or not written."""

    def due(self) -> bool:
        """Whether it is time to save."""
        return self._stop or time.monotonic() - self._last >= self.every

    @contextlib.contextmanager
    def asked_often(self) -> Iterator[None]:
        """Within the block, `due` is called repeatedly, so that `request_stop` takes effect."""
        self._asked_often = True
        try:
            yield
        finally:
            self._asked_often = False

    def request_stop(self) -> bool:
        """For signal handlers: make the trial save its state and raise KeyboardInterrupt, unless it ends first.

        False if `due` is not called here, or a stop was already requested: then the handler should raise at once.
        """
        if self._stop or not self._asked_often:
            return False
        self._stop = True
        return True

    def save(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint by this state: plain types and tensors, in dictionaries, lists and tuples.

        If it cannot be written, the previous checkpoint stays. An error that is the machine's fault, such as a full
        disk, is told, and the next save tries again; another raises `CheckpointNotWritten`. If `request_stop` caused
        the save, raises KeyboardInterrupt after it. A SIGTERM during the save is handled after it, too.
        """
        import torch

        check_plain(state, "state")
        made = self._made | {"schema": SCHEMA, "torch": torch.__version__}
        made |= {"ranks": self._ranks, "trained": self.trained}

        def fill(file: IO[bytes]) -> None:
            file.write(b" " * _HEADER)
            body = _Body(file, hashlib.sha256(canonical(made).encode()))
            torch.save(state, body)  # type: ignore[arg-type]
            if body.error is not None:
                raise body.error
            header = canonical(made | {"length": body.length, "sha256": body.digest.hexdigest()}).encode()
            file.seek(0)
            file.write(header.ljust(_HEADER - 1) + b"\n")

        try:
            make_folder(self.path.parent)
            with held_back():
                write(self.path, fill)
                make_durable(self.path.parent)
        except OSError as error:
            failure = CheckpointNotWritten(error.errno, error.strerror or str(error), str(self.path))
            if not self._stop and not is_machines_fault(error):
                raise failure from error
            if not self._failing:
                self.tell(f"{failure}" + ("" if self._stop else f"; the next try is in {self.every:g} s"))
            self._failing = True
        else:
            self._failing = False
        self._last = time.monotonic()
        if self._stop:
            raise KeyboardInterrupt

    def load(self) -> dict[str, Any] | None:
        """The stored state, its tensors on the CPU; None if there is no checkpoint, or an unusable one (prints why).

        Raises `NotReadable` if the machine cannot read it now: training would start again, and replace it.
        Removes half-written files of killed processes, and a damaged checkpoint.
        """
        import torch

        from harness.documents import refusal

        _clear_away(self.path)
        try:
            with open_regular(self.path) as file:
                self._check(file, torch.__version__)
                file.seek(_HEADER)
                state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
                return state
        except FileNotFoundError:
            return None
        except _Damaged as error:
            self.remove()
            why = f"it is damaged ({error}) and was removed"
        except _Foreign as error:
            why = str(error)
        except Exception as error:  # a state that torch cannot read: start over
            if is_machines_fault(error):
                raise NotReadable(f"cannot read the checkpoint {self.path}: {refusal(error)}") from error
            why = f"it cannot be read: {refusal(error)}"
        self.tell(f"not resuming from the checkpoint {self.path}: {why}")
        return None

    def remove(self) -> None:
        """Remove the checkpoint: the trial is done, or it is of no use."""
        remove_checkpoint(self.path)

    def _check(self, file: IO[bytes], torch_version: str) -> None:
        """Raise `_Damaged` or `_Foreign` unless the file holds a complete state that this process can resume from."""
        header = _read_header(file)
        if header.get("schema") != SCHEMA:
            raise _Foreign(f"it has schema {header.get('schema')}, this version reads {SCHEMA}")
        _verify(file, header)
        for name, wanted in {**self._made, "torch": torch_version}.items():
            if header.get(name) != wanted:
                raise _Foreign(f"{name} was {header.get(name)}, now it is {wanted}")
        ranks = header.get("ranks", 1)
        if ranks != self._ranks and not header.get("trained"):
            raise _Foreign(
                f"its training was under way with --ranks {ranks}, now it is {self._ranks}, which adds in another "
                "order; training starts again"
            )


class FollowedCheckpoint(Checkpoint):
    """The checkpoint in a process of a group that is not the first: read when the trial starts, never written."""

    def due(self) -> bool:
        return False

    def request_stop(self) -> bool:
        return False

    def save(self, state: dict[str, Any]) -> None:
        """The first process saves."""

    def remove(self) -> None:
        """The first process removes it."""


def checkpoint_path(folder: Path, trial: Trial, run: str | None = None) -> Path:
    """Where the checkpoint of a request for that trial is, or that of a ranking of a run's weights."""
    return folder / f"{trial.key[:16]}-{_request(trial, run)[:16]}{SUFFIX}"


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint, and the half-written files of killed processes: its trial is done, or it is of no use."""
    path.unlink(missing_ok=True)
    _clear_away(path)


def _request(trial: Trial, run: str | None) -> str:
    known_by = [trial.config.json(), trial.ranking_key, *([f"ranking of {run}"] if run else [])]
    return hashlib.sha256(canonical(known_by).encode()).hexdigest()


def _clear_away(path: Path) -> None:
    """Remove half-written files, but not those that another process is writing: it may not know yet that it has lost
    the trial."""
    for left in path.parent.glob(f".{path.name}.*"):
        with contextlib.suppress(FileNotFoundError):
            if living_writer(left) in (None, os.getpid()):
                left.unlink()


@dataclass(frozen=True)
class StoredCheckpoint:
    """A checkpoint in a work folder, or the half-written file of a killed process."""

    path: Path
    key16: str
    """The first 16 digits of the trial's key."""
    size: int
    mtime: float


def stored_checkpoints(folder: Path) -> list[StoredCheckpoint]:
    """All checkpoints of a work folder, including unfinished ones, sorted by name."""
    return sorted(_stored(folder), key=lambda one: one.path.name)


def _stored(folder: Path) -> Iterator[StoredCheckpoint]:
    for path in [*folder.glob(f"*{SUFFIX}"), *folder.glob(f".*{SUFFIX}.*")]:
        with contextlib.suppress(FileNotFoundError):  # removed by its owner just now
            status = path.stat()
            yield StoredCheckpoint(path, path.name.lstrip(".").partition("-")[0], status.st_size, status.st_mtime)


class _Damaged(Exception):
    """The file is not what was written."""


class _Foreign(Exception):
    """The file is intact, but this process cannot resume from it."""


class _Body:
    """The target of `torch.save`: hashes and counts the bytes on their way to the file.

    An error is kept, not raised: torch would replace it by one that does not mention the disk.
    """

    def __init__(self, file: IO[bytes], digest: hashlib._Hash) -> None:
        self.file, self.digest, self.length = file, digest, 0
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        size = memoryview(data).nbytes
        if self.error is None:
            try:
                self.file.write(data)
            except OSError as error:
                self.error = error
        self.digest.update(data)
        self.length += size
        return size

    def flush(self) -> None:
        """Does nothing: the file is flushed when it is complete."""


def _read_header(file: IO[bytes]) -> dict[str, Any]:
    line = file.read(_HEADER)
    try:
        header = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _Damaged("its first line is not JSON") from error
    if len(line) != _HEADER or not isinstance(header, dict):
        raise _Damaged("its first line is incomplete")
    return header


def _verify(file: IO[bytes], header: dict[str, Any]) -> None:
    made = {name: value for name, value in header.items() if name not in ("length", "sha256")}
    digest, length = hashlib.sha256(canonical(made).encode()), 0
    while block := file.read(1 << 20):
        digest.update(block)
        length += len(block)
    if length != header.get("length"):
        raise _Damaged(f"{length} bytes instead of {header.get('length')}")
    if digest.hexdigest() != header.get("sha256"):
        raise _Damaged("wrong checksum")


_PLAIN = (bool, int, float, str, bytes, type(None))


def check_plain(value: Any, where: str) -> None:
    """Refuse values that could be stored, but not loaded again."""
    import torch

    kind = type(value)
    if kind in _PLAIN or isinstance(value, torch.Tensor):
        return
    if kind in (dict, OrderedDict):
        for key, item in value.items():
            check_plain(key, f"a key of {where}")
            check_plain(item, f"{where}[{key!r}]")
    elif kind in (list, tuple):
        for item in value:
            check_plain(item, where)
    else:
        raise HarnessError(f"{where} is a {kind.__module__}.{kind.__qualname__}; only plain types and tensors are kept")
