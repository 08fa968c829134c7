"""A pretended SLURM: real commands in PATH, real batch scripts, SLURM's variables and real signals.

The commands only leave requests in a folder; `Cluster.step` does what slurmctld and slurmd do: it starts tasks, warns
them, ends them when their time is over, preempts, cancels and requeues.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

COMMANDS = r"""#!{python}
import json, os, sys
from pathlib import Path

state, name, words = Path({state!r}), Path(sys.argv[0]).name, sys.argv[1:]
with (state / "called").open("a") as calls:
    calls.write(json.dumps([name, *words]) + "\n")
if name == "sbatch":
    number = 1000
    while True:
        try:
            (state / "ids" / str(number)).mkdir(parents=True)
            break
        except FileExistsError:
            number += 1
    request = {{"script": Path(words[-1]).read_text(), "environment": dict(os.environ), "folder": os.getcwd()}}
    (state / f"new-{{number}}").write_text(json.dumps(request))
    (state / f"new-{{number}}").rename(state / f"submitted-{{number}}")
    print(number)
elif name == "squeue":
    task = words[words.index("-j") + 1]
    print(json.loads((state / "ends").read_text())[task])
elif name == "scancel":
    if not (state / "ids" / words[0]).exists() or (state / "over" / words[0]).exists():
        sys.exit(f"scancel: error: Kill job error on job id {{words[0]}}: Invalid job id specified")
    (state / f"cancelled-{{words[0]}}").touch()
elif words[:2] == ["show", "config"]:
    print("Configuration data as of today\nMaxArraySize            = {limit}\nMaxJobCount             = 10000")
elif words[0] == "requeue":
    (state / f"requeued-{{words[1]}}").touch()
"""


@dataclass
class Task:
    """One task of an array."""

    job: str
    number: int
    script: str
    environment: dict[str, str]
    folder: str
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    codes: list[int] = field(default_factory=list)
    """How its starts ended."""
    again: bool = False
    """Whether it starts again when it has ended."""
    over: bool = False
    warned: bool = False
    end: float = 0.0
    kill_at: float | None = None

    @property
    def name(self) -> str:
        return f"{self.job}_{self.number}"

    def option(self, name: str) -> str | None:
        match = re.search(rf"^#SBATCH --{name}=(.*)$", self.script, re.MULTILINE)
        return match[1] if match else None

    @property
    def running(self) -> bool:
        return self.process is not None

    def signal(self, number: int, everyone: bool) -> None:
        """Signal the batch script's process, or all processes of the task."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if everyone else os.kill)(self.process.pid, number)


class Cluster:
    """The nodes, one task on each at a time. There are `grace` seconds between TERM and KILL."""

    def __init__(self, folder: Path, nodes: int = 4, limit: int = 1001, grace: float = 20.0) -> None:
        self.state, self.nodes, self.grace = folder / "slurm", nodes, grace
        self.tasks: list[Task] = []
        self.bin = folder / "bin"
        for made in (self.state / "over", self.state / "ids", self.bin):
            made.mkdir(parents=True)
        text = COMMANDS.format(python=sys.executable, state=str(self.state), limit=limit)
        for name in ("sbatch", "squeue", "scancel", "scontrol"):
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)

    @property
    def path(self) -> str:
        """PATH with the commands in it."""
        return f"{self.bin}{os.pathsep}{os.environ['PATH']}"

    def calls(self, name: str) -> list[list[str]]:
        """The arguments of all calls of a command."""
        lines = (self.state / "called").read_text().splitlines() if (self.state / "called").exists() else []
        return [words for command, *words in map(json.loads, lines) if command == name]

    def preempt(self, task: Task, grace: float | None = None) -> None:
        """TERM to all processes of the task, KILL after the grace time; SLURM itself starts it again later."""
        task.again = True
        self._end(task, grace)

    def step(self) -> None:
        """Do what is to be done now."""
        self._requests()
        free = self.nodes - sum(task.running for task in self.tasks)
        for task in [one for one in self.tasks if not one.running and not one.over][: max(0, free)]:
            self._start(task)
        now = time.time()
        for task in [one for one in self.tasks if one.running]:
            assert task.process is not None
            if (code := task.process.poll()) is not None:
                task.codes.append(code)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(task.process.pid, signal.SIGKILL)  # as the cgroup of a job ends with it
                task.process, task.over = None, not task.again
            elif task.kill_at is not None:
                if now >= task.kill_at:
                    task.signal(signal.SIGKILL, everyone=True)
            elif now >= task.end:
                self._end(task)
            elif not task.warned and now >= task.end - self._warning(task):
                task.warned = True
                task.signal(signal.SIGUSR2, everyone=False)
        for job in {task.job for task in self.tasks}:
            if all(task.over for task in self.tasks if task.job == job):
                (self.state / "over" / job).touch()

    def run(self, until: Callable[[], bool], within: float = 300.0) -> None:
        """Step until something holds."""
        limit = time.monotonic() + within
        while True:
            self.step()
            if until():
                return
            assert time.monotonic() < limit, [(one.name, one.codes, one.running) for one in self.tasks]
            time.sleep(0.02)

    def is_idle(self) -> bool:
        """Whether everything that was submitted is over."""
        return all(task.over for task in self.tasks) and not any(self.state.glob("submitted-*"))

    def close(self) -> None:
        for task in self.tasks:
            if task.process is not None:
                task.signal(signal.SIGKILL, everyone=True)
                task.process.wait()

    def _requests(self) -> None:
        for file in sorted(self.state.glob("submitted-*")):
            request, job = json.loads(file.read_text()), file.name.partition("-")[2]
            first = Task(job, 0, **request)
            last = int((first.option("array") or "0-0").partition("-")[2])
            self.tasks += [Task(job, number, **request) for number in range(last + 1)]
            file.unlink()
        for task in self.tasks:
            asked = self.state / f"requeued-{task.name}"
            if asked.exists():
                asked.unlink()
                task.again = True
                if task.running:
                    self._end(task)
            if (self.state / f"cancelled-{task.job}").exists() and not task.over:
                task.again = False
                if task.running and task.kill_at is None:
                    self._end(task)
                task.over = not task.running

    def _start(self, task: Task) -> None:
        task.again = task.warned = False
        task.kill_at, task.starts = None, task.starts + 1
        task.end = time.time() + _seconds(task.option("time") or "1:00:00")
        ends = self.state / "ends"
        known = json.loads(ends.read_text()) if ends.exists() else {}
        ends.write_text(json.dumps(known | {task.name: time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(task.end))}))
        variables = {
            "SLURM_JOB_ID": str(int(task.job) * 100 + task.number),
            "SLURM_ARRAY_JOB_ID": task.job,
            "SLURM_ARRAY_TASK_ID": str(task.number),
            "SLURMD_NODENAME": f"node{task.number}",
            "SLURM_RESTART_COUNT": str(task.starts - 1),
        }
        if task.number % 2 == 0:  # older versions do not tell it: squeue does
            variables["SLURM_JOB_END_TIME"] = str(int(task.end))
        script = self.state / f"script-{task.name}"
        script.write_text(task.script)
        log = (task.option("output") or "").replace("%x", "x").replace("%A", task.job).replace("%a", str(task.number))
        with open(log, "ab") as output:
            task.process = subprocess.Popen(
                ["bash", str(script)],
                cwd=task.folder,
                env=task.environment | variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _end(self, task: Task, grace: float | None = None) -> None:
        if task.kill_at is None:
            task.kill_at = time.time() + (self.grace if grace is None else grace)
            task.signal(signal.SIGTERM, everyone=True)

    def _warning(self, task: Task) -> float:
        match = re.fullmatch(r"B:USR2@(\d+)", task.option("signal") or "")
        return float(match[1]) if match else -1.0


@contextlib.contextmanager
def cluster(folder: Path, **more: float) -> Iterator[Cluster]:
    """A cluster; its tasks end with the block."""
    one = Cluster(folder, **more)  # type: ignore[arg-type]
    try:
        yield one
    finally:
        one.close()


def _seconds(text: str) -> float:
    """A time as sbatch reads it: minutes, minutes:seconds, or hours:minutes:seconds."""
    parts = [int(part) for part in text.split(":")]
    if len(parts) == 1:
        return 60.0 * parts[0]
    return float(sum(part * 60**place for place, part in enumerate(reversed(parts))))
