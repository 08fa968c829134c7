"""Checks of what is plugged in: components, studies, entry points, data sets, tables of truth."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeVar

from harness.components.benchmark import open_benchmark
from harness.components.discovery import ENTRY_POINT_GROUP, discover, left_out, study_files
from harness.components.registries import BENCHMARKS, IMPORTERS, REGISTRIES
from harness.data.inspection import presences
from harness.data.places import DATA, FOLDER, data_folder
from harness.errors import ComponentWarning, DataError, NotBuilt, UserError
from harness.study.catalogue import studies_in
from harness.work.diagnosis.finding import Findings, note, ok, problem
from harness.work.diagnosis.installation import check_hidden

T = TypeVar("T")


def check_components() -> Findings:
    """Whether all component and study files load, and no entry point is hidden."""
    points = entry_points(group=ENTRY_POINT_GROUP)
    yield from check_hidden(Path.cwd(), {point.module.partition(".")[0] for point in points})
    try:
        noticed, _ = _noticed(discover)
    except UserError as error:
        yield problem("components", str(error), "correct it")
        return
    files = left_out()
    for file, why in files.items():
        text, _, rest = why.partition(". It is ")
        advice = rest.rpartition("left out: ")[2] or f"correct {file}, or start its name with an underscore"
        yield problem("components", text, advice)
    for text in noticed:
        if text not in files.values():
            folder, _, meant = text.partition(": should it be ")
            yield problem("components", folder, f"rename it to {meant.partition('?')[0]}, if it holds components")
    if not noticed and not files:
        names = f"; entry points: {', '.join(sorted(point.name for point in points))}" if points else ""
        yield ok("components", f"{sum(len(one.names()) for one in REGISTRIES.values())} registered{names}")
    yield from _check_studies()


def check_contents() -> Findings:
    """The data sets and the tables of truth, also where other components are left out."""
    try:
        _noticed(discover)
    except UserError:
        yield note("data sets", "neither data sets nor tables are checked while the settings are wrong")
        return
    yield from _check_datasets()
    yield from _check_tables()


def _noticed(look: Callable[[], T]) -> tuple[list[str], T]:
    """What discovery tells meanwhile of files and folders that are left out, and the answer."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ComponentWarning)
        answer = look()
    return [str(one.message) for one in told if issubclass(one.category, ComponentWarning)], answer


def _check_studies() -> Findings:
    files, broken = study_files(), 0
    places: dict[str, list[Path]] = {}
    for file in files:
        try:
            for study in studies_in(file):
                places.setdefault(study.name, []).append(file)
        except UserError as error:
            broken += 1
            yield problem("studies", " ".join(str(error).split()), f"correct {file}, or move it out of studies/")
    for name, held in places.items():
        if len(held) > 1:
            broken += 1
            yield problem("studies", f"two are both named {name!r}: {held[0]} and {held[1]}", "rename one of them")
    if not broken:
        yield ok("studies", f"{len(places)} in {len(files)} files")


def _check_datasets() -> Findings:
    for variable in (DATA, FOLDER):
        place = os.environ.get(variable)
        if place and not Path(place).expanduser().is_dir():
            yield problem("data sets", f"{variable} names {place}, which is not a folder", f"correct {variable}")
    found = presences()
    for one in found:
        if one.state == "incomplete":
            advice = f"complete the files; `harness data check {one.name}` reads them all"
            yield problem("data sets", f"{one.name}: {one.advice}", advice)
    here = [one.name for one in found if one.state not in ("missing", "incomplete")]
    missing = [one.name for one in found if one.state == "missing"]
    yield ok("data sets", f"here: {', '.join(here) or 'none'}")
    if missing:
        text = f"not in {data_folder()}: {', '.join(missing)}"
        yield note("data sets", text, "`harness data list` says how to get them")


def _check_tables() -> Findings:
    for name in BENCHMARKS.names():
        imported = name in IMPORTERS
        place = IMPORTERS.get(name).file() if imported else None
        try:
            benchmark = open_benchmark(name)
            for dataset in benchmark.datasets:
                benchmark.accuracies(dataset)
            yield ok("tables", f"{name}: {benchmark.space.name} on {', '.join(benchmark.datasets)}")
        except NotBuilt as error:
            yield note("tables", f"{name} is not computed yet", f"build it if you need it: {error}")
        except DataError as error:
            if place is not None and not place.exists():
                advice = f"get it and import it: `harness benchmark import FILE --as {name}`"
                yield note("tables", f"{name} is not available ({place})", advice)
                continue
            again = "import it again: `harness benchmark import FILE`" if imported else "build it again, or remove it"
            yield problem("tables", f"{name}: {error}", again)
        except UserError as error:
            yield problem("tables", f"{name}: {error}", f"correct {BENCHMARKS.entries[name].origin}")
