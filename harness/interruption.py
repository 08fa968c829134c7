"""Why a child is interrupted: stopped, or out of time.

A signal carries no reason. The sender records it here before it signals the main thread; the handler raises it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

STOPPED, TIMEOUT = "stopped", "timeout"


PATIENCE = 5.0
"""Seconds that work has to end by itself after it was asked to stop."""


class Interruption(KeyboardInterrupt):
    """The job must end now. A KeyboardInterrupt, so that `except Exception` does not catch it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


_reasons: list[str] = []
_polite: list[Callable[[], bool]] = []


def interrupt_main(reason: str) -> None:
    """Interrupt the main thread of this process from another thread. The first reason counts."""
    _reasons.append(reason)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


@contextlib.contextmanager
def asked_first(stop: Callable[[], bool]) -> Iterator[None]:
    """Within the block, a signal first calls `stop`. If it returns True, the work ends by itself: nothing is raised."""
    _polite.append(stop)
    try:
        yield
    finally:
        _polite.clear()


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Defer SIGTERM in the main thread: its handler is called at the end of the block.

    For code that turns an exception passing through it into another one, as `torch.save` does. The signal is noted,
    not masked: the system would deliver a masked signal to another thread, and Python would still run the handler in
    the main thread.
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
    """The reason of an interruption, also when the work ended by itself after it was asked to stop."""
    if isinstance(interruption, Interruption):
        return interruption.reason
    return _reasons[0] if _reasons else STOPPED


def raise_interruption(number: int, frame: object) -> None:
    """Handler for SIGTERM. Raises once: a second signal must not disturb the storing of the interrupted work."""
    if any(stop() for stop in _polite):
        insisting = threading.Timer(PATIENCE, _insist)
        insisting.daemon = True
        insisting.start()
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Interruption(_reasons[0] if _reasons else STOPPED)


def _insist() -> None:
    if _polite:  # the work has not ended yet
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
