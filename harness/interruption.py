"""Why a job is interrupted: told to stop, out of time, or no longer the owner of its trial.

A signal carries no reason. Whoever sends one to the main thread says it here first; the handler raises it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

STOPPED, TIMEOUT, LOST = "stopped", "timeout", "lost"


PATIENCE = 5.0
"""Seconds that work which was asked has to end by itself."""


class Interruption(KeyboardInterrupt):
    """The job must end now. A KeyboardInterrupt, so that nothing which catches errors holds it up."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


_reasons: list[str] = []
_polite: list[Callable[[], bool]] = []


def interrupt_main(reason: str) -> None:
    """Interrupt the main thread of this process, from another one; the first reason counts."""
    _reasons.append(reason)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


@contextlib.contextmanager
def asked_first(stop: Callable[[], bool]) -> Iterator[None]:
    """Within, a signal first asks `stop`: if it says that it will end the work by itself, nothing is raised.

    Not when the work is another's by now: that ends at once.
    """
    _polite.append(stop)
    try:
        yield
    finally:
        _polite.clear()


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Within, no SIGTERM disturbs the main thread; the handler of one that came is called at the end.

    For what turns an exception that passes through it into another, as `torch.save` does. The signal is not masked
    but noted: the system would give it to another thread, and Python have the main thread handle it all the same.
    """
    came: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(signal.getsignal(signal.SIGTERM)):  # nothing would be raised here
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if came:
            signal.raise_signal(signal.SIGTERM)


def reason_of(interruption: KeyboardInterrupt) -> str:
    """Why, also when the work ended itself after it was asked."""
    if isinstance(interruption, Interruption):
        return interruption.reason
    return _reasons[0] if _reasons else STOPPED


def raise_interruption(number: int, frame: object) -> None:
    """A handler for SIGTERM. Raises once: no second signal may disturb the storing of what the first interrupted."""
    if LOST not in _reasons and any(stop() for stop in _polite):
        insisting = threading.Timer(PATIENCE, _insist)
        insisting.daemon = True
        insisting.start()
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Interruption(_reasons[0] if _reasons else STOPPED)


def _insist() -> None:
    if _polite:  # it has not ended yet
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
