"""First contact with a GPU (`harness doctor --gpu`): does it compute what a CPU computes, how fast is it, and how is it
used best. Imports torch and starts CUDA; stores nothing.

All of it also runs on the emulated device, for tests. The document that is made names no user, host or folder.
"""

from __future__ import annotations

import contextlib
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from harness.components.preset import default_preset, get_preset
from harness.components.registries import DATASETS, PRESETS, SPACES
from harness.components.space import Space
from harness.data import devices
from harness.data.inspection import image_counts
from harness.data.randomness import seed_globals
from harness.documents import one_line
from harness.stores.checkpoints import Checkpoint
from harness.study.catalogue import all_studies
from harness.study.configuration import RunConfig
from harness.study.expansion import expand
from harness.study.study import Study
from harness.study.trial import Trial
from harness.training.memory import is_out_of_memory
from harness.training.precision import arithmetic, fix_arithmetic
from harness.training.stages.train import build_supernets
from harness.training.trial import Outcome, run_trial
from harness.training.workload import Size, Workload, configuration
from harness.work.costing import published_hours
from harness.work.effort import effort
from harness.work.findings import Findings, note, ok, problem

SCHEMA = 1
TINY, PAPER = "tiny", "paper"
TOLERANCE = 0.05
"""How far weights may be from those of a CPU, relative to how far training has moved them: rounding grows."""
LAYOUTS = {"channel by channel": torch.contiguous_format, "pixel by pixel": torch.channels_last}
HOUR = 3600.0
CLASSES = 100_000
"""Spaces with more architectures are not ranked as a whole."""


@dataclass(frozen=True)
class Extent:
    """How much is tried; tests try less."""

    seconds: float = 3.0
    """For each measurement of speed."""
    warm: int = 3
    """Calls before it that do not count."""
    sizes: Mapping[str, Size] = field(default_factory=dict)
    """By space, images that are smaller or fewer than the preset's."""
    spaces: Sequence[str] | None = None
    """Those with the presets `tiny` and `paper`, for None."""
    together: int = 4
    """The most trials at once on one GPU."""
    studies: Sequence[str] | None = None
    """All, for None."""


@dataclass
class GpuCheck:
    """The check of one device. `document` is complete once all findings are read."""

    device: str
    extent: Extent = field(default_factory=Extent)
    document: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = {name.partition("/")[0] for name in PRESETS.names()}
        both = [name for name in sorted(known) if {f"{name}/{TINY}", f"{name}/{PAPER}"} <= set(PRESETS.names())]
        self.spaces = list(self.extent.spaces or both)

    def findings(self) -> Findings:
        """All checks, in order. One that fails does not stop the others."""
        begun = time.monotonic()
        self.document |= {"schema": SCHEMA, "gpu": devices.name(self.device), "torch": torch.__version__}
        self.document |= {"cuda": torch.version.cuda or torch.version.hip, "python": platform.python_version()}
        fix_arithmetic()
        self.document["arithmetic"] = arithmetic(self.device)
        yield ok("gpu", f"{self.document['gpu']}; {self.document['arithmetic']}")
        for subject, check in {
            "trials": self._trials,
            "speed": self._speed,
            "layout": self._layouts,
            "together": self._together,
            "hours": self._hours,
        }.items():
            try:
                yield from check()
            except Exception as error:  # a driver may raise anything
                self.document.setdefault("problems", {})[subject] = one_line(error)
                yield problem(subject, f"could not be checked: {one_line(error)}", "report this, with the JSON file")
        self.document["seconds"] = round(time.monotonic() - begun, 1)

    def _trials(self) -> Findings:
        """A tiny trial of each space: against a CPU, twice, and resumed."""
        found = self.document["trials"] = {}
        for space in self.spaces:
            config = tiny_trial(space)
            there, again = computed(config, self.device), computed(config, self.device)
            apart = difference(there, computed(config, "cpu"), config)
            found[space] = {"difference": apart, "repeats": same(there, again)}
            found[space]["resumes"] = same(there, in_pieces(config, self.device))
            wrong = [
                *([] if apart < TOLERANCE else [f"its weights are {apart:.2%} from those of a CPU"]),
                *([] if found[space]["repeats"] else ["the same trial gives other bytes the second time"]),
                *([] if found[space]["resumes"] else ["a resumed trial gives other bytes than an uninterrupted one"]),
            ]
            if wrong:
                advice = "do not use results of this GPU; report this, with the JSON file"
                yield problem("trials", f"{space}: {'; '.join(wrong)}", advice)
            else:
                yield ok("trials", f"{space}: {apart:.1e} from a CPU; equal bytes twice and resumed")

    def _speed(self) -> Findings:
        """Milliseconds of a training step and of a ranking batch at paper size."""
        found = self.document["speed"] = {}
        for space in self.spaces:
            work, size = self._fitting(space)
            step = timed(work.step, self.device, self.extent)
            rank = timed(work.rank, self.device, self.extent)
            batch, ranked = work.config.train.batch_size, work.config.rank.batch_size
            found[space] = {"step_ms": step, "batch": batch, "ranking_ms": rank, "ranking_batch": ranked}
            text = f"{space}: {step:.3g} ms per step of {batch} images, {rank:.3g} ms per ranking batch of {ranked}"
            if size.batch and not self.extent.sizes:
                yield note("speed", f"{text}; larger batches do not fit", "--ranks divides a batch among GPUs")
            else:
                yield ok("speed", text)
            del work

    def _fitting(self, space: str) -> tuple[Workload, Size]:
        """A training by the default method at paper size, with smaller batches where the memory is too small."""
        config = configuration(get_preset(PAPER, space), {})
        fix_arithmetic(config.train.precision)
        size = self.extent.sizes.get(space, Size())
        while True:
            try:
                work = Workload(config, self.device, size)
                work.step()
                work.rank()
                return work, size
            except (RuntimeError, MemoryError) as error:
                batch = size.batch or config.train.batch_size
                if not is_out_of_memory(error) or batch < 2:
                    raise
                size = replace(size, batch=batch // 2, ranked=min(batch // 2, config.rank.batch_size))

    def _layouts(self) -> Findings:
        """Both layouts of images, in the precision of the preset `paper`."""
        found = self.document["layout"] = {}
        for space in self.spaces:
            times = found[space] = {}
            for name, layout in LAYOUTS.items():
                with devices.forced_layout(layout):
                    work, _ = self._fitting(space)
                    times[name] = timed(work.step, self.device, self.extent)
            best = min(times, key=lambda name: times[name])
            used = next(name for name, layout in LAYOUTS.items() if layout is devices.memory_format(self.device))
            text = f"{space}: " + ", ".join(f"{one:.3g} ms {name}" for name, one in times.items())
            if times[best] < 0.9 * times[used]:
                yield note("layout", f"{text}; {used} is used", "send the JSON file: the other layout is faster here")
            else:
                yield ok("layout", text)

    def _together(self) -> Findings:
        """How many trials at once the GPU should run, for the space of the default preset."""
        usual = str(default_preset().settings["space"])
        space = usual if usual in self.spaces else self.spaces[0]
        size = asdict(self.extent.sizes.get(space, Size()))
        steps: dict[int, float] = {}
        for count in range(1, self.extent.together + 1):
            try:
                steps[count] = steps_per_second(self.device, space, size, count, self.extent.seconds)
            except RuntimeError as error:  # too little memory for so many
                self.document.setdefault("problems", {})["together"] = one_line(error)
                break
        self.document["together"] = {"space": space, "steps_per_second": steps}
        if not steps:
            yield problem("together", self.document["problems"]["together"], "report this, with the JSON file")
            return
        best = max(steps, key=lambda count: steps[count])
        said = ", ".join(f"{count}: {one:.3g}" for count, one in steps.items())
        yield ok("together", f"steps per second of {space} by trials at once: {said}; --per-device {best} is fastest")

    def _hours(self) -> Findings:
        """The hours of each study at paper size on this GPU, one trial at a time, against the paper's."""
        found = self.document["hours"] = {}
        for study in all_studies():
            if self.extent.studies is not None and study.name not in self.extent.studies:
                continue
            hours = study_hours(study, self.document["speed"])
            if hours is not None:
                found[study.name] = hours
                paper, trials = hours["published_training"], hours["published_trials"]
                text = f"{study.name}: {hours['training']:.3g} h of training, {hours['ranking']:.3g} h of ranking"
                text += f"; the paper trained {paper:.3g} h for {trials} of its trials" if trials else ""
                yield ok("hours", f"{text}, here {hours['same_training']:.3g} h" if trials else text)


def study_hours(study: Study, speed: Mapping[str, Mapping[str, float]]) -> dict[str, float] | None:
    """Hours of a study's trials at paper size by what a step and a ranking batch take; None without such a preset.

    Trials of several requests count once. Searches and retrainings are left out. `published_training` are the paper's
    hours of those trials that it has hours for, `same_training` ours for the same.
    """
    if study.about not in speed or f"{study.about}/{PAPER}" not in PRESETS.names():
        return None
    preset, measured = get_preset(PAPER, study.about), speed[study.about]
    trials = [one.trial for one in expand(study, preset)]
    trials = [one.start if one.config.retrain is not None and one.start else one for one in trials]
    configs = {one.key: one.config for one in trials if one.config.retrain is None}
    found = {"trials": float(len(configs)), "training": 0.0, "ranking": 0.0}
    found |= {"published_training": 0.0, "published_trials": 0, "same_training": 0.0}
    for config in configs.values():
        counts = image_counts(config.dataset) or {"train": 1_281_167, "valid": 50_000, "test": 50_000}
        known = effort(config, lambda name, counts=counts: counts)  # type: ignore[misc]
        assert known is not None, "the counts are given"
        training = known.images / measured["batch"] * measured["step_ms"] / 1000 / HOUR
        found["training"] += training
        if (published := published_hours(preset, config)) is not None:
            found["published_training"] += published
            found["published_trials"] += 1
            found["same_training"] += training
        if config.benchmark is not None:
            images = min(counts["valid"], config.rank.images or counts["valid"])
            batches = -(-images // int(measured["ranking_batch"]))
            found["ranking"] += evaluations(config) * batches * measured["ranking_ms"] / 1000 / HOUR
    return found


def evaluations(config: RunConfig) -> int:
    """How many architectures a ranking evaluates: classes of equal ones, or candidates and those of Kendall's τ."""
    if config.rank.candidates is not None:
        return config.rank.candidates + config.rank.bins
    return _classes(config.space)


@cache
def _classes(name: str) -> int:
    space: Space = SPACES.get(name)()
    return 0 if space.size > CLASSES else len({space.function_class(one) for one in space})


def tiny_trial(space: str) -> RunConfig:
    """The smallest trial of a space, without what draws random numbers on the device: those differ between devices."""
    config = configuration(get_preset(TINY, space), {})
    network = config.network
    if isinstance(network, Mapping) and "drop_path" in network:
        network = {**network, "drop_path": 0.0}
    return config.with_valid(train=replace(config.train, augment=()), network=network)


def computed(config: RunConfig, device: str, checkpoint: Checkpoint | None = None) -> Outcome:
    """The outcome of a trial, as a process of its own would compute it."""
    seed_globals(config.seed)
    fix_arithmetic(config.train.precision)
    return run_trial(config, device, checkpoint=checkpoint)


class Interruption(Exception):
    """Stands for whatever ends a process."""


class Stopping(Checkpoint):
    """Saves between any two steps until the second save, after which it stops the trial."""

    left = 2

    def save(self, state: dict[str, Any]) -> None:
        super().save(state)
        self.left -= 1
        if not self.left:
            raise Interruption


def in_pieces(config: RunConfig, device: str) -> Outcome:
    """The outcome of a trial that was stopped between two steps, and resumed."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Stopping(Path(folder), Trial(config), every=0.0, threads=1, device=device)
        with contextlib.suppress(Interruption):
            computed(config, device, kept)
            raise AssertionError("the trial ended before it was stopped")
        return computed(config, device, Checkpoint(Path(folder), Trial(config), threads=1, device=device))


def weights(outcome: Outcome) -> list[torch.Tensor]:
    """All weights and statistics of the supernets, on the CPU."""
    assert outcome.supernets is not None, "a trial that diverged"
    return [one.cpu() for network in outcome.supernets.networks for one in network.state_dict().values()]


def same(one: Outcome, other: Outcome) -> bool:
    """Whether weights and predictions are equal to the last bit."""
    pairs = zip(weights(one), weights(other), strict=True)
    return one.predictions == other.predictions and all(torch.equal(*pair) for pair in pairs)


def difference(one: Outcome, other: Outcome, config: RunConfig) -> float:
    """How far two trained weights are apart, relative to how far training has moved the second ones."""
    initial_networks = build_supernets(config, DATASETS.get(config.dataset)()).networks
    first = [own for network in initial_networks for own in network.state_dict().values()]
    apart = moved = 0.0
    for mine, its, initial in zip(weights(one), weights(other), first, strict=True):
        apart += float((mine.double() - its.double()).square().sum())
        moved += float((its.double() - initial.double()).square().sum())
    return float((apart / moved) ** 0.5) if moved else float("inf")


def timed(work: Callable[[], Any], device: str, extent: Extent) -> float:
    """Milliseconds of a call, on average over as many as fit into the time."""
    for _ in range(extent.warm):
        work()
    devices.wait(device)
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < extent.seconds or not count:
        work()
        count += 1
        if count % 8 == 0:
            devices.wait(device)  # launches run ahead of the device
    devices.wait(device)
    return (time.perf_counter() - begun) / count * 1000


def steps_per_second(device: str, space: str, size: Mapping[str, Any], count: int, seconds: float) -> float:
    """Training steps per second of so many processes at once on the device. Raises `RuntimeError` if one fails."""
    given = json.dumps({"device": device, "space": space, "size": size, "seconds": seconds})
    command = [sys.executable, "-m", "harness.work.doctor_gpu", given]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(subprocess.Popen(command, text=True, **pipes)) for _ in range(count)]
        for child in children:
            stack.callback(child.kill)
        for child in children:
            if child.stdout.readline() != "ready\n":  # type: ignore[union-attr]
                raise RuntimeError(f"{count} trials at once: {(child.communicate()[1].splitlines() or ['ended'])[-1]}")
        for child in children:
            child.stdin.write("go\n")  # type: ignore[union-attr]
            child.stdin.flush()  # type: ignore[union-attr]
        return sum(float(child.communicate()[0]) for child in children)


@contextlib.contextmanager
def usable(device: str) -> Iterator[None]:
    """Context in which the device can be used: nothing to do but for the emulated one."""
    if device != "emulated":
        yield
        return
    from harness.training import emulated_device

    with emulated_device.emulated():
        yield


def main() -> None:
    """A process of `steps_per_second`."""
    given = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    with usable(given["device"]):
        fix_arithmetic()
        config = configuration(get_preset(PAPER, given["space"]), {})
        work = Workload(config, given["device"], Size(**given["size"]))
        for _ in range(3):
            work.step()
        devices.wait(given["device"])
        print("ready", flush=True)
        sys.stdin.readline()
        print(1000 / timed(work.step, given["device"], Extent(given["seconds"], warm=0)), flush=True)


if __name__ == "__main__":
    main()
