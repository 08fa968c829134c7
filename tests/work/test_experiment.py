"""One trial in, one stored run out: with real training, real signals, real processes."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

from harness import files
from harness.components import discovery
from harness.environment import PROJECT
from harness.stores.directory.store import DirectoryStore, StoredRun
from harness.study.configuration import RunConfig
from harness.study.trial import Trial
from harness.work.assignment import Assignment
from harness.work.compute import compute
from harness.work.states import Kind
from tests.jobs import run_job
from tests.toy import toy_config

METHODS = '''
import os
import subprocess
import sys
from dataclasses import dataclass

from harness.components.method import Method
from harness.components.registries import METHODS


class SinglePath(Method):
    def paths(self, training):
        return [training.source.draw(training.rng)]


@METHODS.register("broken")
@dataclass(frozen=True)
class Broken(SinglePath):
    """Fails in its third step."""

    def train_step(self, training, batch, step):
        if step == 2:
            raise RuntimeError("the third step\\nis one too many")
        return super().train_step(training, batch, step)


@METHODS.register("leaving")
@dataclass(frozen=True)
class Leaving(SinglePath):
    """Ends the process."""

    def train_step(self, training, batch, step):
        sys.exit(3)


@METHODS.register("chatty")
@dataclass(frozen=True)
class Chatty(SinglePath):
    """Prints in all ways, draws progress, and draws from the global generators."""

    def train_step(self, training, batch, step):
        import random

        import numpy
        import torch

        print(f"{step}%", end="\\r", flush=True)
        if step == 0:
            print("drawn", random.random(), numpy.random.rand(), torch.rand(1).item())
            subprocess.run(["echo", "from a child"], check=True)
            os.write(2, b"from a descriptor\\n")
        return super().train_step(training, batch, step)


@METHODS.register("heavy")
@dataclass(frozen=True)
class Heavy(SinglePath):
    """Leaves a megabyte of weights more."""

    def train_step(self, training, batch, step):
        import torch

        training.network.register_buffer("ballast", torch.zeros(1 << 18))
        return super().train_step(training, batch, step)
'''

RANKED = {"rank": {"images": 40, "candidates": 4, "bins": 3}}
EPOCHS = {"event": "epoch", "steps": 4}


def trial(**more: Any) -> Trial:
    return Trial(toy_config(**RANKED | more))


def job(one: Trial, store: Path, kind: str = "train") -> dict[str, Any]:
    return {"kind": kind, "trial": one.json(), "store": str(store), "preset": "toy", "overrides": {}, "threads": 1}


def run(one: Trial, store: Path, kind: str = "train") -> dict[str, Any]:
    """The job's answer; what it says on the way must be JSON, as it crosses a socket."""
    return run_job(job(one, store, kind), lambda event: void(json.dumps(event, allow_nan=False)))


def void(_: object) -> None:
    pass


def stored(store: Path) -> list[StoredRun]:
    opened = DirectoryStore(store)
    runs = opened.runs()
    assert not opened.problems
    return runs


def result_text(path: Path) -> str:
    return json.dumps(json.loads((path / "result.json").read_text())["result"])


@pytest.fixture(scope="module")
def project(toy_project: Path) -> Path:
    """The toy project with methods that misbehave."""
    (toy_project / "methods").mkdir()
    (toy_project / "methods" / "misbehaving.py").write_text(METHODS)
    discovery.reset()
    return toy_project


@pytest.fixture(scope="module")
def trained(project: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A store with one run, and what the run said on its way."""
    store = tmp_path_factory.mktemp("trained") / "runs"
    said: list[dict[str, Any]] = []
    answer = run_job(job(trial(), store), said.append)
    assert answer["status"] == "done"
    return store, [*said, answer]


def test_a_run_in_sacreds_layout(trained: tuple[Path, list[dict[str, Any]]]) -> None:
    store, _ = trained
    (found,) = stored(store)
    files = {path.name: path for path in (store / found.id).iterdir() if path.is_file()}
    names = ["cell", "config", "run", "info", "metrics", "result", "predictions", "completion"]
    assert files.keys() == {f"{name}.json" for name in names} | {"cout.txt", "weights.pt"}
    read = {name: json.loads(files[f"{name}.json"].read_text()) for name in names}
    assert read["config"] == trial().config.json() and read["cell"]["identity"] == trial().identity()
    entry = read["run"]
    assert entry["status"] == "COMPLETED" and entry["result"] == read["result"]["result"]
    assert entry["start_time"] <= entry["heartbeat"] and entry["start_time"] <= entry["stop_time"]
    assert entry["artifacts"] == ["predictions.json", "weights.pt"] and entry["resources"] == []
    assert entry["command"] == "train_rank_judge" and entry["experiment"]["name"] == "spos"
    assert f"torch=={torch.__version__}".partition("+")[0] in " ".join(entry["experiment"]["dependencies"])
    assert entry["experiment"]["repositories"][0].keys() == {"url", "commit", "dirty", "version"}
    assert entry["host"]["ENV"] == {} and entry["host"]["cpu"]
    assert entry["host"]["constraints"] == hashlib.sha256((PROJECT / "constraints.txt").read_bytes()).hexdigest()
    assert len(read["metrics"]["train_loss"]["values"]) == 4 and read["metrics"]["train_loss"]["steps"] == [1, 2, 3, 4]
    assert read["completion"]["metrics"] == {"train_loss": 4}
    sources = {f"sources/{path.name}" for path in (store / found.id / "sources").iterdir()}
    assert {"sources/methods-spos.py", "sources/spaces-toy.py"} < sources
    assert {f"sources/{name}" for name, _ in entry["experiment"]["sources"]} == sources
    assert read["completion"]["files"].keys() == files.keys() - {"completion.json"} | sources
    assert read["result"]["cost"]["threads"] == 1
    assert "Started run with ID" in files["cout.txt"].read_text()


def test_nothing_private_is_stored(trained: tuple[Path, list[dict[str, Any]]]) -> None:
    (found,) = stored(trained[0])
    text = "".join(path.read_text() for path in (trained[0] / found.id).glob("*.json"))
    for path in (Path.cwd(), Path(__file__).parents[2], trained[0] / found.id):
        assert str(path) not in text


def test_progress_is_told(trained: tuple[Path, list[dict[str, Any]]]) -> None:
    store, said = trained
    (found,) = stored(store)
    epochs = [event for event in said[:-1] if event["event"] == "epoch"]
    assert [event | {"loss": 0} for event in epochs] == [
        EPOCHS | {"step": step, "loss": 0, "tau": None} for step in (1, 2, 3, 4)
    ]
    assert said[-2]["event"] == "rank" and said[-2]["step"] == said[-2]["steps"]
    assert said[-1] == {
        "status": "done",
        "run_id": found.id,
        "result": found.result,
        "cost": found.cost,
    }


def test_twice_the_same_bytes(trained: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> None:
    torch.rand(3)  # whatever happened before
    assert run(trial(), tmp_path)["status"] == "done"
    first, second = trained[0] / stored(trained[0])[0].id, tmp_path / stored(tmp_path)[0].id
    assert result_text(first) == result_text(second)
    for name in ("predictions.json", "weights.pt", "config.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


@pytest.mark.parametrize("method", ["spos", "fsnas"])
def test_observing_does_not_disturb(project: Path, tmp_path: Path, method: str) -> None:
    plain, observed = trial(method=method), trial(method=method, observe={"kendall_tau_every": 2})
    assert plain.key == observed.key
    assert {run(one, tmp_path)["status"] for one in (plain, observed)} == {"done"}
    older, newer = stored(tmp_path)  # no problem: they agree in what both observed
    assert (older.superseded, newer.superseded) == (True, False)
    for name in ("predictions.json", "weights.pt"):
        assert (tmp_path / older.id / name).read_bytes() == (tmp_path / newer.id / name).read_bytes()
    assert older.result is not None and newer.result is not None
    supernets = len(torch.load(tmp_path / newer.id / "weights.pt", weights_only=True))
    assert (supernets > 1) == (method == "fsnas")
    points = DirectoryStore(tmp_path).metrics(newer)["kendall_tau"]
    assert [point["step"] for point in points] == [2 * supernets, 4 * supernets]
    # The last one is that of the finished supernets: all parts are looked at after the same epoch.
    assert points[-1]["value"] == newer.result["kendall_tau"]
    assert newer.result["observed"].keys() == {"kendall_tau", "selected_top1", "selected_regret"}
    assert newer.result["observed"]["kendall_tau"] == [[p["step"], p["value"]] for p in points]
    assert older.result["observed"] == {}


def test_divergence_is_a_result(project: Path, tmp_path: Path) -> None:
    diverging = trial(optimiser={"learning_rate": 1e30, "clip": None})
    answer = run(diverging, tmp_path)
    assert answer["status"] == "done" and answer["result"]["diverged"]["loss"] in ("nan", "inf")
    (found,) = stored(tmp_path)
    assert found.status == "done" and found.result is not None and found.result == answer["result"]
    assert found.result["kendall_tau"] is None and found.result["diverged"]["step"] >= 1
    assert DirectoryStore(tmp_path).predictions(found) == {} and not (tmp_path / found.id / "weights.pt").exists()
    more = Trial(RunConfig.from_json(diverging.json()["config"] | {"rank": {"bins": 5}}))
    assert run(more, tmp_path, "rank")["result"]["diverged"] == found.result["diverged"]


def test_a_failure_is_stored_with_its_traceback(project: Path, tmp_path: Path) -> None:
    answer = run(trial(method="broken"), tmp_path)
    (found,) = stored(tmp_path)
    assert answer == {
        "status": "failed",
        "run_id": found.id,
        "error": "RuntimeError: the third step is one too many",
    }
    assert found.status == "failed" and found.result is None and found.stop_time is not None
    trace = "".join(found.fail_trace or [])
    assert "misbehaving.py" in trace and "the third step" in trace
    assert "the third step" in (tmp_path / found.id / "cout.txt").read_text()
    assert run(trial(), tmp_path)["status"] == "done"  # the same process goes on


def test_a_component_that_exits_is_a_failure(project: Path, tmp_path: Path) -> None:
    assert run(trial(method="leaving"), tmp_path)["error"] == "SystemExit: 3"
    assert [found.status for found in stored(tmp_path)] == ["failed"]


def test_a_job_that_cannot_start_is_a_failure(project: Path, tmp_path: Path) -> None:
    Assignment(Kind.TRAIN, trial()).write(tmp_path)
    path = tmp_path / "inputs" / "assignment.json"
    path.write_text(path.read_text().replace('"spos"', '"sposs"'))
    answer = compute(tmp_path)
    assert answer["status"] == "failed" and "did you mean 'spos'?" in answer["error"]


def test_the_log_is_complete_without_drawings_and_globals_repeat(project: Path, tmp_path: Path) -> None:
    for store in ("a", "b"):
        assert run(trial(method="chatty"), tmp_path / store)["status"] == "done"
    logs = [(tmp_path / store / stored(tmp_path / store)[0].id / "cout.txt").read_text() for store in ("a", "b")]
    drawn = [next(line for line in log.splitlines() if line.startswith("drawn")) for log in logs]
    assert drawn[0] == drawn[1]
    lines = logs[0].splitlines()
    assert "from a child" in lines and "from a descriptor" in lines
    assert "\r" not in logs[0] and not [line for line in lines if line.endswith("%")]


@pytest.mark.parametrize("seed", [-1, 2**40])
def test_seeds_beyond_sacreds_range(project: Path, tmp_path: Path, seed: int) -> None:
    assert run(trial(seed=seed), tmp_path)["status"] == "done"
    (found,) = stored(tmp_path)
    assert json.loads((tmp_path / found.id / "config.json").read_text())["seed"] == seed


def test_ranking_more_needs_no_training(trained: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> None:
    store = trained[0]
    (before,) = stored(store)
    more = trial(rank={"images": 40, "candidates": 12, "bins": 6})
    assert more.key == before.key
    answer = run(more, store, "rank")
    (after,) = stored(store)
    assert answer["status"] == "done" and answer["run_id"] == after.id
    assert answer["result"] == after.rankings[more.ranking_key] and after.result == before.result
    assert answer["result"]["ranked"] == 12 and answer["cost"]["evaluations"] < 9  # of 9 different networks
    assert run(more, tmp_path)["status"] == "done"  # trained with that ranking from the start
    (direct,) = stored(tmp_path)
    assert answer["result"] == direct.rankings[more.ranking_key]
    own = store / after.id / "rankings" / f"{more.ranking_key}.predictions.json"
    assert own.read_bytes() == (tmp_path / direct.id / "predictions.json").read_bytes()
    assert run(more, store, "rank") | {"cost": 0} == answer | {"cost": 0, "already": True}  # it is there: nothing to do


def test_ranking_needs_a_done_run_with_whole_weights(project: Path, tmp_path: Path) -> None:
    run(trial(), tmp_path)
    (found,) = stored(tmp_path)
    weights = bytearray((tmp_path / found.id / "weights.pt").read_bytes())
    weights[len(weights) // 2] ^= 1
    (tmp_path / found.id / "weights.pt").write_bytes(weights)
    answer = run(trial(rank={"bins": 4}), tmp_path, "rank")
    assert answer["status"] == "failed" and "checksum" in answer["error"]
    assert len(stored(tmp_path)[0].rankings) == 1


@contextmanager
def training(store: Path) -> Iterator[tuple[int, Callable[[], Any]]]:
    """A process that trains for ever, some epochs on its way: its number, and what waits for its answer."""
    endless = trial(train={"epochs": 10**6, "batch_size": 16})
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_train_and_answer, args=(job(endless, store), theirs))
    process.start()
    theirs.close()
    try:
        while ours.recv().get("event") != "epoch":
            pass
        assert process.pid is not None

        def answer() -> Any:
            try:
                while "status" not in (message := ours.recv()):
                    pass
            except EOFError:
                message = None
            process.join()
            return message

        yield process.pid, answer
    finally:
        process.kill()
        process.join()


def _train_and_answer(document: dict[str, Any], connection: Connection) -> None:
    connection.send(run_job(document, connection.send))


def test_a_killed_run_is_lost(project: Path, tmp_path: Path) -> None:
    with training(tmp_path) as (process, answer):
        assert [found.status for found in stored(tmp_path)] == ["running"]
        os.kill(process, signal.SIGKILL)
        assert answer() is None
    (found,) = stored(tmp_path)
    assert found.status == "lost" and found.result is None
    assert DirectoryStore(tmp_path).metrics(found)["train_loss"]  # what it had measured is there
    assert DirectoryStore(tmp_path).done(found.key) is None


def test_a_terminated_run_is_interrupted(project: Path, tmp_path: Path) -> None:
    with training(tmp_path) as (process, answer):
        os.kill(process, signal.SIGTERM)
        assert answer()["status"] == "interrupted"
    (found,) = stored(tmp_path)
    assert found.status == "interrupted" and found.stop_time is not None
    assert (tmp_path / found.id / "metrics.json").exists() and not (tmp_path / found.id / "metrics.jsonl").exists()


def test_a_run_terminated_while_it_writes_its_weights_is_interrupted(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[threading.Thread] = []
    named = files.temporary
    monkeypatch.setattr(
        files, "temporary", lambda path: path.with_name(".pipe") if path.name == "weights.pt" else named(path)
    )

    def terminate(pipe: Path) -> None:
        with pipe.open("rb") as file:
            file.read(1)
            os.kill(os.getpid(), signal.SIGTERM)
            while file.read(1 << 16):
                pass

    def progress(event: dict[str, Any]) -> None:
        """Where the weights will be written there is a pipe: nobody gets on before its other end is read."""
        if event["event"] == "epoch":
            (run,) = tmp_path.glob("*-1-*")
            pipe = run / ".pipe"
            os.mkfifo(pipe)
            readers.append(threading.Thread(target=terminate, args=(pipe,)))
            readers[0].start()

    answer = run_job(job(trial(method="heavy", train={"epochs": 1, "batch_size": 16}), tmp_path), progress)
    readers[0].join()
    assert answer["status"] == "interrupted" and [found.status for found in stored(tmp_path)] == ["interrupted"]
