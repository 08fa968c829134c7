"""`run --notify`: one message per study when the command ends, to a command or a web address.

A message is JSON. A command reads it from standard input; an address gets it by POST. Its `text` alone is what chat
services show.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from harness.documents import one_line

if TYPE_CHECKING:
    from harness.stores.places import Places
    from harness.work.plan import Asked
    from harness.work.worker import Worker

PATIENCE = 30.0
"""Seconds that a command or a server has to take a message."""


@dataclass
class Notifier:
    """Sends the messages of one command."""

    target: str
    """A command for the shell, or an address that begins with http:// or https://."""
    asked: Asked
    store: str
    began: float = field(default_factory=time.monotonic)

    def ended(self, worker: Worker, stopped: bool) -> None:
        """Send how each study has ended."""
        from harness.work.states import State

        for study in self.asked.studies:
            plan = worker.plan.of(study)
            errors = {one.label: worker.errors[one.trial.key] for one in plan.work if one.trial.key in worker.errors}
            counts, total = plan.states, len(plan.work)
            failed = errors or counts[State.FAILED] or counts[State.LOST]
            outcome = (
                "done"
                if counts[State.DONE] == total
                else "stopped"
                if stopped
                else "failed"
                if failed
                else "incomplete"
            )
            trials = {"trials": total, **{str(state): count for state, count in sorted(counts.items())}}
            self._send(study.name, outcome, f"{counts[State.DONE]} of {total} trials done", trials, errors)

    def failed(self, error: Exception) -> None:
        """Send that the command has ended with an error."""
        for study in self.asked.studies:
            self._send(study.name, "failed", one_line(error), {}, {})

    def _send(self, study: str, outcome: str, text: str, trials: Mapping[str, int], errors: Mapping[str, str]) -> None:
        import socket

        host = socket.gethostname()
        message = {
            "text": f"{study} ({self.asked.preset}) on {host}: {outcome}, {text}",
            "study": study,
            "preset": self.asked.preset,
            "outcome": outcome,
            **trials,
            "errors": dict(errors),
            "seconds": round(time.monotonic() - self.began, 1),
            "host": host,
            "store": self.store,
        }
        for problem in _sent(self.target, json.dumps(message).encode()):
            click.echo(f"--notify: {problem}", err=True)


@contextmanager
def notifying(target: str | None, asked: Asked, store: Places) -> Iterator[Notifier | None]:
    """The notifier of a command; None without a target. An error of the command is a message, too."""
    notifier = None if target is None else Notifier(target, asked, str(store.directory))
    try:
        yield notifier
    except Exception as error:
        if notifier is not None:
            notifier.failed(error)
        raise


def _sent(target: str, message: bytes) -> Iterator[str]:
    """Send a message; yield what went wrong."""
    import subprocess
    import urllib.request

    try:
        if target.startswith(("http://", "https://")):
            request = urllib.request.Request(target, message, {"Content-Type": "application/json"})
            urllib.request.urlopen(request, timeout=PATIENCE).close()
            return
        ended = subprocess.run(target, shell=True, input=message, timeout=PATIENCE, stdout=subprocess.DEVNULL)
        if ended.returncode:
            yield f"the command ended with exit status {ended.returncode}: {target}"
    except (OSError, ValueError, subprocess.SubprocessError) as error:  # an address may contain a secret
        yield f"no message was sent: {one_line(error).replace(target, 'the address')}"
