"""Sacred's events as files of a run directory, in the layout of Sacred's FileStorageObserver.

Unlike that observer, this one writes JSON atomically and without NaN, and ignores metrics: points are
appended when they are made (`RunDirectory.log_metric`), because Sacred passes them on only at heartbeats
and drops an observer permanently after its first error there.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from harness import environment
from harness.documents import shortened_trace
from harness.errors import is_machines_fault
from harness.stores.directory.run_directory import CONFIG, INFO, RUN, SOURCES, RunDirectory
from harness.stores.sacred import RunObserver


class DirectoryObserver(RunObserver):
    """Keeps `run.json`, `config.json` and `info.json` of one run up to date.

    `run.json` exists from the start, to distinguish a run that fails before Sacred starts it from one that
    was killed.
    """

    priority = 20

    def __init__(
        self,
        directory: RunDirectory,
        config: dict[str, Any],
        info: dict[str, Any],
        machine: Mapping[str, Any] | None = None,
    ) -> None:
        """`machine` is what the run is made on, as `environment.describe` gives it; by default this one."""
        self.directory = directory
        self.progress: dict[str, Any] | None = None
        """How far the run is (`harness.schema.RunDocument`); written with the next heartbeat."""
        self._machine = machine
        self._lock = threading.Lock()  # Sacred's heartbeat runs in its own thread
        self._entry: dict[str, Any] = {"status": "RUNNING", "artifacts": [], "resources": [], "heartbeat": None}
        self._save()
        # The configuration as we validated it, not as Sacred passes it on: Sacred needs a seed below 2³².
        directory.write(CONFIG, config)
        directory.write(INFO, info)

    @property
    def status(self) -> str:
        return str(self._entry["status"])

    def started_event(
        self,
        ex_info: dict[str, Any],
        command: str,
        host_info: dict[str, Any],
        start_time: datetime,
        config: dict[str, Any],
        meta_info: dict[str, Any],
        _id: str | None,
    ) -> str:
        here = self._machine or environment.describe()
        sources = self.directory.path / SOURCES
        experiment = {
            "name": ex_info["name"],
            "base_dir": "",
            "mainfile": ex_info["mainfile"],
            "sources": [[file.name, f"{SOURCES}/{file.name}"] for file in sorted(sources.glob("*"))],
            "dependencies": [f"{name}=={version}" for name, version in here["packages"].items()],
            "repositories": [{"url": "", "commit": here["commit"], "dirty": here["dirty"], "version": here["version"]}],
        }
        host = {
            "hostname": here["hostname"],
            "os": here["os"],
            "python_version": here["python"],
            "cpu": here["cpu"],
            "cores": here["cores"],
            "gpus": {"gpus": [{"model": name} for name in here["gpus"]]},
            "constraints": here["constraints"],
            "ENV": {},
        }
        self._update(
            experiment=experiment, command=command, host=host, meta=meta_info, start_time=start_time.isoformat()
        )
        return self.directory.id

    def heartbeat_event(self, info: dict[str, Any], captured_out: str, beat_time: datetime, result: Any) -> None:
        with contextlib.suppress(OSError):  # or Sacred drops the observer; the next heartbeat tries again
            self._update(heartbeat=beat_time.isoformat(), result=result, progress=self.progress)

    def completed_event(self, stop_time: datetime, result: Any) -> None:
        self._update(stop_time=stop_time.isoformat(), result=result, status="COMPLETED")

    def interrupted_event(self, interrupt_time: datetime, status: str) -> None:
        self._update(stop_time=interrupt_time.isoformat(), status=status)

    def failed_event(self, fail_time: datetime, fail_trace: list[str]) -> None:
        """An error that is the machine's fault makes it interrupted: the next `run` continues it."""
        status = "INTERRUPTED" if is_machines_fault(sys.exc_info()[1]) else "FAILED"
        self._update(stop_time=fail_time.isoformat(), status=status, fail_trace=shortened_trace(fail_trace))

    def artifact_event(self, name: str, filename: str, metadata: Any = None, content_type: Any = None) -> None:
        place = self.directory.path / name
        if Path(filename).resolve() != place.resolve():
            shutil.copyfile(filename, place)
        with contextlib.suppress(OSError):  # or Sacred drops the observer; the next event writes it
            self._update(artifacts=[*self._entry["artifacts"], name])

    def _update(self, **changes: Any) -> None:
        with self._lock:
            if "heartbeat" in changes and self._entry["status"] != "RUNNING":
                return  # Sacred waits two seconds for its heartbeat; the run's record is closed by now
            self._entry |= changes
            self._save()

    def save_again(self) -> None:
        """Write `run.json` if the last try failed: Sacred only logs the errors of its observers."""
        with self._lock:
            if not self._saved:
                self._save()

    def _save(self) -> None:
        self._saved = False
        self.directory.write(RUN, self._entry)
        self._saved = True
