"""A real GPU, by the checks that users make of theirs: `pytest -m gpu`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here that torch can use"),
]


def test_the_gpu_passes_the_check_of_the_doctor(tmp_path: Path) -> None:
    """Tiny trials as on a CPU, the same bytes twice and resumed, times at paper size, both layouts, several at once."""
    command = [sys.executable, "-m", "harness", "doctor", "--gpu", "--file", str(tmp_path / "gpu.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "gpu.json").read_text())
    assert document["speed"] and "problems" not in document
