"""Commands in forks of this process: side by side, or killed at a moment of one's choice."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.long.campaign.commands import BOUND, Said, call
from tests.long.campaign.tally import Hang


def begin(answer: Path, *arguments: str, within: float = BOUND) -> int:
    """Start a command in a fork, which writes its `Said` to the file; gives its process."""
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        try:
            said = call(*arguments, within=within)
        except Hang:
            said = Said(" ".join(arguments), -1, "", "")
        answer.write_text(json.dumps(asdict(said)))
    finally:
        os._exit(0)


def side_by_side(commands: Sequence[tuple[str, ...]], at_once: int = 8, within: float = BOUND) -> list[Said]:
    """Run them in forks, so many at a time; those that do not end in their time have the code -1."""
    with tempfile.TemporaryDirectory() as folder:
        answers = [Path(folder, str(number)) for number in range(len(commands))]
        running: list[int] = []
        for command, answer in zip(commands, answers, strict=True):
            if len(running) == at_once:
                os.waitpid(running.pop(0), 0)
            running.append(begin(answer, *command, within=within))
        for child in running:
            os.waitpid(child, 0)
        missing = (Said(" ".join(command), -1, "", "the process died") for command in commands)
        return [
            Said(**json.loads(answer.read_text())) if answer.exists() else other
            for answer, other in zip(answers, missing, strict=True)
        ]


def killed(*arguments: str, after: float) -> bool:
    """Kill the command after so many seconds; whether it was still running."""
    with tempfile.TemporaryDirectory() as folder:
        child = begin(Path(folder, "answer"), *arguments)
        until = time.monotonic() + after
        while time.monotonic() < until:
            if os.waitpid(child, os.WNOHANG)[0]:
                return False
            time.sleep(0.001)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return True
