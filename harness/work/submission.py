"""Workers as arrays of SLURM: how many, with which options, and the script that starts them. Imports no torch.

A trial whose row needs more than the others, GPUs or memory, is run by workers of an array of its own.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError
from harness.study.layout import memory_bytes
from harness.study.study import Study
from harness.work.states import Work

WARNING = 300
"""Most seconds before the end of its time at which SLURM tells a worker to save."""

_TIME = re.compile(r"(?:(\d+)-)?(\d+(?::\d+){0,2})")
"""A time as sbatch reads it: minutes, minutes:seconds, hours:minutes:seconds, and after days- hours first."""

_GPUS = re.compile(r"(gpu(?::[a-zA-Z]\w*)?)(?::(\d+))?")
"""A request for GPUs, of a kind or any, with their number."""

_OURS = ("array", "parsable", "wrap")
"""Options that only the harness may set."""


@dataclass(frozen=True)
class Needs:
    """What a trial needs beyond what the others get."""

    gpus: int | None = None
    memory: str | None = None

    @classmethod
    def of(cls, work: Work, studies: Iterable[Study]) -> Needs:
        """The needs of a trial: the most that a row which requests it says. One GPU, or a part, is nothing special."""
        rows = [study.rows[one.row] for study in studies for one in work.requests if one.study == study.name]
        gpus = [int(row.devices) for row in rows if row.devices is not None and row.devices > 1]
        memory = [row.memory for row in rows if row.memory is not None]
        return cls(max(gpus, default=None), max(memory, key=memory_bytes, default=None))

    @classmethod
    def parse(cls, text: str) -> Needs:
        """The needs of a text as `str` gives it. Raises `UserError`."""
        if text == "none":
            return cls()
        found = dict(part.partition("=")[::2] for part in text.split(","))
        if not {*found} <= {"gpus", "memory"} or not found.get("gpus", "1").isdigit() or "" in found.values():
            raise UserError(f"{text!r} is not what trials need: give gpus=2, memory=32G, both with a comma, or none")
        return cls(int(found["gpus"]) if "gpus" in found else None, found.get("memory"))

    def __str__(self) -> str:
        named = {"gpus": self.gpus, "memory": self.memory}
        return ",".join(f"{name}={value}" for name, value in named.items() if value is not None) or "none"

    def options(self, given: Mapping[str, str]) -> dict[str, str]:
        """The options of an array for such trials, of those for all."""
        options = dict(given)
        if self.gpus is not None:
            given_gpus = _GPUS.fullmatch(options.get("gres", ""))
            options["gres"] = f"{given_gpus[1] if given_gpus else 'gpu'}:{self.gpus}"
        if self.memory is not None:
            options["mem"] = self.memory
        return options


@dataclass(frozen=True)
class Array:
    """Workers of equal needs."""

    needs: Needs
    trials: int
    """How many trials they share."""
    workers: int


def parse_options(text: str) -> dict[str, str]:
    """Options of sbatch by name, from a text such as "partition=gpu gres=gpu:1 exclusive". Raises `UserError`."""
    found = {}
    for word in shlex.split(text):
        name, _, value = word.removeprefix("--").partition("=")
        if not re.fullmatch(r"[a-z][a-z-]*", name):
            raise UserError(f"--slurm: {word!r} is not a long option of sbatch: give name=value, as in partition=gpu")
        if name in _OURS:
            raise UserError(f"--slurm: {name} is set by the harness; --workers gives the number of tasks")
        found[name] = value
    return found


def warning(options: Mapping[str, str]) -> int:
    """Seconds before the end of its time at which a worker is warned: no more than a tenth of its time."""
    match = _TIME.fullmatch(options.get("time", ""))
    if match is None:
        return WARNING
    parts = [int(part) for part in match[2].split(":")]
    units = (3600, 60, 1) if match[1] or len(parts) == 3 else (60, 1)
    seconds = 86400 * int(match[1] or 0) + sum(part * unit for part, unit in zip(parts, units, strict=False))
    return max(1, min(WARNING, seconds // 10))


def check_ranks(options: Mapping[str, str], ranks: int) -> None:
    """Raise `UserError` if the options ask for GPUs, but for fewer than ranks."""
    match = _GPUS.fullmatch(options.get("gres", ""))
    if match and int(match[2] or 1) < ranks:
        raise UserError(
            f"--slurm: gres={options['gres']} is fewer than a GPU for each of {ranks} ranks: ask for gres=gpu:{ranks}"
        )


def arrays(left: Sequence[Work], studies: Sequence[Study], workers: int, limit: int | None) -> list[Array]:
    """The arrays that share so many workers, in proportion to their trials: no more than trials, nor than the limit."""
    found = []
    by_needs = Counter(Needs.of(work, studies) for work in left)
    for needs, trials in sorted(by_needs.items(), key=lambda item: str(item[0])):
        share = max(1, round(workers * trials / len(left)))
        found.append(Array(needs, trials, min(share, trials, limit or share)))
    return found


def script(array: Array, name: str, given: Mapping[str, str], command: Sequence[str], folder: Path, logs: Path) -> str:
    """The batch script of an array: every task becomes a worker, which gets SLURM's signals itself."""
    options = {
        "job-name": name,
        "signal": f"B:USR2@{warning(given)}",
        "requeue": "",
        "open-mode": "append",
        "output": str(logs / "%x-%A_%a.log"),
        **array.needs.options(given),
        "array": f"0-{array.workers - 1}",
    }
    lines = [f"#SBATCH --{key}={value}" if value else f"#SBATCH --{key}" for key, value in options.items()]
    return "\n".join(
        [
            "#!/bin/bash",
            *lines,
            "# Made by `harness submit`. The address of a database is not in here, but in the job's environment.",
            f"cd {shlex.quote(str(folder))} || exit 1",
            f"exec {shlex.join(command)}",
            "",
        ]
    )
