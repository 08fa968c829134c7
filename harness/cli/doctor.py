"""`harness doctor`: whether everything that a run needs is in order, and what to do where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli._help import Command
from harness.cli._options import store_option
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.work.findings import Findings, State


@click.command("doctor", cls=Command, example="harness doctor --store runs")
@click.option(
    "--wait",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds to wait for the check of torch and its GPUs.",
)
@click.option(
    "--gpu",
    is_flag=True,
    help="Try and time the GPU instead, in about 2 minutes, and write all figures to --file.",
)
@click.option(
    "--file",
    default="gpu.json",
    show_default=True,
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="With --gpu: where to write figures. The file names no user, host or folder and may be sent to us.",
)
@store_option
def command(wait: float, gpu: bool, file: Path, store: Places) -> int:
    """Check installation, GPUs, store, database, data, tables and disk.

    One line per check: ok, note or problem, and what to do about it. Nothing is changed. Takes a few seconds. Exits 1
    if there is a problem.

    With --gpu: whether a tiny trial of each space has the CPU's result on the GPU, and equal bytes when repeated or
    resumed; times at paper size; the best memory layout and number of trials per GPU; hours of each study.
    """
    from harness.work.doctor import examine

    return _check_gpu(file) if gpu else _shown(examine(store, wait))


def _check_gpu(file: Path) -> int:
    import torch

    from harness.files import write_json
    from harness.work.doctor_gpu import GpuCheck

    if not torch.cuda.is_available():
        click.echo("there is no GPU here that torch can use, so nothing was checked; `harness doctor` says more")
        return 1
    check = GpuCheck("cuda")
    status = _shown(check.findings())
    write_json(file, check.document)
    click.echo(f"figures are in {file}")
    return status


def styled(state: State) -> str:
    """The word for a state in its colour."""
    return click.style(f"{state:8}", fg={"ok": "green", "note": "yellow", "problem": "red"}[state])


def _shown(findings: Findings) -> int:
    """Print findings as they come; 1 if one is a problem."""
    from collections import Counter

    from harness.work.findings import State

    counts: Counter[State] = Counter()
    for finding in findings:
        counts[finding.state] += 1
        click.echo(f"{styled(finding.state)} {finding.subject:11} {finding.text}")
        if finding.advice:
            click.echo(f"{'':21}what to do: {finding.advice}")
    problems, notes = counts[State.PROBLEM], counts[State.NOTE]
    summary = f"{problems} problem{'s' * (problems != 1)}" if problems else "no problems"
    click.echo(summary + (f", {notes} note{'s' * (notes != 1)}" if notes else ""))
    return 1 if problems else 0
