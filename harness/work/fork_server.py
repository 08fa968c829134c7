"""The fork server: imports torch once and forks a fresh process for every job.

The server is a process of its own, started by `harness.work.processes`. It runs no tensor operation, so
that forking is safe (no thread pool exists yet) and a job's memory is its own. Requests come over a
control socket: a JSON line with one file descriptor, the job's socket. Whichever process dies, no other
is left behind:

- `run` dies: each job watches its own socket, whose other end only `run` holds, and ends itself at once; the server
  sees the end of the control socket, kills its jobs, and ends.
- the server dies: its jobs continue, since `run` still listens to their sockets, and answer as usual.
- a job dies: the server, its parent, reports to `run` how.

Each job leads a process group of its own. Processes that it has started end with it, unless they have left the group.
A terminal stops (Ctrl-Z) only the group of `run`: the server passes that on.

The server knows neither trials nor stores; only the target, "module:function", does. A target's module may
have a generator function `warm_up`: the server runs one of its steps whenever no request waits. The first
jobs do not wait for it, and later jobs start faster. It must not run tensor operations either.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from harness.documents import one_line
from harness.interruption import STOPPED, TIMEOUT, interrupt_main, raise_interruption, reason_of
from harness.work.jobs import Answered

BOOT = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from harness.work.fork_server import main; main(int(sys.argv[1]), sys.argv[2])"
)
"""Uses the parent's `sys.path`: the current folder shadows only the modules that it shadows in the parent."""

STOP = object()

ASKED, OUT_OF_TIME = b"s", b"t"
"""Messages from `run` to a job that should end."""

Place = dict[str, int]
"""Which job a process belongs to, and its rank in it."""

Target = Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], dict[str, Any]]


def main(control_number: int, target_name: str) -> None:
    """Serve until the control socket closes."""
    # Ctrl-C reaches the whole process group, but only `run` decides what it means. The parent blocked
    # the signal, so that none could arrive before this line.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    control = socket.socket(fileno=control_number)
    wake, waker = socket.socketpair()
    jobs: dict[int, Place] = {}
    try:
        _die_with_parent(signal.SIGKILL)  # no thread runs while a library is loaded
        with _ending_with(control, wake, waker, jobs):
            target, warm_up = _load(target_name)
        _die_with_parent(0)
    except BaseException as error:
        _send(control, {"event": "broken", "error": one_line(error), "traceback": traceback.format_exc()})
        sys.exit(1)
    wake.setblocking(False)
    waker.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    gc.collect()
    gc.freeze()  # all objects so far are shared with the jobs: garbage collection must not touch their pages
    signal.signal(signal.SIGTSTP, lambda number, frame: _pause(jobs))
    try:
        _send(control, {"event": "ready"})
        _serve(control, wake, waker, target, warm_up, jobs)
    except (BrokenPipeError, ConnectionResetError):
        pass  # `run` has ended
    finally:
        _signal_groups(jobs, signal.SIGKILL)  # not reaped yet, so the process ids are still theirs


def _die_with_parent(number: int) -> None:
    """Have the kernel send this process a signal when its parent dies; 0 for none. Only Linux can."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG


@contextlib.contextmanager
def _ending_with(
    control: socket.socket, wake: socket.socket, waker: socket.socket, jobs: dict[int, Place]
) -> Iterator[None]:
    """In this context the process ends when `run` does, and its jobs: importing takes seconds, and the socket is not
    read then."""

    def watch() -> None:
        poll = select.poll()
        poll.register(control, 0)  # requests may already wait there: only the hang-up counts
        poll.register(wake, select.POLLIN)
        if any(number == control.fileno() for number, _ in poll.poll()):
            _signal_groups(list(jobs), signal.SIGKILL)
            os._exit(1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        waker.send(b"!")
        watcher.join()  # forking needs a process without threads


def _serve(
    control: socket.socket,
    wake: socket.socket,
    waker: socket.socket,
    target: Target,
    warm_up: Iterator[None],
    jobs: dict[int, Place],
) -> None:
    """Fork for every request and report every end; returns when the control socket closes."""
    buffer = b""
    descriptors: list[int] = []
    warm = False
    while True:
        # The first jobs start before the warm-up.
        ready, _, _ = select.select([control, wake], [], [], None if warm or not jobs else 0)
        if not ready:
            with _ending_with(control, wake, waker, jobs):
                warm = next(warm_up, STOP) is STOP
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                wake.recv(4096)
            for process, status in _ended(jobs):
                code = os.waitstatus_to_exitcode(status)
                _send(control, {"event": "ended", **jobs.pop(process), "code": code})
        if control not in ready:
            continue
        data, received, _, _ = socket.recv_fds(control, 1 << 16, 16)
        if not data:
            return
        descriptors += received
        buffer += data
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            request = json.loads(line)
            if "end" in request:
                own = [process for process, place in jobs.items() if place["job"] == request["end"]]
                _signal_groups(own, signal.SIGKILL)
                continue
            connection = socket.socket(fileno=descriptors.pop(0))
            place = {"job": request["job"], "rank": request["rank"]}
            sys.stdout.flush()
            sys.stderr.flush()
            try:
                process = os.fork()
            except OSError as error:  # no memory or no processes left
                connection.close()
                _send(control, {"event": "ended", **place, "error": f"could not start: {error}"})
                continue
            if process == 0:
                for other in (control, wake):
                    other.close()
                for number in descriptors:  # of requests that arrived together with this one
                    os.close(number)
                _run(connection, target, request)
            connection.close()
            with contextlib.suppress(OSError):  # the job does the same: whichever comes first
                os.setpgid(process, process)
            jobs[process] = place


def _ended(jobs: dict[int, Place]) -> list[tuple[int, int]]:
    """The jobs' processes that ended, with their wait statuses. One SIGCHLD may cover several.

    Ends what they have left behind: until they are reaped, the process groups are still theirs.
    """
    over = [p for p in jobs if os.waitid(os.P_PID, p, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None]
    _signal_groups(over, signal.SIGKILL)
    return [os.waitpid(process, 0) for process in over]


def _signal_groups(processes: Iterable[int], number: int) -> None:
    """Send a signal to jobs that are not reaped yet, and to the processes that they have started."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # a member may belong to another user
            os.killpg(process, number)


def _pause(jobs: Iterable[int]) -> None:
    """Stop the jobs and this process, and continue the jobs together with it."""
    _signal_groups(jobs, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)
    _signal_groups(jobs, signal.SIGCONT)


def _run(connection: socket.socket, target: Target, request: dict[str, Any]) -> NoReturn:
    """In the forked process: do the job, answer, end. Never returns into the server's loop."""
    code, server = 1, os.getppid()
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTSTP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, raise_interruption)
        threading.Thread(target=_watch, args=(connection,), daemon=True).start()
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])  # before torch looks for a GPU
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(request["threads"])
        lock = threading.Lock()

        def progress(report: dict[str, Any]) -> None:
            # Once `run` has ended, `_watch` ends this process; until then that is no error of the trial.
            with lock, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                # What `run` does not take at once is dropped: a trial never waits for it. Notes are few.
                if "note" in report or select.select([], [connection], [], 0)[1]:
                    _send_whole(connection, {"progress": report})

        _send(connection, {"started": os.getpid()})
        try:
            answer = target(request["document"], progress)
        except KeyboardInterrupt as interruption:
            answer = {"status": Answered.INTERRUPTED}
            if reason_of(interruption) == TIMEOUT:
                answer = {"status": Answered.FAILED, "error": "it took too long"}
        except BaseException as error:  # a target that calls sys.exit fails only its own job
            answer = {"status": Answered.FAILED, "error": one_line(error), "traceback": traceback.format_exc()}
        with lock:
            _send_whole(connection, {"answer": answer})
        code = 0
    except OSError:
        pass  # `run` has ended and needs no answer
    finally:
        if os.getppid() != server:  # nobody is left to end what this job has started
            os.killpg(0, signal.SIGKILL)
        os._exit(code)  # skips the clean-up inherited from the server


def _watch(connection: socket.socket) -> None:
    """End this process when `run` has ended; pass requests to stop on to the main thread."""
    while True:
        try:
            received = connection.recv(16)
        except OSError:
            received = b""
        if not received:
            os.killpg(0, signal.SIGKILL)  # this process, and those that it has started
        interrupt_main(TIMEOUT if received[:1] == OUT_OF_TIME else STOPPED)


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


def _send_whole(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send a line atomically: an interruption cannot split it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        _send(connection, message)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _load(target_name: str) -> tuple[Target, Iterator[None]]:
    name, _, attribute = target_name.partition(":")
    module = importlib.import_module(name)
    return getattr(module, attribute), getattr(module, "warm_up", lambda: iter(()))()
