"""A user's streamed data set, mixing and a space with drop-path, through `run`: killed, resumed, reported."""

from __future__ import annotations

import json
import multiprocessing
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.cli import main
from harness.stores.checkpoints import Checkpoint
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.configuration import Retraining, RunConfig
from harness.study.expansion import apply
from harness.study.trial import Trial
from harness.training.trial import retrain_trial, run_trial
from tests.test_documents import example_files
from tests.toy import user_folder

BLOCKS = '''
"""Three residual blocks with drop-path, each of one of three kinds: 27 architectures; and what they are worth."""

import numpy as np
import torch
from torch import nn

from harness.components.benchmark import Benchmark
from harness.components.registries import BENCHMARKS, SPACES
from harness.components.space import Space

from ._drop_path import Residual


@SPACES.register("blocks")
class Blocks(Space):
    """Three blocks: none, a convolution of 1×1 or of 3×3."""

    name = "blocks"
    choices = (3, 3, 3)

    def parse(self, text):
        return self.check(tuple(map(int, text)))

    def format(self, architecture):
        return "".join(map(str, architecture))

    def complexity(self, architecture, count="parameters"):
        return 1 + sum((0, 1, 9)[choice] for choice in self.check(architecture))

    def supernet(self, settings):
        return Network(settings, [(1, 2)] * 3)

    def standalone(self, architecture, settings):
        return Network(settings, [(choice,) if choice else () for choice in architecture], architecture)


class Network(nn.Module):
    def __init__(self, settings, kinds, architecture=None):
        super().__init__()
        self.architecture, width = architecture, settings.width
        self.stem = nn.Conv2d(settings.image_channels, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {str(kind): Residual(nn.Conv2d(width, width, 2 * kind - 1, padding=kind - 1), 0.3) for kind in own}
            )
            for own in kinds
        )
        self.classifier = nn.Linear(width, settings.classes)

    def forward(self, images, architecture=None):
        images = self.stem(images)
        for block, kind in zip(self.blocks, architecture or self.architecture):
            images = block[str(kind)](torch.relu(images)) if kind else images
        return self.classifier(torch.relu(images).mean((2, 3)))


class Worth(Benchmark):
    name, space, datasets = "blocks", Blocks(), ("waves",)

    def accuracies(self, dataset, split="test"):
        return np.array([30.0 + self.space.complexity(architecture) for architecture in self.space])


@BENCHMARKS.register("blocks")
def blocks():
    """The larger, the better."""
    return Worth()
'''

KILLER = '''
"""An augmentation that kills its process with a certain batch, if the file `die` says which."""

import os
import signal
from pathlib import Path

from harness.components.augmentation import BatchAugmentation
from harness.components.registries import AUGMENTATIONS


@AUGMENTATIONS.register("deadly")
class Deadly(BatchAugmentation):
    def bind(self, dataset):
        batches = 0

        def deadly(images, labels):
            nonlocal batches
            batches += 1
            if Path("die").exists() and batches == int(Path("die").read_text()):
                Path("die").unlink()
                os.kill(os.getpid(), signal.SIGKILL)
            return images, labels

        return deadly
'''

STUDY = """
from harness.study import Column, Row, Study

augment = ["flip", {"name": "erasing", "largest": 0.2}, "noise", "deadly", {"name": "mixup", "alpha": 1.0}]
settings = {
    "space": "blocks", "dataset": "waves", "benchmark": "blocks", "network.width": 4, "optimiser.learning_rate": 0.1,
    "train.epochs": 3, "train.batch_size": 20, "train.augment": augment, "train.order": "pairs",
    "rank.images": 30, "rank.batch_size": 20, "rank.candidates": 27, "rank.bins": 5,
    "retrain.epochs": 3, "retrain.batch_size": 20, "retrain.augment": augment, "retrain.order": "pairs",
    "observe.kendall_tau_every": 2,
}
study = Study("streamed", "Streamed waves", [Row({"Data": "mixed waves"}, settings)],
              [Column("Retrained", "retrained_accuracy")])
"""

COMMAND = ("streamed", "--preset", "tiny", "--seeds", "1")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    wanted = ("datasets/waves.py", "spaces/_drop_path.py", "methods/noise.py", "methods/pairs.py")
    shown = {name: text for name, text in example_files().items() if name in wanted}
    assert len(shown) == len(wanted)
    own = {"spaces/blocks.py": BLOCKS, "methods/deadly.py": KILLER, "studies/streamed.py": STUDY}
    with user_folder(tmp_path, shown | own):
        yield tmp_path


def run(store: str, *more: str) -> int:
    return main(["run", *COMMAND, "--store", store, "--jobs", "1", "--checkpoint-every", "0.0001", *more])


def outcomes(store: str) -> dict[str, tuple[Any, bytes, bytes]]:
    """Results, predictions and weights of the runs that are done, by trial."""
    found = {}
    for one in DirectoryStore(Path(store)).runs():
        if one.status == "done":
            folder = Path(store) / one.id
            result = json.loads((folder / "result.json").read_text())["result"]
            found[one.key] = (result, (folder / "predictions.json").read_bytes(), (folder / "weights.pt").read_bytes())
    return found


def settings() -> dict[str, Any]:
    """The configuration of the study's row."""
    (study,) = find_studies("streamed")
    document = RunConfig(retrain=Retraining()).json()
    apply(document, study.rows[0].settings)
    return document


def attempt(config: RunConfig, out: Path) -> None:
    """Run the trial from its checkpoint, if there is one, and store what came out."""
    checkpoint = Checkpoint(Path("work"), Trial(config), every=1e-6, threads=1, device="cpu")
    if config.retrain is None:
        outcome = run_trial(config, checkpoint=checkpoint)
    else:
        outcome = retrain_trial(config, (2, 1, 2), checkpoint=checkpoint)
    assert outcome.supernets is not None
    weights = [network.state_dict() for network in outcome.supernets.networks]
    out.mkdir()
    torch.save([weights, outcome.result, outcome.predictions], out / "outcome.pt")  # the name is in the file
    checkpoint.remove()


@pytest.mark.parametrize("stage", ["train", "retrain"])
def test_a_killed_stage_resumes_to_the_same_bytes(stage: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = settings()
    config = RunConfig.from_json(document if stage == "retrain" else document | {"retrain": None})
    attempt(config, Path("whole"))
    Path("die").write_text("8")  # of 15 batches, 5 per epoch
    fork = multiprocessing.get_context("fork")
    killed, resumed = (fork.Process(target=attempt, args=(config, Path("killed"))) for _ in range(2))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL and list(Path("work").iterdir())
    Path("die").write_text("9")  # would kill it again if it began anew
    monkeypatch.setenv("HARNESS_DATA_WORKERS", "1")
    resumed.start()
    resumed.join()
    assert resumed.exitcode == 0 and Path("die").exists()
    assert Path("killed/outcome.pt").read_bytes() == Path("whole/outcome.pt").read_bytes()


@pytest.mark.long
def test_killed_in_training_and_in_retraining_and_resumed_to_the_same_bytes(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("whole") == 0
    whole = outcomes("whole")
    assert len(whole) == 2 and not any(result["diverged"] for result, _, _ in whole.values())
    # 3 epochs of 5 steps each, in the supernet and in retraining. The 8th batch is in the middle of an epoch, and the
    # resumed supernet needs 8 more. So the 12th batch of the second attempt is in retraining, in an epoch's middle.
    monkeypatch.setenv("HARNESS_DATA_WORKERS", "1")
    for batch, done in ((8, 0), (12, 1)):
        Path("die").write_text(str(batch))
        assert run("killed", "--retry", "failed") == 1
        assert not Path("die").exists() and len(outcomes("killed")) == done
    capsys.readouterr()
    assert run("killed", "--retry", "failed") == 0
    assert outcomes("killed") == whole
    for runs in ("whole", "killed"):
        assert main(["report", *COMMAND, "--store", runs]) == 0
    tables = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| mixed waves")]
    assert len(tables) == 2 and tables[0] == tables[1] and any(digit in tables[0] for digit in "123456789")
