"""Files that run a command when they are unpickled: nothing may run, wherever such a file stands."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from harness.data.cifar import CIFAR10, CIFAR100
from harness.documents import canonical
from tests.data.formats import write_cifar
from tests.long.campaign.commands import attempt
from tests.long.campaign.scene import TINY, Scene
from tests.long.campaign.tally import Attempt, Tally
from tests.many_trials import finish, start
from tests.official_files import RunsACommand

PROTOCOLS = range(6)


def contents(canary: Path) -> Iterator[tuple[str, bytes]]:
    """The command, written in every way that a reader may take for its own."""
    evil = RunsACommand(canary)
    for protocol in PROTOCOLS:
        yield f"pickle {protocol}", pickle.dumps({"model": evil, "data": evil, "arch": evil}, protocol)
    for what, document in (
        ("dictionary", {"model": evil}),
        ("state", {"w": torch.zeros(2), "x": evil}),
        ("bare", evil),
    ):
        target = io.BytesIO()
        torch.save(document, target)
        yield f"torch {what}", target.getvalue()
        target = io.BytesIO()
        torch.save(document, target, _use_new_zipfile_serialization=False)
        yield f"old torch {what}", target.getvalue()


def imports(scene: Scene, canary: Path, tally: Tally) -> None:
    """Files that a user is given: data sets, tables, weights."""
    data = scene.folder / "data"
    for what, content in contents(canary):
        for name in ("evil.pth", "evil.pbz2", "evil.npz", "evil.pt", "evil.tar.gz"):
            (path := scene.folder / name).write_bytes(content)
            commands: list[tuple[str, ...]] = [("benchmark", "import", str(path), "--as", "nasbench201")]
            if name == "evil.pth":
                commands += [("weights", "import", str(path), "--space", "autoformer-reduced")]
                commands += [("store", "import", str(path), "--store", str(scene.folder / "nowhere"))]
            for command in commands:
                with tally.attempt(f"{what}: {' '.join(command[:2])} {name}") as one:
                    refused(one, canary, attempt(one, *command).text)
            path.unlink()
    for which in (CIFAR10, CIFAR100):
        for what, content in list(contents(canary))[:6]:
            shutil.rmtree(data, ignore_errors=True)
            write_cifar(data, which)
            for path in data.rglob("*"):
                if path.is_file() and path.name.startswith(("data_batch_1", "train")):
                    path.write_bytes(content)
            with tally.attempt(f"{what}: data check {which.name}") as one:
                refused(one, canary, attempt(one, "data", "check", which.name).text)
    shutil.rmtree(data, ignore_errors=True)


def refused(one: Attempt, canary: Path, said: str) -> None:
    one.require(not canary.exists(), "other", "the command ran")
    one.require("weights_only=False" not in said, "other", "the user is told to read it without protection")
    canary.unlink(missing_ok=True)


def stored(scene: Scene, canary: Path, tally: Tally, rng: random.Random) -> None:
    """Weights and checkpoints whose checksums agree, met by a job that uses them."""
    makers: list[Callable[[Path, bytes], None]] = [_weights, _checkpoint]
    for make in makers:
        for what, content in rng.sample(list(contents(canary))[6:], 1):
            with scene.copy() as store, tally.attempt(f"{what}: {make.__name__[1:]}") as one:
                make(store, content)
                study = ("attacked", "--only", "seed=0") if make is _weights else ("unfinished", "--only", "seed=0")
                more = ("with", "rank.bins=4") if make is _weights else ("with", "train.epochs=50")
                again = start(
                    scene.folder,
                    "run",
                    *study,
                    *TINY,
                    "--store",
                    str(store),
                    "--no-references",
                    "--timeout",
                    "15",
                    *more,
                )
                said = finish(again)
                one.require("Traceback" not in said, "tracebacks", said[-300:])
                refused(one, canary, said)


def _weights(store: Path, content: bytes) -> None:
    for path in store.glob("*/weights.pt"):
        path.write_bytes(content)
        record = json.loads((path.parent / "completion.json").read_text())
        record["files"]["weights.pt"] = hashlib.sha256(content).hexdigest()
        record["sizes"]["weights.pt"] = len(content)
        (path.parent / "completion.json").write_text(json.dumps(record))


def _checkpoint(store: Path, content: bytes) -> None:
    (path,) = store.glob("work/*.checkpoint")
    first, _, _ = path.read_bytes().partition(b"\n")
    header: dict[str, Any] = json.loads(first)
    made = {name: value for name, value in header.items() if name not in ("length", "sha256")}
    digest = hashlib.sha256(canonical(made).encode() + content).hexdigest()
    text = canonical(made | {"length": len(content), "sha256": digest}).encode()
    path.write_bytes(text.ljust(len(first)) + b"\n" + content)


def run(scene: Scene, rng: random.Random) -> list[Tally]:
    tally = Tally("pickles that run a command")
    canary = scene.folder / "executed"
    imports(scene, canary, tally)
    stored(scene, canary, tally, rng)
    return [tally]
