"""GPUs in a list as NVIDIA's driver keeps it, for `harness.environment.DRIVER`. Torch cannot use them."""

from __future__ import annotations

from pathlib import Path


def listed_gpus(folder: Path, count: int) -> Path:
    """The folder, in which the driver lists so many GPUs."""
    for number in range(count):
        place = folder / f"0000:0{number}:00.0"
        place.mkdir(parents=True)
        (place / "information").write_text(f"Model: \t\t NVIDIA Listed {number}\nIRQ:   \t\t 1\n")
    return folder
