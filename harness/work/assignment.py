"""What a child process does: the document that its worker leaves in the folder of an attempt.

It names no store and no database, and holds no environment variables: the folder is all that a child knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from harness.errors import DataError
from harness.files import make_folder, write_json
from harness.schema import Naming
from harness.stores.directory.reading import read_small
from harness.stores.directory.run_directory import INPUTS
from harness.study.trial import Trial
from harness.work.states import Kind

ASSIGNMENT, KNOWN = "assignment.json", "known.json"
"""Files in `INPUTS`, besides the weights that are ranked."""


@dataclass(frozen=True)
class Computing:
    """How trials are computed, whatever they are. None of this is part of a trial's identity."""

    threads: int = 1
    device: str | None = None
    """As the child names it; None for the best available one."""
    ranks: int = 1
    """Processes that train a trial together; each learns its own place from the worker."""
    checkpoint_every: float = 60.0
    compile: bool = False
    """Whether torch compiles the operations of networks."""
    timeout: float | None = None
    """Seconds after which a trial fails; the worker measures them."""


@dataclass(frozen=True)
class Assignment:
    """The input of a child, with the files beside it."""

    kind: Kind
    trial: Trial
    computing: Computing = Computing()
    preset: str = ""
    checkpoints: Path | None = None
    """The folder of checkpoints; None for one in the child's own folder, which lasts as long as that."""
    naming: Naming | None = None
    """What the studies that request the trial call it; None without a study."""
    start: Mapping[str, Any] | None = None
    """The ranking of the search that the trial starts from; None for a trial without a parent."""
    run: str | None = None
    """The run whose weights are ranked."""
    again: bool = False
    """Whether to compute a stored ranking again, because the code of its metrics has changed."""
    profile: Path | None = None
    """The folder to profile the trial into; see `harness.training.profiling`."""
    references: tuple[str, ...] = field(default=())
    """The names of the references to make."""

    def json(self) -> dict[str, Any]:
        """As plain JSON types."""
        document = {one.name: getattr(self, one.name) for one in fields(self)}
        return document | {
            "kind": self.kind.value,
            "trial": self.trial.json(),
            "computing": asdict(self.computing),
            "checkpoints": self.checkpoints and str(self.checkpoints),
            "profile": self.profile and str(self.profile),
            "references": list(self.references),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Assignment:
        """The assignment of such a document. Raises what `Trial.from_json` raises."""
        typed = {
            "kind": Kind(document["kind"]),
            "trial": Trial.from_json(document["trial"]),
            "computing": Computing(**document["computing"]),
            "checkpoints": document["checkpoints"] and Path(document["checkpoints"]),
            "profile": document["profile"] and Path(document["profile"]),
            "references": tuple(document["references"]),
        }
        return cls(**{**document, **typed})

    def write(self, folder: Path) -> None:
        """Leave it in the folder of an attempt. Raises `OSError`."""
        make_folder(folder / INPUTS)
        write_json(folder / INPUTS / ASSIGNMENT, self.json())

    @classmethod
    def read(cls, folder: Path) -> Assignment:
        """The assignment in a folder. Raises `DataError` if there is none that this version can read."""
        path = folder / INPUTS / ASSIGNMENT
        try:
            return cls.from_json(read_small(path))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: not an assignment of this version ({error})") from error
