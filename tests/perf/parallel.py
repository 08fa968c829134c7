"""Training steps and rankings of a group of processes, one thread each: the first is measured, the others keep up."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable

import torch

from harness.components.loader import Loader
from harness.data.loader import DeviceLoader
from harness.study.configuration import Ranking
from harness.training.cost import Meter
from harness.training.parts import divided
from harness.training.ranks import Ranks, join
from harness.training.stages.rank import predict
from harness.training.stages.train import build_supernets, prepare

Turn = Callable[[], object]


def in_group(size: int, make: Callable[[Ranks], Turn]) -> Turn:
    """What the first of so many processes does; the others do the same turns, until it ends."""
    address = f"file://{tempfile.mkdtemp()}/meeting"
    for index in range(1, size):
        if not os.fork():
            try:
                turn = make(join(index, size, address))
                while True:
                    turn()
            finally:
                os._exit(0)
    return make(join(0, size, address))


def shared_step(size: str, processes: str) -> Turn:
    """The steps of `sides.step`, shared; statistics are those of each rank's part."""
    from tests.perf.sides import BATCH, STEPS, configuration, images, paths

    count = int(processes)

    def make(ranks: Ranks) -> Turn:
        config = configuration(size, train={"epochs": 1000, "batch_size": BATCH, "bn_group": BATCH // count})
        dataset, drawn, done = images(size), paths(), 0
        steps = -(-len(dataset.train) // BATCH)
        _, (training,) = prepare(config, build_supernets(config, dataset), steps, dataset, ranks)
        batches: Loader = DeviceLoader(dataset.train, dataset, BATCH, 0, share=training.division.share)

        def turn() -> None:
            nonlocal done
            for _ in range(STEPS[size]):
                batch = batches.batch(done)
                with divided(training.division, batch):
                    training.descend(batch, [next(drawn)], done)
                done += 1

        return turn

    return in_group(count, make)


def shared_ranking(size: str, count: str, processes: str) -> Turn:
    """A ranking of so many architectures, shared."""
    from tests.perf.sides import EVALUATED, configuration, images

    def make(ranks: Ranks) -> Turn:
        config, dataset = configuration(size), images(size)
        supernets = build_supernets(config, dataset)
        classes = sorted({supernets.space.function_class(one) for one in supernets.space})
        first = random.Random(0).randrange(len(classes) - int(count))
        some = classes[first : first + int(count)]
        ranking, meter = Ranking(batch_size=EVALUATED), Meter(torch.device("cpu"))
        return lambda: predict(supernets, some, dataset, ranking, meter, ranks=ranks)

    return in_group(int(processes), make)
