"""Commands of the harness, called in this process: as `harness ARGUMENTS` does it, a hundred times quicker."""

from __future__ import annotations

import contextlib
import io
import signal
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.cli import main
from tests.long.campaign.tally import Attempt, Hang

BOUND = 60.0
"""Seconds that a command has, unless told otherwise: it takes far less, on a machine that may be loaded."""


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it printed."""

    command: str
    code: int
    out: str
    err: str
    raised: str = ""
    """The traceback of an exception that nothing caught."""

    @property
    def text(self) -> str:
        return self.out + self.err

    @property
    def end(self) -> str:
        """The last words, for a message."""
        return " / ".join((self.raised or self.text).strip().splitlines()[-3:])[-300:]


def call(*arguments: str, within: float = BOUND) -> Said:
    """Run a command. Raises `Hang` if it takes longer."""
    out, err = io.StringIO(), io.StringIO()
    code, raised = 1, ""
    with limited(within), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(list(arguments))
        except Exception:
            raised = traceback.format_exc()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    return Said(" ".join(arguments), code, out.getvalue(), err.getvalue(), raised)


def attempt(one: Attempt, *arguments: str, codes: tuple[int, ...] = (0, 1, 2), within: float = BOUND) -> Said:
    """Run a command of an attack: it must end by itself, without a traceback, with one of the codes."""
    said = call(*arguments, within=within)
    judge(one, said, codes)
    return said


def judge(one: Attempt, said: Said, codes: tuple[int, ...] = (0, 1, 2)) -> None:
    shows_stored = said.command.startswith("show")  # a failed run's own traceback
    if said.raised or (not shows_stored and "Traceback (most recent call last)" in said.text):
        one.fail("tracebacks", f"{said.command[:80]}: {said.end}")
    elif said.code not in codes:
        one.fail("other", f"{said.command[:80]}: exit code {said.code}: {said.end}")


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `Hang` in this thread when the time is over, also in the midst of a system call."""

    def ring(number: int, frame: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again, should a destructor swallow it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
