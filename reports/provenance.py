"""The runs behind the values of a report, for HTML pages: commit, host, dates, configuration. Plain JSON types.

Runs of one report share most of their configuration and their machine: shared parts are stored once.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from harness.documents import flatten, parsed
from harness.errors import HarnessError
from harness.schema import RunDocument
from harness.stores.directory.run_directory import RUN

if TYPE_CHECKING:
    from harness.stores.store import Store
    from harness.stores.stored import StoredRun

_MISSING = object()
SHORT = 7
"""Characters of a commit that name a version."""
_PACKAGES = ("nas-harness", "torch")
"""The packages whose versions are shown."""


def describe(runs: Iterable[StoredRun], store: Store) -> dict[str, Any]:
    """All runs by id, the configuration that all have in common, and the machines."""
    ordered = sorted({run.id: run for run in runs}.values(), key=lambda run: run.id)
    configs = {run.id: flatten(run.trial["config"]) for run in ordered}
    common = _common(list(configs.values()))
    machines: dict[str, int] = {}
    described = {}
    for run in ordered:
        machine = json.dumps(_machine(run, store), sort_keys=True)
        own = {key: value for key, value in configs[run.id].items() if key not in common}
        described[run.id] = {
            "status": run.status + (", declared invalid" if run.invalid else ""),
            "trial": run.key,
            "attempt": run.attempt,
            "preset": run.preset,
            "overrides": dict(sorted(run.overrides.items())),
            "started": run.start_time,
            "stopped": run.stop_time,
            "cost": flatten(run.cost or {}),
            "machine": machines.setdefault(machine, len(machines)),
            "config": own,
        }
    return {"common": common, "machines": [json.loads(text) for text in machines], "runs": described}


def versions(runs: Iterable[StoredRun], store: Store) -> dict[str, int]:
    """By version of the harness (its commit, else its number), how many of the runs it made, in order of time.

    Runs whose record does not say are left out.
    """
    found: dict[str, int] = {}
    for run in sorted({run.id: run for run in runs}.values(), key=lambda run: (run.start_time or "", run.id)):
        machine = _machine(run, store)
        commit, _, changed = str(machine.get("commit") or "").partition(" ")
        if name := f"{commit[:SHORT]} {changed}".strip() or machine.get("version"):
            found[name] = found.get(name, 0) + 1
    return found


def _common(configs: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The entries that are equal in all configurations."""
    if len(configs) < 2:
        return {}
    first, *others = configs
    return {key: value for key, value in first.items() if all(one.get(key, _MISSING) == value for one in others)}


def _machine(run: StoredRun, store: Store) -> dict[str, Any]:
    """The machine and commit of the run; empty if its record does not say, or cannot be read."""
    record: Any = {}
    with contextlib.suppress(HarnessError):
        record = parsed(store.read(run, RUN), RunDocument)
    host, experiment = record.get("host") or {}, record.get("experiment") or {}
    repositories = experiment.get("repositories") or [{}]
    commit, dirty, version = (repositories[0].get(key) for key in ("commit", "dirty", "version"))
    packages = [one.split("==") for one in experiment.get("dependencies") or ()]
    gpus = (host.get("gpus") or {}).get("gpus") or []
    found = {
        "commit": f"{commit} (with changes)" if commit and dirty else commit,
        "version": None if commit else version,
        "host": host.get("hostname"),
        "system": (host.get("os") or [None])[-1],
        "python": host.get("python_version"),
        "packages": ", ".join(" ".join(one) for one in packages if one[0] in _PACKAGES),
        "cpu": host.get("cpu"),
        "gpus": ", ".join(str(one.get("model")) if isinstance(one, dict) else str(one) for one in gpus),
    }
    return {name: value for name, value in found.items() if value}
