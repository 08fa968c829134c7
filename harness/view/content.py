"""What each page shows, as plain JSON: the live server and the static site get the same values.

Texts of users and runs are passed on as they are; templates and scripts insert them as text, never as markup.
"""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from harness.components.discovery import component
from harness.components.preset import get_preset
from harness.components.registries import SPACES
from harness.documents import flatten
from harness.errors import HarnessError, UnknownName
from harness.owner import describe as describe_owner
from harness.query import select, underscored
from harness.stores.stored import Status, without_curves
from harness.view import curves
from harness.view.snapshot import Row, Snapshot, Standing, row_name
from harness.work.states import State

if TYPE_CHECKING:
    from harness.stores.store import Store
    from harness.stores.stored import StoredRun

COLUMNS = (
    *("status", "study", "row", "seed", "kendall_tau", "top1_accuracy", "wall_seconds", "preset", "dataset"),
    *("method_name", "schedule_name", "clusters_name", "started"),
)
"""The columns of the table of runs unless others are chosen."""
FACETS = ("status", "study", "method_name", "space", "dataset", "preset", "seed")
"""Columns that the table of runs can be narrowed down by, value by value."""
LOG_TAIL = 64 * 1024
"""Bytes of a log that are shown at first."""
LOG, RUN, COMPLETION, SOURCES = "cout.txt", "run.json", "completion.json", "sources/"
MAIN_CURVE = "train_loss"
SHOWN_FILE = 256 * 1024
"""Source files up to this size are compared."""


def value(cell: Any) -> Any:
    """A cell of a data frame as JSON: missing values and values that are not finite are null."""
    if cell is None or isinstance(cell, str | bool | int):
        return cell
    if isinstance(cell, float):
        return cell if cell == cell and abs(cell) != float("inf") else None
    if isinstance(cell, datetime):
        return cell.replace(tzinfo=None).isoformat()
    return json.dumps(cell, default=str)


# The studies


def studies(snapshot: Snapshot, store: Store) -> dict[str, Any]:
    """The first page: how every study stands, and who works."""
    return {
        "studies": sorted(map(_standing, snapshot.standings), key=lambda one: parts().index(one["part"])),
        "working": [working(row.run, store) for row in snapshot.rows.values() if row.run.status is Status.RUNNING],
        "failed": [_failed(row) for row in snapshot.rows.values() if row.run.status is Status.FAILED][-20:],
        "runs": len(snapshot.rows),
        "problems": [{"place": one.place, "reason": one.reason} for one in snapshot.problems],
        "trouble": snapshot.trouble,
    }


def parts() -> list[str]:
    """The headings of studies, in order."""
    return [*component("reports.paper.order").HEADINGS]


def _standing(one: Standing) -> dict[str, Any]:
    counts = one.counts
    waiting = counts.get(State.WAITING, 0) + counts.get(State.RANK, 0) + counts.get(State.AGAIN, 0)
    return {
        "name": one.study.name,
        "title": one.study.title,
        "part": component("reports.paper.order").heading(one.study),
        "preset": one.preset,
        "trials": one.trials,
        "done": counts.get(State.DONE, 0),
        "running": counts.get(State.RUNNING, 0),
        "failed": counts.get(State.FAILED, 0),
        "stopped": counts.get(State.INTERRUPTED, 0) + counts.get(State.LOST, 0),
        "waiting": waiting,
        "seconds_left": one.seconds_left,
    }


def working(run: StoredRun, store: Store) -> dict[str, Any]:
    """A run that is being made: by whom, and how far it is."""
    document = _document(run, store, RUN)
    progress = document.get("progress") or {}
    host = (document.get("host") or {}).get("hostname") or run.owner.get("host") or ""
    return {
        "run": run.id,
        "host": host,
        "process": describe_owner(run.owner),
        "started": run.start_time,
        "heartbeat": document.get("heartbeat"),
        **{key: progress.get(key) for key in ("stage", "step", "steps", "loss", "tau", "device")},
    }


def _failed(row: Row) -> dict[str, Any]:
    trace = row.run.fail_trace or [""]
    reason = trace[-1].strip().splitlines()[-1:] or [""]
    return {"run": row.run.id, "study": row.record["study"], "row": row.record["row"], "reason": reason[0]}


def _document(run: StoredRun, store: Store, name: str) -> Mapping[str, Any]:
    """A JSON file of a run; empty if there is none, or it is damaged."""
    with contextlib.suppress(HarnessError, ValueError):
        document = json.loads(store.read(run, name))
        if isinstance(document, dict):
            return document
    return {}


# One study


def study(snapshot: Snapshot, store: Store, name: str, preset: str) -> dict[str, Any]:
    """The report's section of a study: its table, verdicts and figures as HTML of ours, and the runs behind each value.

    Raises `UnknownName` for a study without runs under the preset.
    """
    standing = find_standing(snapshot, name, preset)
    report, html = component("reports.report"), component("reports.render.html")
    asked = report.Asked(get_preset(preset, standing.study.about), references=None, figures=True, compare=True)
    (section,) = report.judged([report.section(standing.study, store, asked)], True)
    part, places = html.study_part(section)
    return {
        **_standing(standing),
        "html": str(part),
        "places": places,
        "metrics": metrics_of(runs_of(snapshot, standing), store),
        "command": f"harness report {name} --preset {preset} --compare --references",
    }


def find_standing(snapshot: Snapshot, name: str, preset: str) -> Standing:
    """The standing of a study. Raises `UnknownName`."""
    for one in snapshot.standings:
        if (one.study.name, one.preset) == (name, preset):
            return one
    raise UnknownName.among(
        "study with runs", f"{name} ({preset})", [f"{s.study.name} ({s.preset})" for s in snapshot.standings]
    )


def runs_of(snapshot: Snapshot, standing: Standing) -> list[Row]:
    """The runs that a study's table shows, by row and seed."""
    wanted = standing.requests
    found = [
        row
        for row in snapshot.rows.values()
        if row.run.key in wanted and (row.run.counts or row.run.status is Status.RUNNING)
    ]
    return sorted(found, key=lambda row: (wanted[row.run.key].row, row.record["seed"]))


# The table of runs


def runs(
    snapshot: Snapshot, columns: Sequence[str] = (), since: int = 0, where: str = "", seen: str = ""
) -> dict[str, Any]:
    """The rows that changed after version `since`, in the chosen columns; `where` adds which runs match it.

    `seen` are the columns that the page has: if these are others, all rows are sent. Raises `InvalidConfiguration` for
    a condition that cannot be evaluated.
    """
    known = [str(name) for name in snapshot.frame.columns]
    chosen = [underscored(name) for name in columns] or list(COLUMNS)
    if wrong := [name for name in chosen if name not in known]:
        raise UnknownName.among("column", wrong[0], known)
    listed = ["run_id", *dict.fromkeys([*chosen, *FACETS])]
    changed = [row for row in snapshot.rows.values() if row.version > since or seen != ",".join(listed)]
    answer: dict[str, Any] = {
        "version": snapshot.version,
        "columns": listed,
        "chosen": chosen,
        "facets": list(FACETS),
        "rows": [[value(row.record.get(name)) for name in listed] for row in changed],
        "removed": [run for run, version in snapshot.removed.items() if version > since],
        "total": len(snapshot.rows),
        "trouble": snapshot.trouble,
    }
    if not since:
        answer["known"] = known
    if where:
        answer["matching"] = select(snapshot.frame, where)["run_id"].tolist()
    return answer


# One run


def run(snapshot: Snapshot, store: Store, run_id: str) -> dict[str, Any]:
    """Everything about one run but its log. Raises what `Store.find` raises."""
    found = snapshot.rows[run_id].run if run_id in snapshot.rows else store.find(run_id)
    row = snapshot.rows.get(found.id)
    document = _document(found, store, RUN)
    result = found.result or {}
    panel = result.get("panel") or {}
    files = store.files(found)
    heading = {
        "trial": found.key,
        "attempt": found.attempt,
        "preset": found.preset,
        "overrides": " ".join(f"{key}={text}" for key, text in found.overrides.items()),
        "started (UTC)": found.start_time,
        "stopped (UTC)": found.stop_time,
        "made by": describe_owner(found.owner),
        **environment(document),
    }
    return {
        "id": found.id,
        "study": row.record["study"] if row else "",
        "row": row.record["row"] if row else "",
        "status": found.status + (", superseded by a newer run" if found.superseded else ""),
        "invalid": found.invalid or "",
        "preset": found.preset,
        "heading": {name: text for name, text in heading.items() if text not in (None, "")},
        "config": {key: value(one) for key, one in flatten(found.trial["config"]).items()},
        "result": {key: value(one) for key, one in flatten(_plain(result)).items()},
        "panel": {key: value(one) for key, one in flatten(panel).items()},
        "cost": {key: value(one) for key, one in flatten(found.cost or {}).items()},
        "files": files,
        "sources": sources(found, store),
        "trace": "".join(found.fail_trace or ()),
        "working": working(found, store) if found.status is Status.RUNNING else None,
        "parents": [one for one in snapshot.rows if _starts(found, snapshot.rows[one].run)],
        "children": [one for one in snapshot.rows if _starts(snapshot.rows[one].run, found)],
        "commands": [f"harness show {found.id}", f"harness rerun {found.id}", f"harness diff {found.id} OTHER"],
        "curves": single_curves(found, store),
        "predictions": predictions(found, store),
        "found": found_architecture(found),
    }


def environment(document: Mapping[str, Any]) -> dict[str, Any]:
    """Machine, commit and versions of a run, from its record."""
    host, experiment = document.get("host") or {}, document.get("experiment") or {}
    commit = (experiment.get("repositories") or [{}])[0]
    versions = dict(one.split("==", 1) for one in experiment.get("dependencies") or () if "==" in one)
    dirty = "with changes" if commit.get("dirty") else ""
    gpus = [one.get("model", "") for one in ((host.get("gpus") or {}).get("gpus") or [])]
    found = {
        "host": host.get("hostname"),
        "processor": host.get("cpu"),
        "GPUs": ", ".join(gpus),
        "python": host.get("python_version"),
        "torch": versions.get("torch"),
        "commit": " ".join(filter(None, [commit.get("commit") or commit.get("version"), dirty])),
    }
    return {name: text for name, text in found.items() if text}


def _plain(result: Mapping[str, Any]) -> dict[str, Any]:
    return {key: one for key, one in without_curves(result).items() if key != "panel"}


def _starts(child: StoredRun, parent: StoredRun) -> bool:
    """Whether a trial starts from the search of another."""
    return str(child.trial.get("parent") or "").startswith(parent.key)


def single_curves(run: StoredRun, store: Store) -> dict[str, Any]:
    """All curves of a run over steps, each with at most `curves.POINTS` points."""
    found = {}
    with contextlib.suppress(HarnessError):
        for name, points in store.metrics(run).items():
            made = {axis: _series(run, points, axis) for axis in curves.AXES}
            lines = {axis: curves.downsampled(one.x, one.y) for axis, one in made.items()}
            found[name] = {axis: [curves.plain(x), curves.plain(y)] for axis, (x, y) in lines.items()} | {
                "points": len(points)
            }
    return found


def predictions(run: StoredRun, store: Store) -> dict[str, Any] | None:
    """Predicted against true accuracy; None where there are no predictions or no ground truth."""
    from harness import results

    with contextlib.suppress(HarnessError, KeyError):
        table = results.predictions([run.id], store).dropna(subset=["true", "predicted"])
        table = table[table["selected"].astype(bool)]
        if len(table):
            return {
                "architecture": table["architecture"].tolist(),
                "true": [round(one, 3) for one in table["true"].tolist()],
                "predicted": [round(one, 3) for one in table["predicted"].tolist()],
            }
    return None


def found_architecture(run: StoredRun) -> dict[str, str] | None:
    """The best-ranked architecture of a run, drawn; None if it has none, or its space draws nothing."""
    top1 = (run.result or {}).get("top1")
    if not top1:
        return None
    space = SPACES.get(run.trial["config"]["space"])()
    architecture = tuple(int(one) for one in top1)
    panels = component("reports.figures").graphs("", space, architecture)
    if not panels:
        return None
    figure = component("reports.figure_values").FigureValue("", "found", "", "", tuple(panels), (), ())
    return {"name": space.format(architecture), "svg": component("reports.render.drawing").draw(figure, "svg").decode()}


def log(store: Store, run: StoredRun, after: int) -> dict[str, Any]:
    """The log of a run from byte `after` on; a negative number means its last part."""
    content = b""
    with contextlib.suppress(HarnessError):
        content = store.read(run, LOG) if LOG in store.files(run) else b""
    start = max(0, len(content) - LOG_TAIL) if after < 0 else min(after, len(content))
    return {"from": start, "to": len(content), "text": content[start:].decode(errors="replace")}


# Curves of groups


def metrics_of(rows: Iterable[Row], store: Store) -> list[str]:
    """The curves that at least one of these runs has."""
    found: set[str] = set()
    for row in rows:
        with contextlib.suppress(HarnessError):
            found |= store.metrics(row.run).keys()
    return sorted(found, key=lambda name: (name != MAIN_CURVE, name))


def study_curves(snapshot: Snapshot, store: Store, name: str, preset: str, metric: str, axis: str) -> dict[str, Any]:
    """A metric of all runs of a study, grouped by row and data set. Raises `UnknownName`."""
    standing = find_standing(snapshot, name, preset)
    rows = runs_of(snapshot, standing)
    several = len({row.record["dataset"] for row in rows}) > 1

    def label(row: Row) -> str:
        own = row_name(standing.study, standing.requests[row.run.key])
        return f"{own}, {row.record['dataset']}" if several else own

    return grouped(rows, store, metric, axis, label)


def chosen_curves(snapshot: Snapshot, store: Store, ids: Sequence[str], metric: str, axis: str) -> dict[str, Any]:
    """A metric of the chosen runs, grouped by all that distinguishes them except the seed."""
    rows = [snapshot.rows[one] for one in ids if one in snapshot.rows]
    return grouped(rows, store, metric, axis, group_label(rows))


def group_label(rows: Sequence[Row]) -> Any:
    """A function that names the group of a row: by study row, or by the settings in which the runs differ."""
    settings = [flatten(row.run.trial["config"]) for row in rows]
    keys = {key for one in settings for key in one if key != "seed"}
    varying = [key for key in keys if len({str(one.get(key)) for one in settings}) > 1]
    varying.sort(key=lambda key: (not key.endswith(".name"), key))  # which component, before its options

    def label(row: Row) -> str:
        own = flatten(row.run.trial["config"])
        return ", ".join(f"{key}={own.get(key)}" for key in varying[:4]) or row.record["row"] or "all runs"

    return label


def grouped(rows: Sequence[Row], store: Store, metric: str, axis: str, label: Any) -> dict[str, Any]:
    """A metric by group. Raises `UnknownName` for a metric that no run has, or an axis."""
    if axis not in curves.AXES:
        raise UnknownName.among("axis", axis, curves.AXES)
    groups: dict[str, list[curves.Series]] = {}
    known: set[str] = set()
    for row in rows:
        points: Mapping[str, Any] = {}
        with contextlib.suppress(HarnessError):
            points = store.metrics(row.run)
        known |= points.keys()
        if metric in points:
            groups.setdefault(label(row), []).append(_series(row.run, points[metric], axis))
    if not groups and known:
        raise UnknownName.among("metric", metric, known)
    return {
        "metric": metric,
        "axis": axis,
        "x": curves.AXES[axis],
        "bands": curves.BANDS,
        "groups": [curves.group(name, members) for name, members in groups.items()],
    }


def _series(run: StoredRun, points: Sequence[Mapping[str, Any]], axis: str) -> curves.Series:
    images = (run.cost or {}).get("images")
    return curves.series(run.id, int(run.trial["config"]["seed"]), points, axis, images)


def figure(curve: Mapping[str, Any], band: str, form: str) -> bytes:
    """Grouped curves as SVG or PDF, drawn as the figures of reports are."""
    values, drawing = component("reports.figure_values"), component("reports.render.drawing")
    lines = []
    for one in curve["groups"]:
        edges = one["bands"].get(band, {"low": [], "high": []})
        several = one["n"] > 1
        numbers = (one["x"], one["mean"], edges["low"] if several else [], edges["high"] if several else [])
        lines.append(values.Curve(f"{one['label']} (n = {one['n']})", *map(tuple, numbers)))
    panel = values.LinePanel("", curve["x"], curve["metric"], tuple(lines))
    made = values.FigureValue("curves", curve["metric"], curve["metric"], "", (panel,), (), ())
    drawn: bytes = drawing.draw(made, form)
    return drawn


# Comparison of runs


def source_diff(store: Store, one: StoredRun, other: StoredRun, name: str) -> str:
    """The difference of a source file of two runs, as a unified diff."""

    def lines(run: StoredRun) -> list[str]:
        content = b""
        with contextlib.suppress(HarnessError):
            content = store.read(run, f"{SOURCES}{name}")
        return content[:SHOWN_FILE].decode(errors="replace").splitlines()

    names = (f"{one.id}/{name}", f"{other.id}/{name}")
    return "\n".join(difflib.unified_diff(lines(one), lines(other), *names, lineterm=""))


def sources(run: StoredRun, store: Store) -> dict[str, str]:
    """The source files of a run's components, with the first digits of their checksums if the run is done."""
    files = _document(run, store, COMPLETION).get("files") or {}
    names = [name for name in store.files(run) if name.startswith(SOURCES)]
    return {name.removeprefix(SOURCES): str(files.get(name, ""))[:12] for name in names}
