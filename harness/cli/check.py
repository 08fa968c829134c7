"""`harness check`: try a component or a study, and say what is wrong with it."""

from __future__ import annotations

import click

from harness.cli._request import WithUpdates


@click.command("check", cls=WithUpdates, example="harness check methods/mine.py")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--gpu", is_flag=True, help="Train on an emulated GPU, too: no GPU is needed.")
def command(files: tuple[str, ...], updates: tuple[str, ...], gpu: bool) -> int:
    """Try components and studies, and report problems.

    Each is built, and trained with for a few steps.
    FILE is a file or folder of yours such as methods/mine.py, or the name of a known component or study. Overrides
    after `with` hold for the training, for instance `with space=mine`. Nothing is stored. Exits 1 if something is
    wrong.
    """
    import torch

    from harness.study.overrides import parse_updates
    from harness.work.checking.components import check_named
    from harness.work.checking.findings import Verdict

    if gpu:
        import harness.training.emulated_device  # noqa: F401  # before the first gradient, or it gets no thread for them
    overrides = parse_updates(updates)
    torch.set_num_threads(1)  # as a trial by default: sums in one order
    colours = {Verdict.OK: "green", Verdict.WRONG: "red", Verdict.NOTE: "yellow"}
    checks = wrong = 0
    for name in files:
        for found in check_named(name, overrides, gpu):
            click.secho(found.about, bold=True)
            for line in found.lines:
                click.echo(f"  {click.style(f'{line.verdict:5}', fg=colours[line.verdict])}  {line.text}")
            checks += len(found.lines)
            wrong += sum(line.verdict is Verdict.WRONG for line in found.lines)
    click.echo(f"{checks} checks, {wrong} wrong")
    return int(wrong > 0)
