"""Stored runs as pandas data frames: one row per run, per measured point, per prediction, or per row of a table.

    from harness import results
    df = results.runs(study="ablation_calr_ms")
    curve = results.metrics(df, "kendall_tau")
    table = results.table("ablation_calr_ms")

By default only runs that are done, valid and not superseded are returned. Nested configuration is flattened with
underscores (`method_name`, `train_epochs`), so that `df.query` reads well. Values that a run's configuration does
not have (γ′ without CaLR) are missing. Importing this module imports neither pandas nor torch.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from harness.components.preset import check_preset
from harness.documents import canonical
from harness.errors import DataError, SourceWarning, UnknownName, UserError
from harness.stores import collector
from harness.stores.places import places
from harness.stores.stored import Problem
from harness.study.columns import describe
from harness.study.configuration import unnamed
from harness.study.frames import columns_of as columns_of
from harness.study.frames import details, dtype, misfits
from harness.study.frames import frame as frame
from harness.study.frames import record as record
from harness.study.layout import label_column
from harness.study.members import members
from harness.study.study import Request, Study

if TYPE_CHECKING:
    import pandas

    from harness.stores import store as stores
    from harness.stores.stored import StoredRun

    Store: TypeAlias = stores.Store | str | os.PathLike[str] | None
    """A store, its directory or address, or None for the default place (`harness.cli._options`)."""
    Runs: TypeAlias = pandas.DataFrame | str | Iterable[str]
    """Runs: a data frame with a column `run_id`, one id, or several."""

_CALLER = 4
"""How many frames up the caller of `runs` is."""

_OPENED: dict[str, stores.Store] = {}
"""The stores that data frames came from, by name."""

_TRUTH = ("truth", "selection", "selection_on", "bins", "truth_split")
"""The settings of a ranking that decide by which accuracies it is judged, and over which architectures τ is taken."""
_JUDGING = ("images", "batch_size", "calibration", "calibration_images", "precision", *_TRUTH)
"""These, and those that decide which predictions it makes."""
_OPTIONAL = ("images", "truth", "selection_on", "benchmark")
"""Those of them for which null has a meaning."""


@collector.paused()
def runs(
    study: str | Study | None = None,
    store: Store = None,
    preset: str | None = None,
    where: str | None = None,
    all: bool = False,
    panel: bool = False,
) -> pandas.DataFrame:
    """One row per run: its configuration, result and cost.

    With a study, only the runs of the study's trials, each under the run's own preset: without overrides if the
    plain study has the trial (as in its report), else with the run's overrides. The study's row and labels are
    added, and the metrics are those of the ranking that the study requests, missing if that ranking was not made.
    A run that the study judges by the truth of several data sets has one row for each (`rank_truth`), and so has one
    that the study searches several times for each search. Runs and labels are in the study's order.
    `where` is a condition on all columns. `all` adds runs that are not done, invalid, or superseded. `panel` adds the
    panel of ranking measures, and the settings and measures that every run has at their default, or lacks.
    Warns (`SourceWarning`) of rows that differ in nothing but the seed and the code of a component of your own.
    Raises `InvalidConfiguration` for a condition that cannot be evaluated, `UnknownName` for a study or a preset.
    """
    opened = open_store(store)
    chosen = [run for run in opened.runs() if all or run.counts]
    if preset is not None:
        check_preset(preset, (run.preset for run in chosen))
        chosen = [run for run in chosen if run.preset == preset]
    names = unnamed()
    if study is None:
        records = [record(run, names=names) | _place(opened, run) | _made_for(run) for run in chosen]
        table = _fitting(opened, records, {"study": str, "made_for": str}, where, panel)
    else:
        asked = study if isinstance(study, Study) else _one_study(study)
        requested = members(asked, chosen)
        answered = [(request, run) for run in chosen for request in requested.get(run.id, ())]
        answered.sort(key=lambda pair: (pair[0].row, pair[1].preset, pair[0].dataset, pair[0].seed, pair[1].id))
        labels = [{label_column(label): value for label, value in row.labels.items()} for row in asked.rows]
        by_label = {name: [row[name] for row in labels] for name in labels[0]}
        table = _fitting(
            opened,
            [
                _as_asked(run, request, names)
                | _place(opened, run)
                | {"study": asked.name, "row": request.row}
                | labels[request.row]
                for request, run in answered
            ],
            {"study": str, "row": int} | {name: _kind(values) for name, values in by_label.items()},
            where,
            panel,
        )
        table = _ordered(table, by_label)
    # Only the name: pandas copies `attrs`, and an address may contain a password.
    table.attrs["store"] = opened.name
    _OPENED[opened.name] = opened
    _warn_of_sources(table, {run.id: run for run in chosen})
    return table


def metrics(runs: Runs, name: str, store: Store = None) -> pandas.DataFrame:
    """A metric over training, in long format: run_id, step, value. Runs without it have no rows.

    Runs of a study keep row, labels and seed. Raises `UnknownName` if no run has the metric.
    """
    import pandas

    opened = _store_of(runs, store)
    rows: list[tuple[str, int, float]] = []
    known: set[str] = set()
    for run in {run.id: run for run in _stored(runs, opened)}.values():
        curves = opened.metrics(run)
        known |= curves.keys()
        rows += [(run.id, point["step"], point["value"]) for point in curves.get(name, ())]
    if known and name not in known:
        raise UnknownName.among("metric", name, known)
    table = pandas.DataFrame(rows, columns=["run_id", "step", "value"])
    table = table.astype({"run_id": "str", "step": "int64", "value": "float64"})
    return _with_labels(table, runs)


def predictions(runs: Runs, store: Store = None) -> pandas.DataFrame:
    """Every predicted accuracy, in long format: run_id, architecture, predicted, true, selected.

    The architecture is as its space writes it. `true` is the accuracy in the table that judges the run, and `selected`
    says whether Kendall's τ is taken over the architecture; both are missing without the table. Runs of a
    study are judged as the study judges them, and keep row, labels, seed and `rank_truth`.
    """
    import pandas

    from harness.components.registries import SPACES

    opened = _store_of(runs, store)
    judged: dict[tuple[Any, ...], tuple[Any, set[int]] | None] = {}
    rows: list[tuple[Any, ...]] = []
    stored = _stored(runs, opened)
    for run, asked in zip(stored, _rankings(runs, len(stored)), strict=True):
        config = run.trial["config"]
        space = SPACES.get(config["space"])()
        rank = {**config["rank"], **asked}
        benchmark = asked.get("benchmark", config["benchmark"])
        on = (benchmark, config["space"], config["dataset"], *(rank.get(key) for key in _TRUTH))
        if on not in judged:
            judged[on] = _truth_and_selection(*on)
        truth, selected = judged[on] or (None, None)
        for number, value in opened.predictions(run, rank).items():
            known = (None, None) if truth is None or selected is None else (float(truth[number]), number in selected)
            rows.append((run.id, rank.get("truth"), space.format(space.architecture(number)), value, *known))
    columns = ["run_id", "rank_truth", "architecture", "predicted", "true", "selected"]
    table = pandas.DataFrame(rows, columns=columns)
    table = table.astype({"run_id": "str", "architecture": "str", "predicted": "float64", "true": "float64"})
    table["selected"] = table["selected"].astype("boolean" if table["selected"].isna().any() else "bool")
    table = table.drop(columns=[] if table["rank_truth"].notna().any() else "rank_truth")
    return _with_labels(table, runs)


def truth(benchmark: str | None = None, dataset: str | None = None, split: str = "test") -> pandas.DataFrame:
    """A table of truth: architecture, dataset, accuracy, and the space's counts (parameters, flops, …).

    By default the benchmark of the default preset, and all its data sets. Raises `UnknownName`, and `DataError` for a
    missing table.
    """
    import pandas

    from harness.components.benchmark import open_benchmark
    from harness.components.preset import default_preset

    opened = open_benchmark(benchmark or str(default_preset().settings["benchmark"]))
    space = opened.space
    counts = {count: [space.complexity(one, count) for one in space] for count in space.complexity_counts}
    architectures = pandas.Series([space.format(one) for one in space], dtype="str")
    tables = []
    for name in opened.datasets if dataset is None else (dataset,):
        measured = {"architecture": architectures, "dataset": name, "accuracy": opened.accuracies(name, split)}
        sizes = {count.replace("-", "_"): values for count, values in counts.items()}
        tables.append(pandas.DataFrame({**measured, **sizes}).astype({"dataset": "str"}))
    return pandas.concat(tables, ignore_index=True)


def table(
    study: str | Study,
    store: Store = None,
    preset: str | None = None,
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    where: str | None = None,
    references: bool = False,
) -> pandas.DataFrame:
    """The study's table as `harness report` shows it: mean, std and n of every column, one row per row.

    The index holds the labels. `n` is the number of seeds; 0 marks a number that was not measured. What is missing is
    listed in `attrs["notes"]`. `preset` is the default preset's scale unless given. Raises what `runs` raises.
    """
    from harness.components.discovery import component

    opened = open_store(store)
    found = _findings(study, opened, preset, seeds, overrides, where)
    referred = component("reports.references").stored_references(found, opened) if references else None
    laid_out = component("reports.tables").lay_out(found, referred)
    made: pandas.DataFrame = component("reports.data_frames").table_frame(laid_out)
    return made


def pairs(
    study: str | Study,
    metric: str = "kendall_tau",
    row: int | None = None,
    against: int | str | None = None,
    store: Store = None,
    preset: str | None = None,
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    where: str | None = None,
) -> pandas.DataFrame:
    """Paired differences over seeds, from the runs of the study's table: value, baseline, difference.

    Each row is compared with the first of its group, or with `against`: a row's number, or a reference's name
    ("untrained": the supernet with its initial weights); `row` leaves only that row. Two runs with one seed see the
    same data and initial weights. A seed that one side lacks has no difference.
    """
    from harness.components.discovery import component

    opened = open_store(store)
    found = _findings(study, opened, preset, seeds, overrides, where)
    made: pandas.DataFrame = component("reports.data_frames").pairs_frame(found, metric, row, against, opened)
    labels = {label_column(name): [one.labels[name] for one in found.study.rows] for name in found.study.rows[0].labels}
    return _ordered(made, labels)


def columns() -> pandas.DataFrame:
    """Every column that `runs` can have: its name, what it belongs to, its type, its meaning.

    A star means a part that differs between runs.
    """
    import pandas

    rows = [(one.name, one.part, dtype((), one.kind), one.meaning) for one in describe()]
    return pandas.DataFrame(rows, columns=["column", "part", "dtype", "meaning"]).astype("str")


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


def _warn_of_sources(table: pandas.DataFrame, runs: Mapping[str, StoredRun]) -> None:
    """Warn if rows that a group-by would join were made by several versions of a component."""
    groups: dict[str, dict[str, StoredRun]] = {}
    for name in dict.fromkeys(table["run_id"][table["source"].notna()]):
        run = runs[name]
        same = groups.setdefault(canonical([run.preset, {**run.trial["config"], "seed": None, "observe": None}]), {})
        same.setdefault(str(run.source), run)
    several = [list(same.values()) for same in groups.values() if len(same) > 1]
    if mixed := [own for own in several if not all(_same_code(own[0], other) for other in own[1:])]:
        first = mixed[0]
        told = ", ".join(f"{run.source} ({run.id})" for run in first)
        warnings.warn(
            f"rows of one label have several sources: {len(mixed)} configuration{'s' * (len(mixed) > 1)} with runs of "
            f"different code, such as {first[0].trial['config']['method']['name']} with {told}. "
            "Group by the column source, too, or select one",
            SourceWarning,
            stacklevel=_CALLER,
        )


def _same_code(one: StoredRun, other: StoredRun) -> bool:
    """Whether the runs' code is the same, or declared to be."""
    pairs = ((code, other.code.get(part)) for part, code in one.code.items())
    return all(its is None or its.is_like(code.code) or code.is_like(its.code) for code, its in pairs)


def _one_study(name: str) -> Study:
    from harness.study.catalogue import find_studies

    found = {study.name: study for study in find_studies(name)}
    if len(found) > 1 and name not in found:
        raise UserError(f"{name} holds several studies: {', '.join(found)}. Name one.")
    return found.get(name) or next(iter(found.values()))


def _fitting(
    store: stores.Store,
    records: list[dict[str, Any]],
    extra: Mapping[str, type] | None,
    where: str | None,
    panel: bool,
) -> pandas.DataFrame:
    """The records as a data frame; those that do not fit its columns become problems of the store."""
    from harness.query import select

    labels = {*(extra or {})}
    table = frame(records, extra, () if panel or where is not None else details(records) - labels)
    if wrong := misfits(records, table):
        store.problems += [Problem(f"{store.name}/{run}", reason) for run, reason in wrong.items()]
        records = [one for one in records if one["run_id"] not in wrong]
        table = frame(records, extra)
    if where is not None:
        table = select(table, where)
        records = [records[int(number)] for number in table.index]
        table = table.reset_index(drop=True)
    hidden = set() if panel else details(records) - labels
    return table[[name for name in table.columns if name not in hidden]]


def _made_for(run: StoredRun) -> dict[str, str]:
    return next(({"study": study, "made_for": row} for study, row in run.rows.items()), {})


def _place(store: stores.Store, run: StoredRun) -> dict[str, str]:
    return {} if (folder := store.folder_of(run)) is None else {"path": str(folder)}


def _as_asked(run: StoredRun, request: Request, names: Mapping[str, str]) -> dict[str, Any]:
    """The run's columns, with the requested ranking instead of the run's own."""
    config = request.trial.config
    searched = {"search": config.json()["search"]} if config.search else {}
    measured = columns_of({"rank": vars(config.rank), "benchmark": config.benchmark, **searched})
    return record(run, request.trial.ranking_key, names) | measured | {"overridden": request.overridden}


def _store_of(runs: Runs, store: Store) -> stores.Store:
    name = getattr(runs, "attrs", {}).get("store")
    return open_store(store if store is not None else _OPENED.get(str(name), name))


def _stored(runs: Runs, store: stores.Store) -> list[StoredRun]:
    """The stored runs, in the given order. Raises what `Store.find` raises."""
    ids = [runs] if isinstance(runs, str) else list(getattr(runs, "run_id", runs))
    known = {run.id: run for run in store.runs({str(one)[:16] for one in ids})}
    return [known.get(str(one)) or store.find(str(one)) for one in ids]


def _findings(
    study: str | Study,
    store: stores.Store,
    preset: str | None,
    seeds: int | None,
    overrides: Mapping[str, Any] | None,
    where: str | None,
) -> Any:
    """What the store holds for the study, as its report finds it."""
    from harness.components.discovery import component
    from harness.components.preset import default_preset, get_preset

    asked = study if isinstance(study, Study) else _one_study(study)
    scale = get_preset(preset or default_preset().name, asked.about)
    return component("reports.evidence").find(asked, scale, store, seeds, overrides, where)


def _kind(values: Sequence[Any]) -> type:
    """The type of a label column: text, yes or no, or both."""
    kinds = {type(value) for value in values}
    return kinds.pop() if len(kinds) == 1 else object


def _ordered(table: pandas.DataFrame, labels: Mapping[str, Sequence[Any]]) -> pandas.DataFrame:
    """The table with text labels as categories in the study's order."""
    import pandas

    for name, values in labels.items():
        if _kind(values) is str:
            table[name] = pandas.Categorical(table[name], list(dict.fromkeys(values)), ordered=True)
    return table


def _with_labels(table: pandas.DataFrame, runs: Runs) -> pandas.DataFrame:
    """The table with the row, labels and seed that the runs have, behind the run's id; once for every row of a run."""
    names = [str(name) for name in getattr(runs, "columns", ())]
    labels = [name for name in names if name == "row" or name.startswith("label_")]
    if not labels:
        return table
    kept = ["run_id", *labels, *(name for name in ("seed", "rank_truth") if name in names)]
    shared = [name for name in ("run_id", "rank_truth") if name in table.columns and name in names]
    kept = [name for name in kept if name in shared or name != "rank_truth"]
    own = cast("pandas.DataFrame", runs)[kept].drop_duplicates()
    merged = table.merge(own, on=shared, how="left", sort=False)
    return merged[[*kept, *(name for name in table.columns if name not in kept)]]


def _rankings(runs: Runs, count: int) -> Iterator[dict[str, Any]]:
    """For each of so many runs, the settings of its ranking as the data frame has them; empty for mere ids."""
    import pandas

    names = [str(name) for name in getattr(runs, "columns", ())]
    taken = {key: f"rank_{key}" for key in _JUDGING} | {"benchmark": "benchmark"}
    taken = {key: column for key, column in taken.items() if column in names}
    if not taken:
        yield from ({} for _ in range(count))
        return
    table = cast("pandas.DataFrame", runs)
    for values in zip(*(table[column] for column in taken.values()), strict=True):
        known = {key: None if pandas.isna(value) else value for key, value in zip(taken, values, strict=True)}
        # A setting that was added later is missing in older runs: then the run's own text says what holds.
        yield {key: value for key, value in known.items() if value is not None or key in _OPTIONAL}


def _truth_and_selection(
    benchmark: str | None,
    space: str,
    dataset: str,
    truth: str | None,
    rule: str,
    on: str | None,
    bins: int,
    split: str | None,
) -> tuple[Any, set[int]] | None:
    """The accuracies that judge a run, and the numbers of the architectures τ is taken over; None without a table."""
    from harness.components.benchmark import benchmark_for
    from harness.components.selection import RULES

    if benchmark is None:
        return None
    try:
        opened = benchmark_for(benchmark, space)
    except DataError:  # the table is not here
        return None
    judging, selecting = (
        opened.accuracies(name, split or "test") for name in (truth or dataset, on or truth or dataset)
    )
    return judging, set(RULES[rule](selecting, int(bins)).tolist())
