"""`harness check --gpu`: a user's component on the emulated device, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from harness.environment import PROJECT

METHODS = """import torch
from harness.components.method import Method, Step
from harness.components.registries import METHODS

@METHODS.register("sound")
class Sound(Method):
    def paths(self, training):
        return training.draw(1)

@METHODS.register("waiting")
class Waiting(Method):
    def train_step(self, training, batch, step):
        losses = training.descend(batch, training.draw(1), step)
        training.memory["last"] = float(losses)
        return losses

@METHODS.register("mixing")
class Mixing(Method):
    def train_step(self, training, batch, step):
        losses = training.descend(batch, training.draw(1), step)
        return losses * torch.ones(1)
"""


def test_a_method_is_tried_on_an_emulated_gpu(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(METHODS)
    command = [sys.executable, "-m", "harness", "check", "mine.py", "--gpu"]
    path = {"PYTHONPATH": str(PROJECT), "HARNESS_STORE": str(tmp_path / "runs")}
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **path}, capture_output=True, text=True)
    assert done.returncode == 1 and not done.stderr, done.stderr
    said = {part.partition("'")[0]: part for part in done.stdout.split("method '")[1:]}
    sound, waiting, mixing = (said[name] for name in ("sound", "waiting", "mixing"))
    trained = "ok       trains on a GPU, and resumes there to the same weights (emulated)"
    assert trained in sound and "note" not in sound
    assert (
        trained in waiting
        and "mine.py:14 (_local_scalar_dense): the CPU waits for the GPU 6 times in 6 steps" in waiting
    )
    assert trained not in mixing and "mine.py:21: " in mixing and "tensors on two devices" in mixing
