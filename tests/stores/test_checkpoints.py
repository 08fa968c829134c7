"""A trial that is stopped and goes on from its checkpoint gives the bytes of one that was not."""

from __future__ import annotations

import io
import json
import os
import random
import re
import resource
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.components import discovery
from harness.errors import DataError, HarnessError
from harness.owner import machine
from harness.stores.checkpoints import Checkpoint, CheckpointNotWritten, stored_checkpoints
from harness.study.configuration import RunConfig
from harness.study.trial import Trial
from harness.training.stages.train import Progress
from harness.training.trial import Outcome, Watch, run_trial
from tests.toy import toy_config


class Stop(Exception):
    """Stands for whatever ends a process."""


class Stopping(Checkpoint):
    """Stops the trial right after the n-th save."""

    left = 10**9

    def save(self, state: dict[str, Any]) -> None:
        super().save(state)
        self.left -= 1
        if not self.left:
            raise Stop


def checkpoint(folder: Path, config: RunConfig, saves: int = 10**9, every: float = 0.0, **other: Any) -> Stopping:
    made = Stopping(folder, Trial(config), every=every, **{"threads": 1, "device": "cpu", **other})
    made.left = saves
    return made


@dataclass
class Record:
    """The metric points of one run directory: what it was told, and what was handed to it at the start."""

    points: list[dict[str, Any]] = field(default_factory=list)
    restored: int = 0

    def metric(self, name: str, step: int, value: float) -> None:
        self.points.append({"name": name, "step": step, "value": value})

    def restore(self, points: list[dict[str, Any]]) -> None:
        assert not self.points
        self.points += points
        self.restored += 1

    def watch(self, **more: Any) -> Watch:
        return Watch(metric=self.metric, restored=self.restore, **more)

    @property
    def curve(self) -> list[tuple[str, int, float]]:
        return [(point["name"], point["step"], point["value"]) for point in self.points]


def seed_globals() -> None:
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)


def weights(outcome: Outcome) -> bytes:
    """The file of weights, byte for byte."""
    file = io.BytesIO()
    if outcome.supernets is not None:
        torch.save([{n: t.cpu() for n, t in net.state_dict().items()} for net in outcome.supernets.networks], file)
    return file.getvalue()


def whole(config: RunConfig) -> tuple[Outcome, Record]:
    """Without interruption, and without a checkpoint."""
    seed_globals()
    record = Record()
    return run_trial(config, watch=record.watch()), record


def in_pieces(folder: Path, config: RunConfig, saves: int) -> tuple[Outcome, Record, int]:
    """Stopped after every so many saves, with a save between any two steps; how many pieces it took."""
    for pieces in range(1, 100):
        seed_globals()
        record = Record()
        with suppress(Stop):
            return run_trial(config, watch=record.watch(), checkpoint=checkpoint(folder, config, saves)), record, pieces
    raise AssertionError("it does not get on")


def assert_equal(one: tuple[Outcome, Record], other: tuple[Outcome, Record]) -> None:
    assert json.dumps(one[0].result) == json.dumps(other[0].result)
    assert list(one[0].predictions.items()) == list(other[0].predictions.items())
    assert weights(one[0]) == weights(other[0])
    assert json.dumps(one[1].curve) == json.dumps(other[1].curve)  # NaN is not equal to itself
    for counter in ("passes", "images", "evaluations"):
        assert one[0].cost[counter] == other[0].cost[counter]


def test_a_method_that_orders_the_data_is_stopped_after_any_step_of_its_first_epoch(
    toy_project: Path, tmp_path: Path
) -> None:
    """PA-DA leaves the first epoch to chance, whatever it has measured by the time it is resumed."""
    config = toy_config(train={"epochs": 2, "batch_size": 8}, method="pa-da")
    expected = whole(config)
    for stop in range(1, 5 + 1):  # 40 images
        seed_globals()
        with suppress(Stop):
            run_trial(config, checkpoint=checkpoint(tmp_path / f"{stop}", config, stop))
        outcome, record, pieces = in_pieces(tmp_path / f"{stop}", config, 10**9)
        assert pieces == 1 and outcome.cost["resumed"] == 1
        assert_equal(expected, (outcome, record))


PAPER = {"schedule": "calr", "clusters": "operation"}
OBSERVED = {"observe": {"kendall_tau_every": 1}}
MEASURED = {
    "observe": {
        "kendall_tau_every": 2, "subnets_every": 1, "spread": True, "gradient_similarity": True, "average_last": 2
    }
}  # fmt: skip


@pytest.mark.parametrize(
    ("saves", "options"),
    [
        (7, {"method": "spos", **PAPER, **OBSERVED}),
        (7, {"method": "fairnas", **PAPER, **OBSERVED}),
        (7, {"method": "fsnas", **PAPER, **OBSERVED}),
        (4, {"method": "spos", **PAPER, "optimiser": {"inactive": "decay", "learning_rate": 0.1}}),
        (4, {"method": "fsnas", **PAPER, "optimiser": {"inactive": "decay", "learning_rate": 0.1}}),
        (4, {"method": "fairnas", "optimiser": {"momentum": 0.0, "clip": None}, "seed": 1}),
        (5, {"method": "fairnas", **PAPER, **MEASURED}),
        (5, {"method": "fsnas", **PAPER, **MEASURED}),
        (5, {"method": {"name": "related", "changes": [1, 2]}, **MEASURED}),
    ],
)
def test_stopped_again_and_again(saves: int, options: dict[str, Any], toy_project: Path, tmp_path: Path) -> None:
    """Saved between any two steps, in observations, between parts and in the ranking; stopped after every few."""
    config = toy_config(train={"epochs": 3, "batch_size": 16}, **options)
    outcome, record, pieces = in_pieces(tmp_path, config, saves)
    assert pieces > 3 and outcome.cost["resumed"] == pieces - 1 and record.restored == 1
    assert_equal((outcome, record), whole(config))
    [left] = tmp_path.iterdir()
    checkpoint(tmp_path, config).remove()
    assert not left.exists()


@pytest.mark.parametrize("method", ["spos", "fairnas", "fsnas"])
def test_stopped_after_any_save_but_one_gives_the_same(method: str, toy_project: Path, tmp_path: Path) -> None:
    """One interruption, after a save of the first half, of the second, or of the ranking."""
    config = toy_config(method=method, train={"epochs": 2, "batch_size": 16}, **PAPER)
    expected = whole(config)
    counting = checkpoint(tmp_path / "all", config)
    seed_globals()
    record = Record()
    assert_equal((run_trial(config, watch=record.watch(), checkpoint=counting), record), expected)
    saves = 10**9 - counting.left
    for number in sorted(random.Random(method).sample(range(1, saves), 2)):
        folder = tmp_path / str(number)
        seed_globals()
        with pytest.raises(Stop):
            run_trial(config, checkpoint=checkpoint(folder, config, number))
        seed_globals()
        record = Record()
        outcome = run_trial(config, watch=record.watch(), checkpoint=checkpoint(folder, config, every=1e9))
        assert_equal((outcome, record), expected)


def test_the_real_space(tmp_path: Path) -> None:
    """NAS-Bench-201: channels_last, and running statistics."""
    config = RunConfig.from_json(
        {
            "network": {"width": 4, "depth": 1, "batch_norm": "tracked"},
            "train": {"epochs": 2, "batch_size": 300},
            "optimiser": {"learning_rate": 0.1},
            "rank": {"images": 64, "candidates": 5, "bins": 10},
            **PAPER,
        }
    )
    outcome, record, pieces = in_pieces(tmp_path, config, saves=8)
    assert pieces > 2
    assert_equal((outcome, record), whole(config))


def test_stopped_elsewhere_than_at_a_save(toy_project: Path, tmp_path: Path) -> None:
    """Work since the last save is done again; no point is there twice, and none is missing."""
    config = toy_config(method="fsnas", **PAPER, **OBSERVED)

    def stop(progress: Progress) -> None:
        if (progress.part, progress.epoch) == (1, 2):
            raise Stop

    first = Record()
    seed_globals()
    with pytest.raises(Stop):
        run_trial(config, watch=first.watch(epoch=stop), checkpoint=checkpoint(tmp_path, config, every=1e9))
    seed_globals()
    record = Record()
    outcome = run_trial(config, watch=record.watch(), checkpoint=checkpoint(tmp_path, config, every=1e9))
    assert_equal((outcome, record), whole(config))
    assert record.curve[: len(first.points)] == first.curve and len(first.points) > 4
    # The points of the first part were handed over, those after the only save came anew.
    stamped = [point for point in record.points if "timestamp" in point]
    assert stamped == record.points[:4]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?", point["timestamp"]) for point in stamped)


def test_a_trial_that_diverges_does_so_at_the_same_step(toy_project: Path, tmp_path: Path) -> None:
    config = toy_config(optimiser={"learning_rate": 1e12, "clip": None}, **OBSERVED)
    outcome, record, pieces = in_pieces(tmp_path, config, saves=4)
    assert pieces > 1 and outcome.result["diverged"]["step"] > 0
    assert_equal((outcome, record), whole(config))


def test_costs_cover_all_attempts(toy_project: Path, tmp_path: Path) -> None:
    config = toy_config(train={"epochs": 2, "batch_size": 16})
    spent = []
    for saves in (3, 5, 10**9):
        made = checkpoint(tmp_path, config, saves)
        with suppress(Stop):
            outcome = run_trial(config, checkpoint=made)
        stored = made.load()
        assert stored is not None
        spent.append(stored["meter"])
    assert [meter["resumed"] for meter in spent] == [0, 1, 2]
    assert [meter["passes"] for meter in spent] == [3, 6, 6]
    assert [meter["evaluations"] for meter in spent] == [0, 1, 9]
    for before, after in zip(spent, spent[1:], strict=False):
        assert after["seconds"] > before["seconds"] and after["peak_memory"] >= before["peak_memory"]
    assert outcome.cost["resumed"] == 2
    stages: Any = outcome.cost["stage_seconds"]
    assert stages.keys() == {"train", "rank"}
    assert sum(stages.values()) == pytest.approx(outcome.cost["wall_seconds"], abs=0.5)


METHOD = '''
"""A method that draws from the global generators, resamples its data and remembers what it did."""

import random
from dataclasses import dataclass

import numpy as np
import torch

from harness.components.method import Method
from harness.components.registries import METHODS


@METHODS.register("restless")
@dataclass(frozen=True)
class Restless(Method):
    """Draws, resamples, remembers."""

    paths_vary = True

    foreign: bool = False

    def paths(self, training):
        return [training.source.draw(training.rng) for _ in range(random.randrange(1, 4))]

    def data_order(self, training, epoch):
        return [random.randrange(40) for _ in range(40)]

    def train_step(self, training, batch, step):
        mean = training.memory.setdefault("mean", torch.zeros(3))
        training.memory["steps"] = training.memory.get("steps", 0) + 1
        mean += torch.randn(3) + np.random.normal() / training.memory["steps"]
        if self.foreign:
            training.memory["array"] = np.zeros(3)
        losses = training.descend(batch, self.paths(training), step)
        with torch.no_grad():
            next(training.network.parameters()).add_(0.01 * mean.sum())
        return losses
'''


@pytest.fixture(scope="module")
def restless_project(tmp_path_factory: pytest.TempPathFactory, toy_project: Path) -> Iterator[None]:
    """The toy's folder with a method of its own beside it."""
    (toy_project / "methods").mkdir()
    (toy_project / "methods" / "restless.py").write_text(METHOD)
    with discovery.fresh():
        yield


def test_what_a_method_draws_and_remembers_goes_on(restless_project: None, tmp_path: Path) -> None:
    config = toy_config(method="restless")
    outcome, record, pieces = in_pieces(tmp_path, config, saves=5)
    assert pieces > 3
    assert_equal((outcome, record), whole(config))


def test_a_memory_that_could_not_be_loaded_is_refused_when_it_is_saved(restless_project: None, tmp_path: Path) -> None:
    config = toy_config(method={"name": "restless", "foreign": True})
    with pytest.raises(HarnessError, match=r"\['memory'\]\['array'\] is a numpy.ndarray; only plain types and tensors"):
        run_trial(config, checkpoint=checkpoint(tmp_path, config))
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def stored(toy_project: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A checkpoint's bytes, after 5 of the 12 steps of `toy_config()`."""
    folder = tmp_path_factory.mktemp("stored")
    made = checkpoint(folder, toy_config(), saves=5)
    with pytest.raises(Stop):
        run_trial(toy_config(), checkpoint=made)
    return made.path.read_bytes()


def put(folder: Path, data: bytes, **other: Any) -> Checkpoint:
    made = checkpoint(folder, toy_config(), **other)
    made.path.write_bytes(data)
    return made


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:100],
        lambda data: data[:1024],
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
        lambda data: data[:2000] + bytes([data[2000] ^ 1]) + data[2001:],
        lambda data: data[:-1] + bytes([data[-1] ^ 128]),
        lambda data: data.replace(b'"threads":1', b'"threads":2', 1),
        lambda data: b"[]".ljust(1023) + b"\n" + data[1024:],
    ],
)
def test_a_damaged_one_is_removed_and_the_trial_begins_anew(
    damage: Callable[[bytes], bytes], stored: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = put(tmp_path, damage(stored))
    assert made.load() is None
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "damaged" in said and str(made.path) in said
    assert not list(tmp_path.iterdir())


def test_one_of_other_conditions_is_refused(stored: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert put(tmp_path, stored).load() is not None
    assert put(tmp_path, stored, device="cpu:0").load() is not None
    assert capsys.readouterr().out == ""
    newer = stored[:1024].replace(b'"schema":2', b'"schema":3') + stored[1024:]
    for data, other, why in (
        (stored, {"threads": 2}, "threads was 1, now it is 2"),
        (stored, {"device": "cuda:1"}, "device was cpu, now it is cuda"),
        (newer, {}, "it has schema 3, this version reads 2"),
    ):
        made = put(tmp_path, data, **other)
        assert made.load() is None
        assert capsys.readouterr().out == f"not resuming from the checkpoint {made.path}: {why}\n"
        assert made.path.exists()  # it may be right for somebody else


def test_a_refused_one_is_replaced(stored: bytes, tmp_path: Path) -> None:
    made = put(tmp_path, stored, threads=2, every=1e9)
    record = Record()
    outcome = run_trial(toy_config(), watch=record.watch(), checkpoint=made)
    assert outcome.cost["resumed"] == record.restored == 0
    after = made.load()
    assert after is not None and after["course"]["part"] == 1


def test_a_state_that_does_not_fit_says_what_to_do(stored: bytes, tmp_path: Path) -> None:
    made = put(tmp_path, stored)
    state = made.load()
    assert state is not None
    del state["course"]["training"]["network"]["classifier.bias"]
    made.save(state)
    with pytest.raises(DataError, match=f"{made.path} does not fit .*; remove it to start again. .*classifier.bias"):
        run_trial(toy_config(), checkpoint=made)


def test_each_request_of_a_trial_has_its_own(toy_project: Path, tmp_path: Path) -> None:
    others: list[dict[str, Any]] = [{}, {"rank": {"bins": 7}}, OBSERVED, {"rank": {"images": 20}}, {"seed": 1}]
    configs = [toy_config(**other) for other in others]
    made = [checkpoint(tmp_path, config) for config in configs]
    assert len({one.path for one in made}) == len(made)
    assert len({one.path.name[:16] for one in made}) == 2  # two trials
    assert checkpoint(tmp_path, toy_config()).path == made[0].path


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The system refuses to write further, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_a_disk_without_space_fails_the_save_and_spares_the_one_before(
    share: float, stored: bytes, tmp_path: Path
) -> None:
    made = put(tmp_path, stored, every=0.0)
    with files_of_at_most(int(share * len(stored))), pytest.raises(CheckpointNotWritten) as failure:
        run_trial(toy_config(), checkpoint=made)
    assert isinstance(failure.value, OSError)
    assert re.fullmatch(f"cannot write the checkpoint {made.path}: File too large", str(failure.value))
    assert list(tmp_path.iterdir()) == [made.path]
    assert made.path.read_bytes() == stored
    seed_globals()
    expected, _ = whole(toy_config())
    assert weights(run_trial(toy_config(), checkpoint=checkpoint(tmp_path, toy_config()))) == weights(expected)


def test_a_folder_that_cannot_be(toy_project: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointNotWritten, match="Not a directory"):
        run_trial(toy_config(), checkpoint=checkpoint(tmp_path / "file" / "work", toy_config()))


def dead_process() -> int:
    """A number that no process has."""
    with subprocess.Popen(["true"]) as process:
        pass
    return process.pid


def test_half_written_files_are_cleared_away_and_listed(stored: bytes, tmp_path: Path) -> None:
    """What a process that was killed while saving leaves behind."""
    made, other = put(tmp_path, stored), checkpoint(tmp_path, toy_config(seed=1))
    halves = [tmp_path / f".{one.path.name}.{dead_process()}.{machine()}00000456" for one in (made, other)]
    for half in halves:
        half.write_bytes(stored[:5000])
    (tmp_path / "else.txt").touch()
    listed = stored_checkpoints(tmp_path)
    assert [one.path for one in listed] == sorted([*halves, made.path], key=lambda path: path.name)
    assert {one.key16 for one in listed} == {Trial(toy_config()).key[:16], Trial(toy_config(seed=1)).key[:16]}
    assert {one.size for one in listed} == {5000, len(stored)}
    assert all(one.mtime == one.path.stat().st_mtime for one in listed)
    assert made.load() is not None
    assert not halves[0].exists() and halves[1].exists()
    halves[0].touch()
    made.remove()
    other.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["else.txt"]
    assert stored_checkpoints(tmp_path / "nowhere") == []


def test_what_another_process_writes_is_left_to_it(stored: bytes, tmp_path: Path) -> None:
    """One that was stopped, say, and woke up after its claim was taken over: it saves once more, and learns of it."""
    made = put(tmp_path, stored)
    with subprocess.Popen(["sleep", "600"]) as living:
        names = (f".{made.path.name}.{process}.{machine()}00000456" for process in (living.pid, os.getpid()))
        half, own = (tmp_path / name for name in names)
        for path in (half, own):
            path.write_bytes(stored[:5000])
        try:
            assert made.load() is not None
            assert half.exists() and not own.exists()
            made.remove()
            assert list(tmp_path.iterdir()) == [half]
            os.utime(half, (1, 1))  # days ago it was another process of that number
            made.remove()
            assert not half.exists()
            half.touch()
        finally:
            living.kill()
    made.remove()
    assert not half.exists()


@pytest.mark.parametrize("at", ["training", "ranking"])
def test_a_signal_has_the_trial_save_and_stop(at: str, toy_project: Path, tmp_path: Path) -> None:
    config = toy_config(method="fsnas", **PAPER)
    made = checkpoint(tmp_path, config, every=1e9)
    asked: list[bool] = []

    def handle(number: int, frame: object) -> None:
        asked.append(made.request_stop())

    def interrupt(*where: object) -> None:
        trained, ranked = isinstance(where[0], Progress) and where[0].epoch == 2, where[0] == 3
        if trained if at == "training" else ranked:
            signal.raise_signal(signal.SIGTERM)

    assert not made.request_stop()  # nothing is under way
    before = signal.signal(signal.SIGTERM, handle)
    try:
        seed_globals()
        with pytest.raises(KeyboardInterrupt):
            run_trial(config, watch=Watch(epoch=interrupt, ranking=interrupt), checkpoint=made)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert asked == [True] and not made.request_stop()
    state = made.load()
    assert state is not None
    if at == "training":
        assert (state["course"]["part"], state["course"]["step"]) == (0, 7)
    else:
        assert 3 <= len(state["predictions"][1]) < 12  # three classes of equal functions
    seed_globals()
    record = Record()
    outcome = run_trial(config, watch=record.watch(), checkpoint=checkpoint(tmp_path, config, every=1e9))
    assert_equal((outcome, record), whole(config))


@pytest.mark.parametrize("polite", [True, False])
@pytest.mark.parametrize("to", ["process", "thread"])
def test_a_signal_does_not_disturb_a_save(to: str, polite: bool, toy_project: Path, tmp_path: Path) -> None:
    """It is heard when the file is whole, whichever thread the system gives it to."""
    made = checkpoint(tmp_path, toy_config())
    main = threading.get_ident()
    ended, heard = threading.Event(), list[bool]()

    def terminate() -> None:
        """As soon as something is in the file, which takes long to be written."""
        while not ended.is_set():
            if any(half.stat().st_size > 1 << 20 for half in tmp_path.glob(".*")):
                if to == "process":
                    os.kill(os.getpid(), signal.SIGTERM)
                else:
                    signal.pthread_kill(main, signal.SIGTERM)
                return

    def handle(number: int, frame: object) -> None:
        heard.append(made.path.exists())
        if not (polite and made.request_stop()):
            raise Stop

    state = {str(number): torch.zeros(1 << 20) for number in range(40)}  # 160 MB
    before = signal.signal(signal.SIGTERM, handle)
    sender = threading.Thread(target=terminate)
    try:
        with made.asked_often(), pytest.raises(KeyboardInterrupt if polite else Stop):
            sender.start()
            made.save(state)
    finally:
        ended.set()
        sender.join()
        signal.signal(signal.SIGTERM, before)
    assert heard == [True]
    again = checkpoint(tmp_path, toy_config()).load()
    assert again is not None and again.keys() == state.keys()
    assert list(tmp_path.iterdir()) == [made.path]


def test_a_checkpoint_is_due_again_only_after_its_interval(
    toy_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("harness.stores.checkpoints.time.monotonic", lambda: now)
    made = Checkpoint(tmp_path, Trial(toy_config()), every=60.0, threads=1, device="cpu")
    assert not made.due()
    now += 60.0
    assert made.due()
    made.save({})
    assert not made.due()
    now += 59.0
    assert not made.due()
    now += 1.0
    assert made.due()


def test_a_checkpoint_survives_a_power_failure(toy_project: Path, tmp_path: Path, synced: list[str]) -> None:
    made = Checkpoint(tmp_path / "work", Trial(toy_config()), threads=1, device="cpu")
    made.save({})
    new, file, folder = synced
    assert (new, folder) == (str(tmp_path), str(tmp_path / "work"))
    assert Path(file).name.startswith(f".{made.path.name}.")
