"""A trial's checkpoint: one file in a work folder, whole or not there. Imports torch only to save and load.

The file is one line of JSON, of fixed length (what made it, and a checksum over that and all that
follows), and then a document of plain types and tensors as `torch.save` writes it. It is loaded without
running any code that it might hold. It knows nothing of what the state means; that is `harness.training.state`.

A name is made of the trial's key and of everything that is measured on the way, so that another request
of the same trial never goes on from a state that has observed something else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from harness.documents import canonical
from harness.errors import HarnessError
from harness.files import living_writer, make_durable, write
from harness.interruption import held_back

if TYPE_CHECKING:
    from harness.study.trial import Trial

SCHEMA = 2
"""Changes with the file's form, and with that of the document in it (`harness.training.state`)."""

SUFFIX = ".checkpoint"
_HEADER = 1024
"""Bytes of the first line, its end included."""


class CheckpointNotWritten(HarnessError, OSError):
    """The disk is full, or the folder cannot be written to. The checkpoint before it is still there."""

    def __str__(self) -> str:
        return f"cannot write the checkpoint {self.filename}: {self.strerror}"


class Checkpoint:
    """One trial's checkpoint. Owned by the process that runs the trial."""

    def __init__(self, folder: Path, trial: Trial, *, every: float = 60.0, threads: int, device: str) -> None:
        """`every`: the least number of seconds between two saves that nothing but time asks for."""
        request = hashlib.sha256(canonical([trial.config.json(), trial.ranking_key]).encode()).hexdigest()
        self.path = folder / f"{trial.key[:16]}-{request[:16]}{SUFFIX}"
        self.every = every
        # What a state must agree in for its continuation to give the bytes of an uninterrupted run.
        self._made = {"key": trial.key, "request": request, "threads": threads, "device": device.partition(":")[0]}
        self._last = time.monotonic()
        self._asked_often = self._stop = False

    def due(self) -> bool:
        """Whether it is time to save."""
        return self._stop or time.monotonic() - self._last >= self.every

    @contextlib.contextmanager
    def asked_often(self) -> Iterator[None]:
        """Within, `due` is asked again and again, so that `request_stop` is heard."""
        self._asked_often = True
        try:
            yield
        finally:
            self._asked_often = False

    def request_stop(self) -> bool:
        """For signal handlers: have the trial save its state and raise KeyboardInterrupt, unless it ends before.

        False where nobody would hear, or was told before: then the handler should raise at once.
        """
        if self._stop or not self._asked_often:
            return False
        self._stop = True
        return True

    def save(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint by this state: plain types and tensors, in dictionaries, lists and tuples.

        Raises `CheckpointNotWritten`, and leaves the one before as it was. When `request_stop` asked for the
        save, raises KeyboardInterrupt after it; a SIGTERM that comes meanwhile is heard after it, too.
        """
        import torch

        _check_plain(state, "state")
        made = self._made | {"schema": SCHEMA, "torch": torch.__version__}

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
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with held_back():
                write(self.path, fill)
                make_durable(self.path.parent)
        except OSError as error:
            failure = CheckpointNotWritten(error.errno, error.strerror or str(error), str(self.path))
            if not self._stop:
                raise failure from error
            print(failure)  # whoever interrupts wants an end, not a failure
        self._last = time.monotonic()
        if self._stop:
            raise KeyboardInterrupt

    def load(self) -> dict[str, Any] | None:
        """The stored state, its tensors on the CPU; None, after a line that says why, if there is none to go on from.

        What a killed process left half-written is removed, and so is a damaged checkpoint.
        """
        import torch

        self._clear_away()
        try:
            with self.path.open("rb") as file:
                self._check(file, torch.__version__)
                file.seek(_HEADER)
                state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
                return state
        except FileNotFoundError:
            return None
        except _Damaged as error:
            self.path.unlink(missing_ok=True)
            why = f"it is damaged ({error}) and was removed"
        except _Foreign as error:
            why = str(error)
        except Exception as error:  # a disk that fails, or a state that torch does not read: begin anew
            why = f"it cannot be read: {error}"
        print(f"not going on from the checkpoint {self.path}: {why}")
        return None

    def remove(self) -> None:
        """The trial is done."""
        self.path.unlink(missing_ok=True)
        self._clear_away()

    def _check(self, file: IO[bytes], torch_version: str) -> None:
        """Raise `_Damaged` or `_Foreign` unless the file holds a whole state that can be gone on from here."""
        header = _read_header(file)
        if header.get("schema") != SCHEMA:
            raise _Foreign(f"it has schema {header.get('schema')}, this version reads {SCHEMA}")
        _verify(file, header)
        for name, wanted in {**self._made, "torch": torch_version}.items():
            if header.get(name) != wanted:
                raise _Foreign(f"{name} was {header.get(name)}, now it is {wanted}")

    def _clear_away(self) -> None:
        """Remove what was left half-written, but not what another process is writing: it may not know yet that
        the trial is no longer its own.
        """
        for left in self.path.parent.glob(f".{self.path.name}.*"):
            with contextlib.suppress(FileNotFoundError):
                if living_writer(left) in (None, os.getpid()):
                    left.unlink()


@dataclass(frozen=True)
class StoredCheckpoint:
    """A checkpoint in a work folder, or what a killed process left of one that it was writing."""

    path: Path
    key16: str
    """The first 16 digits of its trial's key."""
    size: int
    mtime: float


def stored_checkpoints(folder: Path) -> list[StoredCheckpoint]:
    """All checkpoints of a work folder, unfinished ones too, by name."""
    return sorted(_stored(folder), key=lambda one: one.path.name)


def _stored(folder: Path) -> Iterator[StoredCheckpoint]:
    for path in [*folder.glob(f"*{SUFFIX}"), *folder.glob(f".*{SUFFIX}.*")]:
        with contextlib.suppress(FileNotFoundError):  # removed by its owner just now
            status = path.stat()
            yield StoredCheckpoint(path, path.name.lstrip(".").partition("-")[0], status.st_size, status.st_mtime)


class _Damaged(Exception):
    """The file is not what was written."""


class _Foreign(Exception):
    """The file is whole, but not for this process."""


class _Body:
    """What `torch.save` writes into: hashed and counted on its way to the file.

    An error is kept, not raised: torch would turn it into one that says nothing of the disk.
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
        """The file is flushed when all is in it."""


def _read_header(file: IO[bytes]) -> dict[str, Any]:
    line = file.read(_HEADER)
    try:
        header = json.loads(line)
    except ValueError as error:
        raise _Damaged("its first line is no JSON") from error
    if len(line) != _HEADER or not isinstance(header, dict):
        raise _Damaged("its first line is not whole")
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
        raise _Damaged("another checksum")


_PLAIN = (bool, int, float, str, bytes, type(None))


def _check_plain(value: Any, where: str) -> None:
    """Refuse now what could be stored, but not loaded again."""
    import torch

    kind = type(value)
    if kind in _PLAIN or isinstance(value, torch.Tensor):
        return
    if kind in (dict, OrderedDict):
        for key, item in value.items():
            _check_plain(key, f"a key of {where}")
            _check_plain(item, f"{where}[{key!r}]")
    elif kind in (list, tuple):
        for item in value:
            _check_plain(item, where)
    else:
        raise HarnessError(f"{where} is a {kind.__module__}.{kind.__qualname__}; only plain types and tensors are kept")
