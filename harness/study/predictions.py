"""Predictions from elsewhere: read from a file, kept beside the references of a store, judged as runs are. No torch.

A file says for each architecture the accuracy that somebody's code predicts. Only the ranking counts, so that any score
may stand in its place.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.components.benchmark import benchmark_for, open_benchmark
from harness.components.registries import BENCHMARKS, SPACES
from harness.components.space import Architecture, Space, short
from harness.documents import canonical
from harness.errors import DataError, UnknownName, UserError
from harness.schema import PANEL, UNRANKED
from harness.study.configuration import Ranking
from harness.study.judging import (
    Prediction,
    Whole,
    candidate_architectures,
    result_of,
    selected_architectures,
    top_architectures,
)
from harness.study.panel import panel

if TYPE_CHECKING:
    from harness.stores.store import Store

NAMED = 3
"""How many of a file's mistakes of one kind a message shows."""

COLUMNS = {"architecture": ("architecture", "arch", "index"), "accuracy": ("accuracy", "predicted", "prediction")}
"""The headings of a CSV file, and the keys of a JSON object, that are understood."""

Entry = tuple[str, Any, Any]
"""Its place in the file, the architecture, the prediction."""


@dataclass(frozen=True)
class Imported:
    """Somebody's predictions under a name."""

    name: str
    space: str
    dataset: str
    source: str
    """The file's name."""
    sha256: str
    """The file's checksum."""
    accuracies: Mapping[str, float]
    """By the architecture's number, as text."""

    def __hash__(self) -> int:
        return hash((self.name, self.space, self.dataset, self.sha256))

    @property
    def key(self) -> str:
        """The key that they are stored under: one per name, space and data set."""
        known_by = ["imported", self.name, self.space, self.dataset]
        return hashlib.sha256(canonical(known_by).encode()).hexdigest()[:32]

    def document(self) -> dict[str, Any]:
        """What is stored under the key (`harness.schema.ImportedDocument`)."""
        return {"imported": self.name} | {key: value for key, value in vars(self).items() if key != "name"}

    def predictions(self) -> dict[Architecture, float]:
        space = SPACES.get(self.space)()
        return {space.architecture(int(number)): value for number, value in self.accuracies.items()}


def stored(store: Store, spaces: Collection[str] | None = None) -> list[Imported]:
    """All imported predictions of a store, or those of these spaces, by name."""
    documents = [one for one in store.references()[0].values() if "imported" in one]
    found = [Imported(one["imported"], *(one[key] for key in _KEYS)) for one in documents]
    chosen = [one for one in found if spaces is None or one.space in spaces]
    return sorted(chosen, key=lambda one: (one.name, one.space, one.dataset))


_KEYS = ("space", "dataset", "source", "sha256", "accuracies")


def judges(space: str, dataset: str) -> list[str]:
    """The registered tables of truth of a space that have the data set and are here."""
    found = []
    for name in BENCHMARKS.names():
        with contextlib.suppress(DataError, UnknownName):  # it is not here, or has not the data set
            table = open_benchmark(name)
            if table.space.name == space:
                table.accuracies(dataset)
                found.append(name)
    return found


@lru_cache(maxsize=64)
def judged(imported: Imported, benchmark: str, ranking: Ranking) -> dict[str, Any]:
    """What a ranking by these predictions gives: the result of a run that predicts the same.

    What needs architectures that were not predicted is missing; the panel is over those that were.
    """
    table, predictions = benchmark_for(benchmark, imported.space), imported.predictions()

    def lacking(architectures: Sequence[Architecture]) -> bool:
        return any(one not in predictions for one in architectures)

    if lacking(selected_architectures(table, imported.dataset, ranking)):
        measures = panel(predictions, table, imported.dataset, ranking)
        return {**UNRANKED, "ranked": len(predictions), PANEL: measures}
    if lacking(candidate_architectures(table.space, ranking)):
        ranking = replace(ranking, top1=False)
    if lacking(top_architectures(table, imported.dataset, ranking)):
        ranking = replace(ranking, top_share=None)
    made = {architecture: Prediction(score) for architecture, score in predictions.items()}
    return result_of(made, Whole(table.space), table, imported.dataset, ranking)


def read_predictions(file: Path, name: str, space: str, dataset: str, partial: bool = False) -> Imported:
    """The predictions in a CSV or JSON file.

    Raises `DataError` that names what is wrong: entries that are not predictions of an architecture, architectures that
    occur twice, and, unless `partial`, architectures of the space that are missing.
    """
    about = SPACES.get(space)()
    content = _content(file)
    accuracies: dict[int, float] = {}
    places: dict[int, str] = {}
    wrong: list[str] = []
    twice: list[str] = []
    for place, written, value in _entries(file, content):
        try:
            number = _number(about, written)
            accuracy = _accuracy(value)
        except (UserError, ValueError) as error:
            wrong.append(f"{place}: {error}")
            continue
        if number in places:
            twice.append(f"{place}: {about.format(about.architecture(number))}, as {places[number]}")
        places.setdefault(number, place)
        accuracies.setdefault(number, accuracy)
    missing = [] if partial or not about.enumerable else _missing(about, accuracies)
    problems = [
        *_told(f"entries that cannot be used ({len(wrong):,})", wrong),
        *_told(f"architectures that occur again ({len(twice):,})", twice),
        *_told(f"missing architectures ({len(missing):,} of {short(about.size)}; --partial allows that)", missing),
    ]
    if not accuracies and not problems:
        problems = ["it holds no predictions"]
    if problems:
        raise DataError("\n".join([f"{file}: nothing was stored", *(f"  {line}" for line in problems)]))
    by_number = {str(number): accuracies[number] for number in sorted(accuracies)}
    return Imported(name, space, dataset, file.name, hashlib.sha256(content).hexdigest(), by_number)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror or error}") from error


def _entries(file: Path, content: bytes) -> Iterator[Entry]:
    try:
        text = content.decode("utf-8-sig")
        return iter(list((_in_json if file.suffix.lower() == ".json" else _in_csv)(text)))
    except (ValueError, csv.Error) as error:
        kinds = "JSON" if file.suffix.lower() == ".json" else "CSV (a file whose name ends in .json is read as JSON)"
        raise DataError(f"{file}: cannot be read as {kinds}: {error}; nothing was stored") from error


def _in_csv(text: str) -> Iterator[Entry]:
    """Lines of an architecture and its prediction; with headings, any columns in any order."""
    reader = csv.reader(io.StringIO(text))
    columns = (0, 1)
    first = True
    for row in reader:
        if not any(cell.strip() for cell in row):
            continue
        if first:
            first = False
            headings = [cell.strip().lower() for cell in row]
            if any(heading in names for heading in headings for names in COLUMNS.values()):
                columns = _columns(headings)
                continue
            if len(row) > 2:
                raise ValueError(f"its first line has {len(row)} columns and no headings; {_ALLOWED}")
        if len(row) <= max(columns):
            yield f"line {reader.line_num}", ",".join(row), None
        else:
            yield f"line {reader.line_num}", row[columns[0]], row[columns[1]]


def _columns(headings: Sequence[str]) -> tuple[int, int]:
    found = []
    for meaning, names in COLUMNS.items():
        places = [place for place, heading in enumerate(headings) if heading in names]
        if len(places) != 1:
            raise ValueError(f"{len(places)} of its columns are the {meaning}; {_ALLOWED}")
        found += places
    return found[0], found[1]


_ALLOWED = "name them in the first line: " + " and ".join(" or ".join(names) for names in COLUMNS.values())


def _in_json(text: str) -> Iterator[Entry]:
    """An object of predictions by architecture, or a list of pairs, or of objects with both."""
    pairs: Callable[[list[tuple[str, Any]]], Any] = _Pairs
    document = json.loads(text, object_pairs_hook=pairs)
    if isinstance(document, _Pairs):
        yield from ((f"entry {place}", key, value) for place, (key, value) in enumerate(document, 1))
        return
    if not isinstance(document, list):
        raise ValueError("it holds neither an object nor a list")
    for place, one in enumerate(document, 1):
        if isinstance(one, _Pairs):
            written, value = (_first(dict(one), names) for names in COLUMNS.values())
        else:
            written, value = one if isinstance(one, list) and len(one) == 2 else (one, None)
        yield f"entry {place}", written, value


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all of its keys, those that occur twice too."""


def _first(document: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((document[name] for name in names if name in document), None)


def _number(space: Space, written: Any) -> int:
    """The number of an architecture that is written as text, as a number, or as a list of its choices."""
    if isinstance(written, list) and all(type(choice) is int for choice in written):
        return space.index(tuple(written))
    text = str(written).strip()
    if text.isdecimal() and not _is_text_form(space, text):
        return space.index(space.architecture(int(text)))
    if not isinstance(written, str):
        raise ValueError(f"{written!r} is not an architecture of {space.name}")
    return space.index(space.parse(text))


def _is_text_form(space: Space, text: str) -> bool:
    """Whether the space writes an architecture as these digits."""
    with contextlib.suppress(Exception):  # whatever a space raises for what it cannot read
        return space.format(space.parse(text)) == text
    return False


def _accuracy(value: Any) -> float:
    try:
        found = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise ValueError("the prediction is missing" if value is None else f"{value!r} is not a finite number")
    return found


def _missing(space: Space, known: Mapping[int, float]) -> list[str]:
    return [space.format(space.architecture(number)) for number in range(space.size) if number not in known]


def _told(what: str, mistakes: Sequence[str]) -> list[str]:
    """One line about mistakes of a kind: the first of them; none if there are none."""
    more = f"; and {len(mistakes) - NAMED:,} more" if len(mistakes) > NAMED else ""
    return [f"{what}: {'; '.join(mistakes[:NAMED])}{more}"] if mistakes else []
