"""Why a job is interrupted: told to stop, out of time, or no longer the owner of its cell.

A signal carries no reason. Whoever sends one to the main thread says it here first; the handler raises it.
"""

from __future__ import annotations

import signal
import threading
from typing import NoReturn

STOPPED, TIMEOUT, LOST = "stopped", "timeout", "lost"


class Interruption(KeyboardInterrupt):
    """The job must end now. A KeyboardInterrupt, so that nothing which catches errors holds it up."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


_reasons: list[str] = []


def interrupt_main(reason: str) -> None:
    """Interrupt the main thread of this process, from another one; the first reason counts."""
    _reasons.append(reason)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def raise_interruption(number: int, frame: object) -> NoReturn:
    """A handler for SIGTERM. Once: a second signal must not disturb the storing of what the first interrupted."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Interruption(_reasons[0] if _reasons else STOPPED)
