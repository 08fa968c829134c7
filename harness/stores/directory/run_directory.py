"""The write side of one run: its directory, from creation to the completion record.

A run counts as done only if `completion.json`, written last, exists and agrees with the files beside it.
The names of the files are defined only here, their contents in `harness.schema`.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

from harness.documents import one_line, sealed, utc_text, without_nan
from harness.errors import DataError, UserError
from harness.files import make_durable, make_folder, naming, read_regular, sha256, write, write_json
from harness.owner import this_process
from harness.schema import SCHEMA
from harness.stores.directory.curves import read_line, to_columns

if TYPE_CHECKING:
    from harness.study.trial import Trial

TRIAL, CONFIG, RUN, INFO, LOG = "cell.json", "config.json", "run.json", "info.json", "cout.txt"
METRICS, POINTS = "metrics.json", "metrics.jsonl"
RESULT, PREDICTIONS, WEIGHTS = "result.json", "predictions.json", "weights.pt"
COMPLETION, RANKINGS = "completion.json", "rankings"
INVALID, SOURCES = "invalid.json", "sources"
INPUTS = "inputs"
"""The folder of what a run is made from; a complete run has none."""
ABSENT = "absent.json"
"""Lists weights that were left out when the run was copied here, by checksum: it is complete without them."""


class RunDirectory:
    """One run's directory; only the process that made it writes to it until the run is complete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name

    @classmethod
    def create(cls, store: Path, trial: Trial, preset: str, overrides: Mapping[str, Any], attempt: int) -> RunDirectory:
        """Make a directory for that attempt, with `cell.json` in it.

        It is made under another name and renamed, so it is never visible without `cell.json`. Its name ends in
        a random number, so that machines which do not know of each other never give two runs the same name.
        Raises `UserError` if the store is not writable, `DataError` without the ground truth.
        """
        path = store / f"{trial.key[:16]}-{attempt}-{secrets.token_hex(4)}"
        document = {
            "schema": SCHEMA,
            "key": trial.key,
            "attempt": attempt,
            "run_id": path.name,
            "cell": trial.json(),
            "ranking": trial.ranking_key_here(),
            "identity": trial.identity(),
            "preset": preset,
            "overrides": dict(overrides),
            "owner": this_process(),
            **({"code": {**trial.own_code, **dict(trial.recorded)}} if trial.own_code else {}),
        }
        fresh: Path | None = None
        try:
            make_folder(store)
            fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=store))
            fresh.chmod(0o777 & ~_umask())  # mkdtemp makes private folders; a store may be shared
            write_json(fresh / TRIAL, document)
            fresh.rename(path)
            make_durable(store)
        except OSError as error:
            if fresh is not None:
                shutil.rmtree(fresh, ignore_errors=True)
            raise UserError(f"cannot write to the store {store}: {error.strerror or error}") from error
        return cls(path)

    def write(self, name: str, document: Any) -> None:
        write_json(self.path / name, document)

    def write_result(self, result: Mapping[str, Any], cost: Mapping[str, Any]) -> None:
        self.write(RESULT, {"schema": SCHEMA, "result": result, "cost": cost})

    def write_weights(self, save: Callable[[IO[bytes]], object]) -> None:
        write(self.path / WEIGHTS, save)

    def log_metric(self, name: str, step: int, value: float) -> None:
        """Append a point. From now on it survives the process, however the process ends."""
        point = {"name": name, "step": step, "value": value, "timestamp": utc_text()}
        line = json.dumps(without_nan(point), allow_nan=False) + "\n"
        with naming(self.path / POINTS), (self.path / POINTS).open("a") as file:
            file.write(line)

    def log_points(self, points: Sequence[Mapping[str, Any]]) -> None:
        """Append points that an earlier attempt measured, unchanged: every run is complete in itself."""
        with naming(self.path / POINTS), (self.path / POINTS).open("a") as file:
            file.writelines(json.dumps(without_nan(dict(point)), allow_nan=False) + "\n" for point in points)

    def write_sources(self, trial: Trial) -> None:
        """Copy the source files of the trial's components, and what the user's own import from her folder."""
        (self.path / SOURCES).mkdir(exist_ok=True)
        for name, file in trial.sources().items():
            with naming(self.path / SOURCES / name):
                shutil.copyfile(file, self.path / SOURCES / name)

    def gather_metrics(self) -> None:
        """Convert the points to Sacred's `metrics.json` and remove the file of points."""
        self.write(METRICS, to_columns(read_points(self.path / POINTS)))
        (self.path / POINTS).unlink(missing_ok=True)

    def own(self) -> None:
        """Record this process as the one that makes the run: the run is lost when it dies without recording an end."""
        self.write(TRIAL, json.loads((self.path / TRIAL).read_text()) | {"owner": this_process()})

    def verified(self) -> dict[str, Any]:
        """The completion record, once every file that it names is on disk, and the folders that hold them.

        Raises `DataError` unless Sacred's own record says COMPLETED, and `OSError`.
        """
        status = json.loads((self.path / RUN).read_text())["status"]
        if status != "COMPLETED":  # Sacred only logs the errors of its observers
            raise DataError(f"{self.path / RUN}: the run ended, but its status is {status}; see {LOG}")
        metrics = json.loads((self.path / METRICS).read_text())
        mine = (*self.path.iterdir(), *(self.path / SOURCES).glob("*"))
        files = sorted(p for p in mine if p.is_file() and not p.name.startswith("."))
        sources = [self.path / SOURCES] if (self.path / SOURCES).is_dir() else []
        for path in (*files, *sources, self.path, self.path.parent):
            make_durable(path)
        return {
            "schema": SCHEMA,
            "metrics": {name: len(columns["steps"]) for name, columns in metrics.items()},
            "files": {str(path.relative_to(self.path)): sha256(path) for path in files},
            "sizes": {str(path.relative_to(self.path)): path.stat().st_size for path in files},
        }

    def complete(self, record: Mapping[str, Any] | None = None) -> str | None:
        """Write the completion record, as `verified` gives it. From then on the run counts.

        Returns why it might not survive a power failure all the same; None if it does. Raises what `verified` raises.
        """
        self.write(COMPLETION, self.verified() if record is None else record)
        return _settle(self.path)


def _settle(folder: Path) -> str | None:
    """Sync a folder after the file in it that makes the others count. Returns what went wrong."""
    try:
        make_durable(folder)
    except OSError as error:
        return one_line(error)
    return None


def write_ranking(
    run: Path,
    key: str,
    config: Mapping[str, Any],
    result: Mapping[str, Any],
    cost: Mapping[str, Any],
    predictions: Mapping[str, Any],
) -> str | None:
    """Add a ranking of a done run's weights. Its predictions are stored beside it and written first.

    Files of a complete run never change: a ranking that replaces another is a new file, with the next number.
    Returns why it might not survive a power failure; None if it does.
    """
    folder = run / RANKINGS
    make_folder(folder)
    name = next_ranking(run, key)
    own = folder / f"{name}.{PREDICTIONS}"
    write_json(own, predictions)
    make_durable(folder)
    document = {
        "schema": SCHEMA,
        "ranking": _ranking_text(config),
        "recomputed": name != key,
        "result": result,
        "cost": cost,
        "files": {own.name: sha256(own)},
    }
    write_json(folder / f"{name}.json", sealed(without_nan(document)))
    return _settle(folder)


def complete_ranking(run: Path, key: str, config: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    """Add a stored ranking whose result holds more than before. The predictions stay where they are."""
    folder = run / RANKINGS
    make_folder(folder)
    numbers = _numbers(run, key)
    latest = folder / f"{ranking_name(key, max(numbers, default=0))}.json"
    before = json.loads(latest.read_bytes()) if latest.exists() else {"recomputed": False, "cost": {}, "files": {}}
    document = {"schema": SCHEMA, "ranking": _ranking_text(config), **before, "result": result}
    write_json(folder / f"{next_ranking(run, key)}.json", sealed(without_nan(document)))
    _settle(folder)


def ranking_name(key: str, number: int) -> str:
    """The name of a ranking's files without their end: `KEY` for the first, `KEY.N` for those that replace it."""
    return f"{key}.{number}" if number else key


def ranking_version(file: str) -> tuple[str, int]:
    """The key and the number of the ranking that a file in `rankings/` belongs to. The highest number counts."""
    key, _, rest = Path(file).name.partition(".")
    number = rest.partition(".")[0]
    return key, int(number) if number.isdecimal() else 0


def is_ranking(file: str) -> bool:
    """Whether a file of a run is a ranking itself, not its predictions or its log."""
    name = file.removeprefix(f"{RANKINGS}/")
    return file != name and "/" not in name and name.endswith(".json") and not name.endswith(f".{PREDICTIONS}")


def next_ranking(run: Path, key: str) -> str:
    """The name of the next ranking under that key."""
    return ranking_name(key, 1 + max(_numbers(run, key), default=-1))


def _numbers(run: Path, key: str) -> list[int]:
    """The numbers of the stored rankings under that key."""
    names = (f"{RANKINGS}/{file.name}" for file in (run / RANKINGS).glob(f"{key}.*"))
    return [number for own, number in map(ranking_version, filter(is_ranking, names)) if own == key]


def _ranking_text(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: config[key] for key in ("rank", "benchmark", "search") if key in config}


def declare_invalid(run: Path, reason: str) -> None:
    """Record why a run must not be counted; the run itself stays unchanged. Raises `UserError` if that fails."""
    try:
        write_json(run / INVALID, {"schema": SCHEMA, "reason": reason, "time": utc_text()})
        make_durable(run)
    except OSError as error:
        raise UserError(f"cannot write to {run}: {error.strerror or error}") from error


def declare_absent(run: Path, files: Mapping[str, str]) -> None:
    """Record that these files, given with their checksums, are not kept here, but elsewhere if at all."""
    write_json(run / ABSENT, {"schema": SCHEMA, "files": dict(files)})


def predictions_document(
    config: Mapping[str, Any],
    accuracies: Mapping[int, float],
    rough: Mapping[int, Mapping[int, float]] = MappingProxyType({}),
    searched: Mapping[str, Any] | None = None,
    losses: Mapping[int, float] = MappingProxyType({}),
) -> dict[str, Any]:
    """Predicted accuracies and losses by architecture number, with everything besides the weights that they depend on.

    Numbers are text: those of large spaces exceed all integers of other programs. `rough` are accuracies on fewer
    images, by their number: the scores of a search at lower costs. `searched` are all its scores, in order.
    """
    document = {
        "schema": SCHEMA,
        "images": config["rank"]["images"],
        "batch_size": config["rank"]["batch_size"],
        "accuracies": _by_number(accuracies),
    }
    if losses:
        document["losses"] = _by_number(losses)
    evaluated = ("calibration", "calibration_images", "precision")
    document |= {name: config["rank"][name] for name in evaluated if config["rank"].get(name)}
    if rough:
        document["rough"] = {str(images): _by_number(scores) for images, scores in sorted(rough.items())}
    if searched is not None:
        document["searched"] = dict(searched)
    return document


def _by_number(accuracies: Mapping[int, float]) -> dict[str, float]:
    return {str(number): accuracies[number] for number in sorted(accuracies)}


def read_points(path: Path) -> list[dict[str, Any]]:
    """The points of a run under way; an incomplete last line is left out. Raises `DataError` that names the line."""
    try:
        lines = read_regular(path).decode().split("\n")
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read: {error}") from error
    points = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            points += [read_line(line)] if line else []
        except DataError as error:
            raise DataError(f"line {number} {error}") from error
    return points


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
