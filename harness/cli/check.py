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

    from harness.cli.doctor import styled
    from harness.study.overrides import parse_updates
    from harness.testing.components import check_named

    if gpu:
        import harness.training.emulated_device  # noqa: F401  # before the first gradient, or it gets no thread for them
    overrides = parse_updates(updates)
    torch.set_num_threads(1)  # as a trial by default: sums in one order
    checks = problems = 0
    for name in files:
        for done in check_named(name, overrides, gpu):
            click.secho(done.subject, bold=True)
            for finding in done.found:
                click.echo(f"  {styled(finding.state)} {finding.text}")
            checks += len(done.found)
            problems += len(done.problems)
    click.echo(f"{checks} checks, {problems} problem{'s' * (problems != 1)}")
    return int(problems > 0)
