"""Builds a table of ground truth: trains every class of equal networks of a space, on all cores.

The work is cut into pieces of a few classes. Each finished piece is one small file, written atomically,
so an interruption costs at most the unfinished pieces; the next call continues with the missing ones.
Pieces contain the plan they belong to: those of another plan are refused, never mixed. Every row is a
function of the plan alone, independent of the order and the number of workers.
"""

from __future__ import annotations

import json
import os
import platform
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.components.registries import DATASETS, SPACES
from harness.components.space import Network, Space
from harness.documents import one_line
from harness.environment import cpu_model, pool
from harness.errors import DataError, Diverged, HarnessError, UserError, where
from harness.files import make_durable, make_folder, write
from harness.seeds import derive
from harness.study.configuration import as_network
from harness.training.stages.standalone import StandaloneRecipe, train_standalone
from harness.truth.table import Table

CLASSES_A_PIECE = 24


@dataclass(frozen=True)
class BuildPlan:
    """Everything that determines a table's numbers (on one kind of CPU)."""

    space: str
    dataset: str
    data_checksum: str
    recipe: StandaloneRecipe
    seeds: int
    seed: int
    stacked: bool = True
    """Whether the networks of a class train as one; only spaces that stack them can (`Space.stacks`)."""
    network: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the network in place of the recipe's and the space's own."""

    @classmethod
    def make(
        cls,
        space: str,
        dataset: str,
        recipe: StandaloneRecipe,
        seeds: int,
        seed: int,
        network: Mapping[str, Any] | None = None,
    ) -> BuildPlan:
        stacked = seeds == 1 or SPACES.get(space).stacks
        plan = cls(space, dataset, DATASETS.get(dataset)().checksum(), recipe, seeds, seed, stacked, network or {})
        plan.settings()  # raises for settings that the space does not have
        return plan

    def settings(self) -> Any:
        """The settings of the networks; None for those of the recipe, or else the space's own."""
        if not self.network:
            return None
        sized = issubclass(SPACES.get(self.space).Network, Network)
        own = {"width": self.recipe.width, "depth": self.recipe.depth} if sized else {}
        return as_network(self.space, {**own, **self.network}, "network")

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> BuildPlan:
        return cls(**{**document, "recipe": StandaloneRecipe(**document["recipe"])})

    def json(self) -> dict[str, Any]:
        """Plain JSON types, without what was added after tables were made without it and has its default."""
        plain = asdict(self)
        added = {"stacked": True, "network": {}}
        return {key: value for key, value in plain.items() if key not in added or value != added[key]}


def class_numbers(space: Space) -> list[int]:
    """The representatives of all classes of equal networks, ascending."""
    return sorted({space.index(space.network_class(architecture)) for architecture in space})


def pieces(plan: BuildPlan, space: Space) -> dict[int, list[int]]:
    """Class numbers by piece. Shuffled, so that an unfinished table is a fair sample of the space."""
    numbers = class_numbers(space)
    random.Random(derive(plan.seed, "pieces")).shuffle(numbers)
    starts = range(0, len(numbers), CLASSES_A_PIECE)
    return {piece: numbers[start : start + CLASSES_A_PIECE] for piece, start in enumerate(starts)}


def train_rows(plan: BuildPlan, numbers: list[int], done: Callable[[], None] = lambda: None) -> list[list[Any]]:
    """Rows [class number, correct on valid per seed, correct on test per seed], trained now."""
    space = SPACES.get(plan.space)()
    dataset = DATASETS.get(plan.dataset)()
    rows = []
    for number in numbers:
        architecture = space.architecture(number)
        try:
            correct = train_standalone(
                space,
                architecture,
                dataset,
                plan.recipe,
                plan.seed,
                copies=plan.seeds,
                stacked=plan.stacked,
                network=plan.settings(),
            )
        except Diverged as error:
            raise HarnessError(
                f"class {number} ({space.format(architecture)}): {error}; no table can be made with this recipe, "
                "try a lower --learning-rate"
            ) from error
        except UserError:
            raise
        except Exception as error:  # of the space's own code, in a worker process
            own = SPACES.entries[plan.space].file
            at = "{}:{}: ".format(*place) if (place := where(own.parent, error)) else ""
            raise HarnessError(f"class {number} ({space.format(architecture)}): {at}{one_line(error)}") from error
        rows.append([number, list(correct.valid), list(correct.test)])
        done()
    return rows


def piece_file(work: Path, piece: int) -> Path:
    return work / f"piece-{piece:05d}.json"


def read_piece(work: Path, piece: int, plan: BuildPlan, numbers: list[int]) -> list[list[Any]] | None:
    """The rows of a finished piece, or None if it is missing.

    Raises `DataError` when it is damaged, of another plan, or not about the classes `numbers`.
    """
    path = piece_file(work, piece)
    try:
        document = json.loads(path.read_text())
        theirs, rows = document["plan"], document["rows"]
        classes = [number for number, valid, test in rows]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not a piece of a table ({error}); delete it to rebuild it") from error
    if theirs != plan.json():
        raise DataError(f"{path}: belongs to another plan; give this build its own folder (--work)")
    if classes != numbers:
        raise DataError(f"{path}: holds other classes than planned; delete it to rebuild it")
    found: list[list[Any]] = rows
    return found


def make_piece(plan_document: dict[str, Any], piece: int, numbers: list[int], work: str) -> tuple[int, int]:
    """Train and store one piece. Returns the piece and its number of classes."""
    import torch

    torch.set_num_threads(1)
    plan, start = BuildPlan.from_json(plan_document), time.process_time()
    rows = train_rows(plan, numbers)
    seconds = round(time.process_time() - start, 1)
    path = piece_file(Path(work), piece)
    document = {"plan": plan.json(), "environment": environment(), "seconds": seconds, "rows": rows}
    text = json.dumps(document, separators=(",", ":"))
    write(path, lambda file: file.write(text.encode()))
    make_durable(path.parent)
    return piece, len(numbers)


def build(plan: BuildPlan, work: Path, jobs: int) -> Iterator[tuple[int, int]]:
    """Make all missing pieces with `jobs` processes; yields (classes done, total classes) as they finish.

    One job runs in this process.
    """
    from concurrent.futures import as_completed

    space = SPACES.get(plan.space)()
    make_folder(work)
    planned = pieces(plan, space)
    total = sum(map(len, planned.values()))
    missing = {piece: numbers for piece, numbers in planned.items() if read_piece(work, piece, plan, numbers) is None}
    finished = total - sum(map(len, missing.values()))
    yield finished, total
    if not missing:
        return
    if jobs == 1:
        for piece, numbers in missing.items():
            finished += make_piece(plan.json(), piece, numbers, str(work))[1]
            yield finished, total
        return
    # Workers allocate and free the same small tensors over and over: keeping freed memory saves a tenth.
    os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", str(2**31))
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(2**31))
    workers = pool(jobs)
    try:
        futures = [
            workers.submit(make_piece, plan.json(), piece, numbers, str(work)) for piece, numbers in missing.items()
        ]
        for future in as_completed(futures):
            finished += future.result()[1]
            yield finished, total
    finally:
        # On an interruption, do not wait for the workers: their unfinished pieces are made again.
        workers.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class Progress:
    """What an unfinished build has: a table of the classes that are done."""

    plan: BuildPlan
    table: Table
    total: int
    """Classes of the space."""
    seconds: float | None
    """Seconds of one core per class; None where the pieces do not say."""
    missing: Path | None
    """The first piece that is missing, if any is."""


def progress(work: Path, plan: BuildPlan | None = None) -> Progress:
    """What the pieces in that folder hold; without a plan, by that of the first. Raises `DataError`."""
    plan = plan or _plan_in(work)
    space, dataset = SPACES.get(plan.space)(), DATASETS.get(plan.dataset)()
    planned = pieces(plan, space)
    found = {piece: rows for piece, numbers in planned.items() if (rows := read_piece(work, piece, plan, numbers))}
    documents = [json.loads(piece_file(work, piece).read_text()) for piece in found]
    rows = sorted(row for piece in found.values() for row in piece)
    if not rows:
        raise DataError(f"{work}: holds no piece of a table; make some with `{command(plan)} --work {work}`")
    timed = [(document["seconds"], len(document["rows"])) for document in documents if "seconds" in document]
    table = Table(
        np.array([row[0] for row in rows], np.int32),
        np.array([row[1] for row in rows], np.uint16),
        np.array([row[2] for row in rows], np.uint16),
        {
            **plan.json(),
            "images": {split: len(getattr(dataset, split)) for split in ("train", "valid", "test")},
            "environments": _distinct(document["environment"] for document in documents),
            "command": command(plan),
        },
    )
    return Progress(
        plan,
        table,
        total=sum(map(len, planned.values())),
        seconds=sum(seconds for seconds, _ in timed) / sum(count for _, count in timed) if timed else None,
        missing=next((piece_file(work, piece) for piece in planned if piece not in found), None),
    )


def assemble(plan: BuildPlan, work: Path) -> Table:
    """The table, from all its pieces. Raises `DataError` if one is missing."""
    made = progress(work, plan)
    if made.missing:
        raise DataError(f"{made.missing} is missing: run the build again to finish it")
    return made.table


def _plan_in(work: Path) -> BuildPlan:
    """The plan of the first piece in a folder."""
    for path in sorted(work.glob("piece-*.json")):
        try:
            return BuildPlan.from_json(json.loads(path.read_text())["plan"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: not a piece of a table ({error}); delete it to rebuild it") from error
    raise DataError(f"{work}: holds no piece of a table; `harness benchmark build --work {work}` makes them")


def _distinct(documents: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each of the documents once, in a fixed order."""
    return [json.loads(text) for text in sorted({json.dumps(one, sort_keys=True) for one in documents})]


def command(plan: BuildPlan) -> str:
    """The command line that makes this table."""
    recipe = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in asdict(plan.recipe).items())
    return (
        f"python -m harness benchmark build --space {plan.space} --data {plan.dataset} "
        f"--seeds {plan.seeds} --seed {plan.seed} {recipe}"
    ) + "".join(f" --network {key}={value}" for key, value in plan.network.items())


def environment() -> dict[str, str]:
    """What exact reproduction depends on: the kind of CPU, and torch's version and instruction set."""
    import torch

    return {
        "cpu": cpu_model(),
        "machine": platform.machine(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "threads": "1",
    }
