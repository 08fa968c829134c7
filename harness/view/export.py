"""Writes the pages as a static site: a folder that opens from a file, and from any static host.

The pages are those of the live server, with their data inside. Statistics over seeds are computed here, for every
study, curve and axis; conditions of `query` and PDF files need the server and are left out.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UserError
from harness.files import write
from harness.view import content, curves
from harness.view.site import Links, render, static_files

if TYPE_CHECKING:
    from harness.stores.store import Store
    from harness.view.snapshot import Snapshot, Standing

LINES = 100_000
"""Bytes of a log's end that a page contains."""


def export(
    snapshot: Snapshot,
    store: Store,
    folder: Path,
    standings: list[Standing],
    report: Callable[[int, int], object] = lambda done, total: None,
) -> int:
    """Write the site of these studies and all runs; return the number of pages. The folder must be new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not an empty folder: name another one")
    site = _Folder(folder, store.name)
    total = len(standings) + len(snapshot.rows) + 3
    done = 0

    def page(*arguments: Any) -> None:
        nonlocal done
        site.page(*arguments)
        done += 1
        report(done, total)

    shown = content.studies(snapshot, store)
    names = {(one.study.name, one.preset) for one in standings}
    shown["studies"] = [one for one in shown["studies"] if (one["name"], one["preset"]) in names]
    page("studies", "Studies", shown, "index.html")
    for one in standings:
        found = content.study(snapshot, store, one.study.name, one.preset)
        found["curves"] = _all_curves(snapshot, store, one, found["metrics"])
        page("study", one.study.name, found, f"study/{one.preset}/{one.study.name}.html")
    page("runs", "Runs", content.runs(snapshot), "runs.html")
    page("compare", "Compare", {"runs": []}, "compare.html")
    for run_id, row in snapshot.rows.items():
        found = content.run(snapshot, store, run_id)
        site.file(
            f"data/{run_id}.js", f"globalThis.harnessRuns[{json.dumps(run_id)}] = {json.dumps(found)};\n".encode()
        )
        found["log"] = content.log(store, row.run, -1)
        page("run", f"Run {run_id}", found, f"run/{run_id}.html")
    for name, path in static_files().items():
        (folder / "static").mkdir(exist_ok=True)
        shutil.copyfile(path, folder / "static" / name)
    return done


def _all_curves(snapshot: Snapshot, store: Store, one: Standing, metrics: list[str]) -> dict[str, Any]:
    """Every curve of a study along every axis."""
    place = (one.study.name, one.preset)
    return {
        metric: {axis: content.study_curves(snapshot, store, *place, metric, axis) for axis in curves.AXES}
        for metric in metrics
    }


class _Folder:
    def __init__(self, path: Path, store: str) -> None:
        self.path, self.store = path, store

    def page(self, kind: str, title: str, found: dict[str, Any], name: str) -> None:
        links = Links("../" * name.count("/"), ".html")
        self.file(name, render(kind, title, found, links, self.store).encode())

    def file(self, name: str, text: bytes) -> None:
        place = self.path / name
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            write(place, lambda file: file.write(text))
        except OSError as error:
            raise UserError(f"cannot write {place}: {error.strerror or error}") from error
