"""A machine with GPUs, pretended: the list that NVIDIA's driver keeps, for `harness.environment.DRIVER`."""

from __future__ import annotations

from pathlib import Path


def pretended_gpus(folder: Path, count: int) -> Path:
    """The folder, in which the driver lists so many GPUs."""
    for number in range(count):
        place = folder / f"0000:0{number}:00.0"
        place.mkdir(parents=True)
        (place / "information").write_text(f"Model: \t\t NVIDIA Pretended {number}\nIRQ:   \t\t 1\n")
    return folder
