"""Ports of this machine's loopback interface: which are free."""

from __future__ import annotations

import errno
import socket
import time

LOOPBACK = "127.0.0.1"


def taken(port: int) -> bool:
    """Whether another process listens on the port."""
    with socket.socket() as probe:
        # As servers do: connections of an earlier server that are still closing are not an obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def await_free(port: int, wait: float) -> bool:
    """Whether the port is or becomes free: a process counts as dead slightly before its last thread releases it."""
    until = time.monotonic() + wait
    while taken(port):
        if time.monotonic() >= until:
            return False
        time.sleep(0.02)
    return True


def free_port(preferred: int = 0) -> int:
    """The preferred port if it is free, else any free port."""
    if preferred and not taken(preferred):
        return preferred
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
