"""Ctrl-C and SIGTERM for commands that run trials: the first asks them to stop, the second ends them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

TRIALS = "running trials are stored as interrupted; Ctrl-C again ends them at once"
REFERENCES = "references that are made are stored; Ctrl-C again ends the others at once"


@contextlib.contextmanager
def on_signals(
    ask: Callable[[], None],
    words: Callable[[], str] = lambda: TRIALS,
    shown: Callable[[], bool] = lambda: False,
    also: Mapping[int, Callable[[], None]] = MappingProxyType({}),
) -> Iterator[list[int]]:
    """In this context Ctrl-C and SIGTERM call `ask` instead of ending the process. Yields the signals received.

    The first says what happens to the work that is under way, in these words. `shown` says whether a live view tells of
    it itself: a line in the middle of it would disturb it. `also` has further signals, and what each of them calls.
    """
    received: list[int] = []

    def handle(number: int, frame: object) -> None:
        received.append(number)
        if len(received) == 1 and not shown():  # unbuffered: the handler may interrupt a print
            os.write(2, f"stopping: {words()}\n".encode())
        also.get(number, ask)()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM, *also)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
