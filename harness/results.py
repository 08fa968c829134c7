"""Stored runs as pandas data frames: one row per run, or one row per measured point.

    from harness import results
    df = results.runs(study="ablation_calr_ms")
    curve = results.metrics(df, "kendall_tau")

By default only runs that are done, valid and not superseded are returned. Nested configuration is flattened with
underscores (`method_name`, `train_epochs`), so that `df.query` reads well. Values that a run's configuration does
not have (γ′ without CaLR) are missing. Importing this module imports neither pandas nor torch.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias, get_args, get_type_hints

from harness.components.optimiser import Optimiser
from harness.errors import UnknownName, UserError
from harness.stores import collector, shapes
from harness.stores.places import places
from harness.stores.schema import OBSERVED, Cost, Result
from harness.study.configuration import RunConfig, with_names
from harness.study.expansion import expand_stored
from harness.study.reader import Component
from harness.study.study import Request, Study

if TYPE_CHECKING:
    import pandas

    from harness.stores import store as stores
    from harness.stores.stored import StoredRun

    Store: TypeAlias = stores.Store | str | os.PathLike[str] | None
    """A store, its directory or address, or None for the default place (`harness.cli._store_option`)."""
    Runs: TypeAlias = pandas.DataFrame | str | Iterable[str]
    """Runs: a data frame with a column `run_id`, one id, or several."""

_OPENED: dict[str, stores.Store] = {}
"""The stores that data frames came from, by name."""

_RUN = {"run_id": str, "key": str, "attempt": int, "status": str, "superseded": bool, "invalid": str}
_RUN |= {"preset": str, "overridden": bool}


@collector.paused()
def runs(
    study: str | Study | None = None,
    store: Store = None,
    preset: str | None = None,
    where: str | None = None,
    all: bool = False,
) -> pandas.DataFrame:
    """One row per run: its configuration, result and cost.

    With a study, only the runs of the study's trials, each under the run's own preset: without overrides if the
    plain study has the trial (as in its report), else with the run's overrides. The study's row and labels are
    added, and the metrics are those of the ranking that the study requests, missing if that ranking was not made.
    A run that the study judges by the truth of several data sets has one row for each (`rank_truth`), and so has one
    that the study searches several times for each search.
    `where` is a condition on the columns. `all` adds runs that are not done, invalid, or superseded.
    Raises `InvalidConfiguration` for a condition that cannot be evaluated, `UnknownName` for a study.
    """
    from harness.query import select

    opened = open_store(store)
    chosen = [run for run in opened.runs() if all or run.counts]
    chosen = [run for run in chosen if preset is None or run.preset == preset]
    if study is None:
        table = frame([record(run) for run in chosen])
    else:
        asked = study if isinstance(study, Study) else _one_study(study)
        members = _members(asked, chosen)
        labels = [{_label(label): value for label, value in row.labels.items()} for row in asked.rows]
        table = frame(
            [
                _as_asked(run, request) | {"study": asked.name, "row": request.row} | labels[request.row]
                for run in chosen
                for request in members.get(run.id, ())
            ],
            extra={"study": str, "row": int} | {label: type(value) for label, value in labels[0].items()},
        )
    # Only the name: pandas copies `attrs`, and an address may contain a password.
    table.attrs["store"] = opened.name
    _OPENED[opened.name] = opened
    return table if where is None else select(table, where).reset_index(drop=True)


def metrics(runs: Runs, name: str, store: Store = None) -> pandas.DataFrame:
    """A metric over training, in long format: run_id, step, value. Runs without it have no rows.

    Raises `UnknownName` if no run has it.
    """
    import pandas

    opened = _store_of(runs, store)
    rows: list[tuple[str, int, float]] = []
    known: set[str] = set()
    for run in _stored(runs, opened):
        curves = opened.metrics(run)
        known |= curves.keys()
        rows += [(run.id, point["step"], point["value"]) for point in curves.get(name, ())]
    if known and name not in known:
        raise UnknownName.among("metric", name, known)
    table = pandas.DataFrame(rows, columns=["run_id", "step", "value"])
    return table.astype({"run_id": "str", "step": "int64", "value": "float64"})


def predictions(runs: Runs, store: Store = None) -> pandas.DataFrame:
    """Every predicted accuracy, in long format: run_id, architecture (as its space writes it), predicted."""
    import pandas

    from harness.components.registries import SPACES

    opened = _store_of(runs, store)
    rows: list[tuple[str, str, float]] = []
    for run in _stored(runs, opened):
        space = SPACES.get(run.trial["config"]["space"])()
        predicted = opened.predictions(run)
        rows += [(run.id, space.format(space.architecture(number)), value) for number, value in predicted.items()]
    table = pandas.DataFrame(rows, columns=["run_id", "architecture", "predicted"])
    return table.astype({"run_id": "str", "architecture": "str", "predicted": "float64"})


def searches(runs: Runs, store: Store = None) -> pandas.DataFrame:
    """Every score of the searches of these runs, in long format.

    One row per scored architecture: run_id, ranking (the key of the search), order, generation, architecture (as its
    space writes it), images (the cost of the score), accuracy (predicted), and one column per count of the space.
    """
    import pandas

    from harness.components.registries import SPACES

    opened = _store_of(runs, store)
    columns = ["run_id", "ranking", "order", "generation", "architecture", "images", "accuracy"]
    rows: list[dict[str, Any]] = []
    for run in _stored(runs, opened):
        space = SPACES.get(run.trial["config"]["space"])()
        for ranking in run.rankings:
            if (found := opened.searched(run, ranking)) is None:
                continue
            named = [space.format(space.architecture(int(number))) for number in found["architectures"]]
            known = zip(found["generations"], named, found["images"], found["accuracies"], strict=True)
            for order, scored in enumerate(known):
                counts = {count: numbers[order] for count, numbers in found["counts"].items()}
                rows.append(dict(zip(columns, (run.id, ranking, order, *scored), strict=True)) | counts)
    table = pandas.DataFrame(rows, columns=list(dict.fromkeys([*columns, *(name for row in rows for name in row)])))
    kinds = {"run_id": "str", "ranking": "str", "order": "int64", "generation": "Int64", "architecture": "str"}
    return table.astype({**kinds, "images": "int64", "accuracy": "float64"})


def open_store(store: Store = None) -> stores.Store:
    """Open the store, unless it is one already."""
    return places(store).open() if store is None or isinstance(store, str | os.PathLike) else store


def record(run: StoredRun, ranking_key: str | None = None) -> dict[str, Any]:
    """One run as flat columns, with the metrics of the given ranking, or of the run's own."""
    result = run.result or {}
    if ranking_key is not None:
        judged = {key: None for key in result if key not in ("diverged", OBSERVED)}
        result = {**result, **judged, **run.rankings.get(ranking_key, {})}
    columns = {
        "run_id": run.id,
        "key": run.key,
        "attempt": run.attempt,
        "status": run.status.value,
        "superseded": run.superseded,
        "invalid": run.invalid,
        "preset": run.preset,
        "overridden": bool(run.overrides),
    }
    _add_columns(columns, with_names(run.trial["config"]))
    _add_columns(columns, shapes.flat(Result, {"diverged": None, **result}))
    _add_columns(columns, run.cost or {})
    return columns


def columns_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document as flat columns: nested keys are joined by underscores."""
    columns: dict[str, Any] = {}
    _add_columns(columns, document)
    return columns


def _add_columns(columns: dict[str, Any], document: Mapping[str, Any], prefix: str = "") -> None:
    for key, value in document.items():
        if isinstance(value, dict):
            _add_columns(columns, value, f"{prefix}{key}_")
        else:
            # One string object per name: ten thousand runs share it, and each is looked up by it.
            columns[sys.intern(f"{prefix}{key}")] = value


def frame(records: Sequence[Mapping[str, Any]], extra: Mapping[str, type] | None = None) -> pandas.DataFrame:
    """Flat records as typed columns: first the columns that every run has, then the others."""
    import pandas

    kinds = {**_RUN, **(extra or {}), **_configured(), **shapes.columns(Result), **shapes.columns(Cost)}
    met = dict.fromkeys(map(tuple, records))
    columns = list(dict.fromkeys([*kinds, *(column for shape in met for column in shape)]))
    # Read row by row, then transpose: reading column by column would fetch every run from memory each time.
    turned = zip(*([*map(one.get, columns)] for one in records), strict=True) if records else ((),) * len(columns)
    typed = {}
    for column, values in zip(columns, turned, strict=True):
        typed[column] = pandas.Series(values, dtype=_dtype(values, kinds.get(column)))
    return pandas.DataFrame(typed, columns=columns)


def _dtype(values: Sequence[Any], kind: type | None) -> str:
    """The pandas dtype of a column: nullable only if a value is missing."""
    missing = None in values
    if kind is None:
        kinds = {type(value) for value in values if value is not None}
        kind = kinds.pop() if len(kinds) == 1 else float if kinds == {int, float} else object
    names = {bool: "boolean" if missing else "bool", int: "Int64" if missing else "int64", float: "float64", str: "str"}
    return names.get(kind or object, "object")


def _configured() -> dict[str, type]:
    """The columns that every configuration has, and their types."""
    kinds: dict[str, type] = {}
    for key, kind in get_type_hints(RunConfig).items():
        if any(map(dataclasses.is_dataclass, get_args(kind))):
            continue  # a section that only some configurations have
        if key == "network":  # that of the default space; others may have settings of their own
            kind = type(RunConfig().network)
        if not dataclasses.is_dataclass(kind):
            kinds[key] = next(iter(get_args(kind)), kind)
            continue
        hints = get_type_hints(kind)
        # Options differ from component to component; every component has a name, and optimisers share some options.
        own = {"name": str} if "options" in hints else _named(hints)
        own |= get_type_hints(Optimiser) if key == "optimiser" else {}
        kinds |= {f"{key}_{name}": next(iter(get_args(hint)), hint) for name, hint in own.items()}
    return kinds


def _named(hints: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a section, with `_name` behind those that are components."""
    names = {f"{key}_name": str for key, hint in hints.items() if hint is Component}
    return {**{key: hint for key, hint in hints.items() if hint is not Component}, **names}


def _one_study(name: str) -> Study:
    from harness.study.catalogue import find_studies

    found = {study.name: study for study in find_studies(name)}
    if len(found) > 1 and name not in found:
        raise UserError(f"{name} holds several studies: {', '.join(found)}. Name one.")
    return found.get(name) or next(iter(found.values()))


def _as_asked(run: StoredRun, request: Request) -> dict[str, Any]:
    """The run's columns, with the ranking that the request asks for in place of the run's own."""
    config = request.trial.config
    searched = {"search": config.json()["search"]} if config.search else {}
    measured = columns_of({"rank": vars(config.rank), "benchmark": config.benchmark, **searched})
    return record(run, request.trial.ranking_key) | measured | {"overridden": request.overridden}


def _members(study: Study, chosen: Sequence[StoredRun]) -> dict[str, list[Request]]:
    """By run id, the requests of the study for the run: of the first row that has it, one per truth that judges it,
    and of the first row for each search that was made with it.

    A run that the study requests without overrides counts as such, as in the report, whatever overrides it was
    made with. Other runs are matched under their own overrides.
    """
    plain = _matches(study, [(run, {}) for run in chosen])
    return plain | _matches(study, [(run, run.overrides) for run in chosen if run.id not in plain])


def _matches(study: Study, chosen: Sequence[tuple[StoredRun, Mapping[str, Any]]]) -> dict[str, list[Request]]:
    """By run id, the requests of the study for the run's trial, under the run's preset and the given overrides."""
    from harness.components.preset import presets_of

    presets = presets_of(study.about)
    groups: dict[tuple[str, str], list[StoredRun]] = {}
    with_overrides: dict[tuple[str, str], Mapping[str, Any]] = {}
    for run, overrides in chosen:
        place = (run.preset, repr(sorted(overrides.items())))
        groups.setdefault(place, []).append(run)
        with_overrides[place] = overrides
    members: dict[str, list[Request]] = {}
    for place, group in groups.items():
        preset, _ = place
        if preset not in presets:
            continue
        seeds = sorted({int(run.trial["config"]["seed"]) for run in group})
        try:
            requests = expand_stored(
                study, presets[preset], lambda: (one for one, _ in chosen), 1, with_overrides[place]
            )
        except UserError:  # overrides of another study that fit no row of this one
            continue
        asked: dict[str, list[Request]] = {}
        for first, seed in product(requests, seeds):
            request = dataclasses.replace(first, seed=seed, trial=first.trial.with_seed(seed))
            same = asked.setdefault(request.trial.key, [])
            another = all(one.trial.config.search != request.trial.config.search for one in same)
            if not same or same[0].row == request.row or another:
                same.append(request)
        members |= {run.id: asked[run.key] for run in group if run.key in asked}
    return members


def _label(label: str) -> str:
    """A label column's name: `label_calr` for "CaLR"."""
    return "label_" + "".join(letter if letter.isalnum() else "_" for letter in label.lower())


def _store_of(runs: Runs, store: Store) -> stores.Store:
    name = getattr(runs, "attrs", {}).get("store")
    return open_store(store if store is not None else _OPENED.get(str(name), name))


def _stored(runs: Runs, store: stores.Store) -> list[StoredRun]:
    """The stored runs, in the given order. Raises what `Store.find` raises."""
    ids = [runs] if isinstance(runs, str) else list(getattr(runs, "run_id", runs))
    known = {run.id: run for run in store.runs({str(one)[:16] for one in ids})}
    return [known.get(str(one)) or store.find(str(one)) for one in ids]
