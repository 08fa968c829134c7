"""Reference rows: results of predictors without training, judged as the preset judges its runs.

They are computed here, per seed, and cached in the store, so that a second report is quick and needs
no torch. The cache key covers everything that they depend on, including the ground truth.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from harness.components.benchmark import open_benchmark
from harness.components.preset import Preset
from harness.documents import canonical
from harness.study.configuration import COMPONENTS
from harness.study.expansion import expand
from harness.study.layout import Row
from harness.study.study import Study
from harness.study.trial import Trial

from .values import Measurement, TableRow, Value, ValueColumn

if TYPE_CHECKING:
    from harness.stores.store import Store

LABELS = {"untrained": "Untrained supernet", "parameters": "Number of parameters", "random": "Random numbers"}
VERSION = 1
"""Must change when the meaning of a reference changes."""


def reference_rows(
    preset: Preset,
    store: Store,
    columns: Sequence[ValueColumn],
    labels: int,
    place: int,
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    ranking: Mapping[str, Any] = MappingProxyType({}),
) -> list[TableRow]:
    """One row per reference, its name in label column `place` of `labels`. Metrics that it lacks are left empty.

    `ranking` holds the settings for ranking and judging that all rows of the study share.
    """
    # Options of components affect training only, and nothing is trained here.
    trains = (*COMPONENTS, "search", "retrain")
    plain = {key: value for key, value in (overrides or {}).items() if key.partition(".")[0] not in trains}
    asked = expand(Study("references", "", [Row({"": ""}, ranking)], []), preset, seeds, plain)
    rows = []
    for number, (name, label) in enumerate(LABELS.items()):
        results = {(one.dataset, one.seed): _result(one.trial, name, store) for one in asked}
        values = []
        for column in columns:
            numbers = {seed: column.of(result) for (on, seed), result in results.items() if on == column.dataset}
            measurements = [
                Measurement(seed, value, f"reference {name}", "done")
                for seed, value in numbers.items()
                if value is not None
            ]
            values.append(Value(tuple(measurements), column.digits))
        shown = tuple(label if index == place else None for index in range(labels))
        rows.append(TableRow(shown, tuple(values), number, name, source="reference"))
    return rows


def _result(trial: Trial, name: str, store: Store) -> dict[str, Any]:
    config = trial.config
    truth = b"" if config.benchmark is None else open_benchmark(config.benchmark).accuracies(config.dataset).tobytes()
    known_by = [VERSION, name, trial.identity(), trial.ranking_key, hashlib.sha256(truth).hexdigest()]
    key = hashlib.sha256(canonical(known_by).encode()).hexdigest()[:32]
    # A damaged cache entry is computed again.
    with contextlib.suppress(KeyError, TypeError):
        stored: dict[str, Any] = (store.recall(key) or {})["result"]
        return {**stored}
    result = _compute(trial, name)
    store.remember(key, {"reference": name, "cell": trial.json(), "result": result})
    return result


def _compute(trial: Trial, name: str) -> dict[str, Any]:
    import torch

    from harness.training.trial import run_reference

    # One thread: the sums, and so the predictions, do not depend on the number of cores.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return run_reference(trial.config, name).result
    finally:
        torch.set_num_threads(threads)
