"""All checks of `harness doctor`, in order. Each looks at one thing, changes nothing, and cannot stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from harness.documents import one_line
from harness.stores.places import Places
from harness.work.diagnosis import content, installation, machine, stored
from harness.work.diagnosis.finding import Finding, Findings, problem
from harness.work.diagnosis.probe import Probe


def examine(places: Places, wait: float) -> Iterator[Finding]:
    """Everything that is found, one finding at a time; torch and its GPUs have `wait` seconds to answer."""
    probe = Probe(wait)  # first, because it takes longest
    checks: dict[str, Callable[[], Findings]] = {
        "packages": installation.check_packages,
        "output": machine.check_output,
        "cores": machine.check_cores,
        "temporary": machine.check_temporary,
        "components": content.check_components,
        "data sets": content.check_contents,
        "store": partial(stored.check_store, places),
        "disk": partial(machine.check_disk, _directory(places)),
        "database": partial(stored.check_database, places),
        "gpus": probe.findings,
    }
    try:
        for subject, check in checks.items():
            yield from _guarded(subject, check)
    finally:
        probe.close()


def _directory(places: Places) -> Path:
    return Path.cwd() if places.database_only else places.directory


def _guarded(subject: str, check: Callable[[], Findings]) -> Findings:
    """What the check finds. One that fails itself is a problem, and the next ones still run."""
    try:
        yield from check()
    except Exception as error:
        text = f"could not be checked: {one_line(error)}"
        yield problem(subject, text, "report this; the other checks do not depend on it")
