"""The ways that are measured: each prepares, and gives what one turn does. Run in processes of `measuring.Side`.

Networks of three sizes: `demo` (4 channels, 1 cell a stage, 8×8), `small` (8, 1, 16×16) and `paper` (16, 5,
32×32). Images are random bytes: what they show costs nothing.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.components.dataset import DataSet, Split
from harness.components.registries import SPACES
from harness.components.space import Architecture
from harness.data.loader import DeviceLoader
from harness.study.configuration import Ranking, RunConfig
from harness.training.allocator import keep_freed_memory
from harness.training.cost import Meter
from harness.training.stages.rank import predict
from harness.training.stages.train import Supernets, build_supernets, prepare
from tests.perf.autoformer import plain_step as plain_autoformer_step
from tests.perf.autoformer import step as autoformer_step
from tests.perf.baseline import PlainSupernet, PlainTraining, loader
from tests.perf.darts import plain_step as plain_darts_step
from tests.perf.darts import step as darts_step
from tests.perf.imagenet import batches as imagenet_batches
from tests.perf.imagenet import plain_batches as plain_imagenet_batches
from tests.perf.mobilenet import plain_step as plain_mobilenet_step
from tests.perf.mobilenet import step as mobilenet_step
from tests.perf.parallel import shared_ranking, shared_step

Turn = Callable[[], object]

SIZES = {"demo": (4, 1, 8, 1), "small": (8, 1, 16, 3), "paper": (16, 5, 32, 3)}
"""Width, depth, side of the image, channels of the image."""

BATCH, EVALUATED = 64, 256
STEPS = {"demo": 60, "small": 20, "paper": 3}
"""How many steps a turn takes."""

RANKED = {"demo": 150, "small": 60, "paper": 12}
"""How many architectures a turn evaluates."""


__all__ = [
    "autoformer_step",
    "darts_step",
    "imagenet_batches",
    "mobilenet_step",
    "plain_autoformer_step",
    "plain_darts_step",
    "plain_imagenet_batches",
    "plain_mobilenet_step",
    "serve",
    "shared_ranking",
    "shared_step",
]
"""All but `serve` are served by name."""


def serve(words: Sequence[str]) -> None:
    """Prepare; then, for every line that comes in, do a turn and print how long it took. At the end: peak memory."""
    torch.set_num_threads(1)
    name, *arguments = words
    if not name.startswith("plain_"):
        keep_freed_memory()  # as training processes do
    turn: Turn = globals()[name](*arguments)
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        turn()
        print(time.perf_counter() - begin, flush=True)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024), flush=True)


def images(size: str, count: int = 2048) -> DataSet:
    """Random images with as much augmentation as the real ones of that size have."""
    _, _, side, channels = SIZES[size]
    rng = np.random.default_rng(0)

    def split(number: int) -> Split:
        pixels = rng.integers(0, 256, (number, channels, side, side), dtype=np.uint8)
        return Split(pixels, rng.integers(0, 10, number))

    mean, std, plain = (125.0,) * channels, (63.0,) * channels, size == "demo"
    parts = split(count), split(EVALUATED), split(64)
    return DataSet(size, 10, *parts, mean, std, crop_padding=0 if plain else side // 8, flip=not plain)


def configuration(size: str, **changed: Any) -> RunConfig:
    width, depth, _, _ = SIZES[size]
    network = {"width": width, "depth": depth}
    return RunConfig.from_json({"network": network, "train": {"epochs": 1000, "batch_size": BATCH}, **changed})


def paths(seed: int = 1) -> Iterator[Architecture]:
    """The same for whoever asks."""
    space, rng = SPACES.get("nasbench201")(), random.Random(seed)
    while True:
        yield space.sample(rng)


# --- training -----------------------------------------------------------------------------------


def step(size: str, clusters: str = "none", spread: str = "") -> Turn:
    """Training as the harness does it, data included."""
    config = configuration(size, clusters=clusters, observe={"spread": bool(spread)})
    dataset = images(size)
    batches = DeviceLoader(dataset.train, dataset, BATCH, 0)
    _, (training,) = prepare(config, build_supernets(config, dataset), batches.steps_per_epoch)
    drawn, done = paths(), 0

    def turn() -> None:
        nonlocal done
        for _ in range(STEPS[size]):
            training.descend(batches.batch(done), [next(drawn)], done)
            done += 1

    return turn


def plain_step(size: str) -> Turn:
    """Training as most research code does it."""
    width, depth, _, channels = SIZES[size]
    torch.manual_seed(0)
    training = PlainTraining(PlainSupernet(width, depth, 10, channels))
    drawn, source = paths(), endless(loader(images(size), BATCH, workers=2))

    def turn() -> None:
        for _ in range(STEPS[size]):
            pixels, labels = next(source)
            training.step(pixels, labels, next(drawn))

    return turn


def endless(batches: Any) -> Iterator[Any]:
    while True:
        yield from batches


# --- ranking ------------------------------------------------------------------------------------


def ranking(size: str, everything: str = "") -> Turn:
    """One of every class of equal functions: all classes, or as many as a turn takes."""
    config, dataset = configuration(size), images(size)
    supernets = build_supernets(config, dataset)
    space = supernets.space
    classes = sorted({space.function_class(architecture) for architecture in space})
    rng, runs = random.Random(0), RANKED[size] // 3

    def some() -> list[Architecture]:
        """Short runs of neighbours, spread over all: a whole ranking shares work between neighbours, too."""
        share = len(classes) // runs
        starts = [share * run + rng.randrange(share - 2) for run in range(runs)]
        return [classes[start + place] for start in starts for place in range(3)]

    return lambda: ranked(supernets, classes if everything else some(), dataset)


def ranked(supernets: Supernets, architectures: list[Architecture], dataset: DataSet) -> None:
    predict(supernets, architectures, dataset, Ranking(batch_size=EVALUATED), Meter(torch.device("cpu")))


def plain_ranking(size: str) -> Turn:
    """As many architectures as a turn takes, each by itself."""
    width, depth, _, channels = SIZES[size]
    torch.manual_seed(0)
    network = PlainSupernet(width, depth, 10, channels).eval()
    drawn, dataset = paths(0), images(size)
    pixels, labels = torch.from_numpy(dataset.valid.images).float(), torch.from_numpy(dataset.valid.labels)

    @torch.no_grad()
    def turn() -> None:
        for _ in range(RANKED[size]):
            (network(pixels, next(drawn)).argmax(1) == labels).sum().item()

    return turn


# --- data ---------------------------------------------------------------------------------------


def data(batches: str) -> Turn:
    dataset, done = images("paper", 8192), 0
    source = DeviceLoader(dataset.train, dataset, BATCH, 0)

    def turn() -> None:
        nonlocal done
        for _ in range(int(batches)):
            source.batch(done)
            done += 1

    return turn


def plain_data(batches: str) -> Turn:
    source = endless(loader(images("paper", 8192), BATCH, workers=2))

    def turn() -> None:
        for _ in range(int(batches)):
            next(source)

    return turn


# --- trials --------------------------------------------------------------------------------------


def demo_trial(seed: int) -> RunConfig:
    from harness.components.preset import get_preset
    from harness.study.catalogue import find_studies
    from harness.study.expansion import expand

    (study,) = find_studies("ablation_calr_ms")
    return next(iter(expand(study, get_preset("demo")))).trial.config.with_valid(seed=seed)


def trial() -> Turn:
    """A demo trial's work alone: trained, ranked, judged."""
    from harness.training.trial import run_trial

    seed = 0

    def turn() -> None:
        nonlocal seed
        seed += 1
        run_trial(demo_trial(seed))

    return turn


def job() -> Turn:
    """The same trials as the harness runs them: claimed, recorded, checkpointed, stored."""
    from harness.study.trial import Trial
    from tests.jobs import run_job

    folder = tempfile.TemporaryDirectory()
    told: list[dict[str, Any]] = []
    seed = 0

    def turn() -> None:
        nonlocal seed
        seed += 1
        shared = {"store": str(Path(folder.name)), "preset": "demo", "overrides": {}, "threads": 1, "device": "cpu"}
        answer = run_job({"kind": "train", "trial": Trial(demo_trial(seed)).json(), **shared}, told.append)
        if answer["status"] != "done":
            raise SystemExit(f"the trial did not get done: {answer}")

    return turn
