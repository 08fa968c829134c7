"""Database servers that are silent, reset, talk nonsense, drip, or lie: a plain message in time, or right values."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.long.campaign.commands import judge
from tests.long.campaign.damage import flip
from tests.long.campaign.forks import side_by_side
from tests.long.campaign.scene import DATABASE, TINY, Scene, query, report
from tests.long.campaign.tally import Tally

LIES = 48
PASSWORD = "s3cr3t-of-the-lab"
Talk = Callable[[socket.socket], None]


@contextmanager
def listening(talk: Talk) -> Iterator[int]:
    """A server on a port of its own that talks to everybody in that way."""
    server = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=_talk, args=(talk, server.accept()[0]), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server.getsockname()[1]
    finally:
        server.close()


def _talk(talk: Talk, connection: socket.socket) -> None:
    with contextlib.suppress(OSError), connection:
        talk(connection)


def silent(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def resetting(connection: socket.socket) -> None:
    connection.recv(64)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def closing(connection: socket.socket) -> None:
    connection.recv(64)


def nonsense(connection: socket.socket) -> None:
    while connection.recv(4096):
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(range(256)))


def huge(connection: socket.socket) -> None:
    """A reply that says it has two gigabytes."""
    while connection.recv(4096):
        connection.sendall(struct.pack("<iiii", 2**31 - 1, 1, 1, 2013) + b"\0" * 64)


def dripping(connection: socket.socket) -> None:
    connection.recv(4096)
    while connection.send(b"\0"):
        threading.Event().wait(0.2)


def changing(port: int, change: Callable[[bytes], bytes]) -> Talk:
    """Passes everything on to the real server, and changes its replies."""

    def talk(client: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", port)) as server:
            threading.Thread(target=_pass_on, args=(client, server), daemon=True).start()
            while reply := _message(server):
                client.sendall(change(reply))

    return talk


def lying(rng: random.Random, share: float) -> Callable[[bytes], bytes]:
    """Flips a bit in some of the replies."""

    def change(reply: bytes) -> bytes:
        return reply[:21] + flip(reply[21:], rng) if len(reply) > 60 and rng.random() < share else reply

    return change


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while content := source.recv(65536):
            target.sendall(content)


def _message(server: socket.socket) -> bytes:
    """A whole message of the wire protocol: its length comes first."""
    head = server.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        return b""
    return head + server.recv(struct.unpack("<i", head)[0] - 4, socket.MSG_WAITALL)


def unreachable(scene: Scene) -> Tally:
    """Nothing can be had from these: one line, soon, without the password."""
    tally = Tally("silent, resetting, talking nonsense")
    talks = (silent, resetting, closing, nonsense, huge, dripping)
    commands: list[tuple[str, ...]] = []
    names = []
    with contextlib.ExitStack() as stack:
        for talk in talks:
            port = stack.enter_context(listening(talk))
            uri = f"mongodb://lab:{PASSWORD}@127.0.0.1:{port}/{DATABASE}"
            store = str(scene.store)
            for command in (
                query(uri),
                report(uri),
                ("status", "attacked", *TINY, "--store", uri),
                ("store", "check", "--store", store, "--mongo", uri),
                ("store", "sync", "--store", store, "--mongo", uri),
                ("run", "attacked", *TINY, "--store", store, "--mongo", uri, "--outage-wait", "3", "--no-references"),
            ):
                commands.append(command)
                names.append(talk.__name__)
        said = side_by_side(commands, at_once=12, within=120)
    for name, one in zip(names, said, strict=True):
        with tally.attempt(f"{name}: {' '.join(one.command.split()[:2])}") as tried:
            if one.code == -1:
                tried.fail("hangs", one.err)
                continue
            judge(tried, one, codes=(0, 1))
            tried.require(PASSWORD not in one.text, "other", "the password is shown")
            told = "answer" in one.text or "unreachable" in one.text
            tried.require(told, "other", f"nothing says that the database does not answer: {one.end}")
    return tally


def lies(scene: Scene, rng: random.Random) -> Tally:
    """A real server behind a wire that flips bits: what comes through is right, or named."""
    tally = Tally("a server whose replies have flipped bits")
    commands: list[tuple[str, ...]] = []
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            liar = changing(scene.server.port, lying(rng, rng.choice([0.1, 0.3, 1.0])))
            port = stack.enter_context(listening(liar))
            more = "directConnection=true&serverSelectionTimeoutMS=2000&socketTimeoutMS=2000"
            uri = f"mongodb://127.0.0.1:{port}/{DATABASE}?{more}"
            for _ in range(LIES // 8):
                commands.append(query(uri) if rng.random() < 0.7 else report(uri))
        said = side_by_side(commands, at_once=4, within=60)
    for number, one in enumerate(said):
        with tally.attempt(f"{number}: {one.command.split()[0]}") as tried:
            if one.code == -1:
                tried.fail("hangs", one.err)
                continue
            judge(tried, one)
            if one.code == 0 and one.command.startswith("query"):
                scene.judge(tried, one, by_number=True)
            elif one.code == 0:
                scene.judge_report(tried, one)
    return tally


def run(scene: Scene, rng: random.Random) -> list[Tally]:
    return [unreachable(scene), lies(scene, rng)]
