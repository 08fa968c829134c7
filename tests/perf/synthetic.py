"""Stores with as many runs as one likes: complete, valid and of a run's usual size, made without training.

One run is written as training processes write it; the others are its copies with a trial, result, predictions
and checksums of their own, written without waiting for the disk.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from harness.components.preset import get_preset
from harness.stores.directory.observer import DirectoryObserver
from harness.stores.directory.run_directory import (
    COMPLETION,
    CONFIG,
    LOG,
    PREDICTIONS,
    RESULT,
    TRIAL,
    predictions_document,
)
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.study.study import Request

STUDY, PRESET = "ablation_calr_ms", "demo"
EPOCHS, RANKED = 20, 400
RATES = 40
"""How many learning rates besides the preset's own other people tried."""
START = datetime(2026, 1, 2, 3, 4, 5)


def fill(store: Path, number: int) -> None:
    """Make so many runs in an empty folder: those of one study, and of that study with other settings."""
    template: dict[str, bytes] = {}
    for place, (request, overrides) in zip(range(number), _asked(number), strict=False):
        if not template:
            template = _template(store, request)
        else:
            _copy(store, template, request, overrides, place)


def _asked(number: int) -> Iterator[tuple[Request, Mapping[str, Any]]]:
    """The plain study first, then the same with other learning rates, each for as many seeds as are needed."""
    (study,) = find_studies(STUDY)
    plain = expand(study, get_preset(PRESET))
    yield from ((request, {}) for request in plain)
    seeds = -(-(number - len(plain)) // (RATES * len(study.rows)))
    for rate in range(1, RATES + 1):
        overrides = {"optimiser.learning_rate": rate / 1000}
        yield from ((request, overrides) for request in expand(study, get_preset(PRESET), seeds, overrides))


def _template(store: Path, request: Request) -> dict[str, bytes]:
    """The files of a run, as its process writes them."""
    directory = DirectoryStore(store).create(request.trial, PRESET, {})
    config = request.trial.config.json()
    observer = DirectoryObserver(directory, config, {"key": request.trial.key})
    observer.started_event({"name": "cell", "mainfile": "experiment.py"}, "train_rank_judge", {}, START, {}, {}, None)
    lines = []
    for epoch in range(1, EPOCHS + 1):
        directory.log_metric("train_loss", epoch, 2.3 / epoch)
        lines.append(f"epoch {epoch}/{EPOCHS}: loss {2.3 / epoch:.4f}\n")
    (directory.path / LOG).write_text("".join(lines))
    directory.write_result(*_outcome(0))
    directory.write(PREDICTIONS, predictions_document(config, _predictions(0)))
    directory.write_weights(lambda file: file.write(b"weights"))
    observer.completed_event(START + timedelta(seconds=20), None)
    directory.gather_metrics()
    directory.complete()
    return {path.name: path.read_bytes() for path in directory.path.iterdir()}


def _copy(
    store: Path, template: Mapping[str, bytes], request: Request, overrides: Mapping[str, Any], place: int
) -> None:
    trial, config = request.trial, request.trial.config.json()
    run_id = f"{trial.key[:16]}-1-{place:08x}"
    own = {"key": trial.key, "run_id": run_id, "cell": trial.json(), "ranking": trial.ranking_key}
    own |= {"identity": trial.identity(), "overrides": dict(overrides)}
    result, cost = _outcome(place)
    files = dict(template)
    files[TRIAL] = _text(json.loads(template[TRIAL]) | own)
    files[CONFIG] = _text(config)
    files[RESULT] = _text(json.loads(template[RESULT]) | {"result": result, "cost": cost})
    files[PREDICTIONS] = _text(predictions_document(config, _predictions(place)))
    record = json.loads(files.pop(COMPLETION))
    record["files"] = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    record["sizes"] = {name: len(content) for name, content in sorted(files.items())}
    folder = store / run_id
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / COMPLETION).write_bytes(_text(record))


def _outcome(place: int) -> tuple[dict[str, Any], dict[str, Any]]:
    rng = random.Random(place)
    result = {
        "kendall_tau": rng.random(),
        "selected": 371,
        "top1": [rng.randrange(5) for _ in range(6)],
        "top1_accuracy": 60 + 10 * rng.random(),
        "ranked": RANKED,
        "diverged": None,
        "observed": {},
    }
    cost = {
        "wall_seconds": 10 * rng.random(),
        "stage_seconds": {"train": 10 * rng.random(), "rank": rng.random()},
        "passes": 1200,
        "images": 76800,
        "evaluations": RANKED,
        "peak_memory_bytes": 500_000_000 + place,
        "memory_kind": "growth of the resident set",
        "device": "cpu",
        "threads": 1,
    }
    return result, cost


def _predictions(place: int) -> dict[int, float]:
    rng = random.Random(place)
    return {number: 100 * rng.random() for number in sorted(rng.sample(range(15625), RANKED))}


def _text(document: Any) -> bytes:
    return json.dumps(document, indent=1).encode() + b"\n"
