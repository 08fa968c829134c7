"""Retrains rows of a computed table and compares them with the stored ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.components.registries import DATASETS
from harness.environment import pool
from harness.errors import DataError
from harness.truth.build import BuildPlan, environment, train_rows
from harness.truth.table import Table


@dataclass(frozen=True)
class VerifiedRow:
    """One class: correct answers on the test images, stored and retrained."""

    number: int
    stored: list[int]
    again: list[int]
    exact: bool
    within: bool
    same_machine: bool


def table_plan(table: Table) -> BuildPlan:
    """The plan that a table was made by, from its provenance."""
    known = BuildPlan.__dataclass_fields__
    return BuildPlan.from_json({key: table.provenance[key] for key in known if key in table.provenance})


def verify_rows(table: Table, sample: int, seed: int, jobs: int) -> Iterator[VerifiedRow]:
    """Retrain `sample` random rows, in `jobs` processes; yields them one by one."""
    plan = table_plan(table)
    if (present := DATASETS.get(plan.dataset)().checksum()) != plan.data_checksum:
        raise DataError(
            f"the table was made on other images: data set {plan.dataset!r} had the checksum {plan.data_checksum}, "
            f"and now has {present}"
        )
    same = environment() in table.provenance["environments"]
    rows = random.Random(seed).sample(range(len(table.classes)), min(sample, len(table.classes)))
    numbers = [int(table.classes[row]) for row in rows]
    spread = _pooled_deviation(table)
    with _workers(jobs) as each:
        trained = each(_train_one, [plan.json()] * len(numbers), numbers)
        for row, (number, valid, test) in zip(rows, trained, strict=True):
            stored = table.test[row].tolist()
            distance = abs(np.mean(stored) - np.mean(test))
            yield VerifiedRow(
                number=number,
                stored=stored,
                again=test,
                exact=stored == test and table.valid[row].tolist() == valid,
                # Two means of k seeds differ by less than four of their standard errors.
                within=bool(distance <= 4 * spread * np.sqrt(2 / table.seeds)),
                same_machine=same,
            )


@contextmanager
def _workers(jobs: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """A `map` over that many processes; one job runs in this process."""
    if jobs == 1:
        yield map
        return
    with pool(jobs) as workers:
        yield workers.map


def _train_one(plan: dict[str, Any], number: int) -> tuple[int, list[int], list[int]]:
    import torch

    torch.set_num_threads(1)
    ((number, valid, test),) = train_rows(BuildPlan.from_json(plan), [number])
    return number, valid, test


def _pooled_deviation(table: Table) -> float:
    """The deviation between seeds, pooled over all classes, in correct answers."""
    if table.seeds < 2:
        return float(table.test.max())
    return float(np.sqrt(table.test.astype(np.float64).var(1, ddof=1).mean()))
