"""`harness init`: a folder for one's own project."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from harness.cli._help import Command
from harness.cli.new import write_new, write_text
from harness.errors import UserError

METHOD, STUDY = "mine", "compare"

SETTINGS = """\
# Settings of this folder. The command line and the environment win over them.
# preset = "tiny"              # the scale: tiny, demo, small, paper, official
# store = "runs"               # the folder of the runs
# mongo = "mongodb://HOST/NAME"  # a database that mirrors them
# jobs = 2                     # trials side by side
# lease = "60s"                # time without renewal after which a claim expires
# checkpoint-every = "60s"
# outage-wait = "10m"          # how long to wait for an unreachable database
# mirror-weights-max = "64MB"
# notify = "COMMAND"           # or a web address: gets a summary when `run` ends
# [images]                     # data sets of your own: trees of train/CLASS/*.png
# leaves = "~/images/leaves"
"""
IGNORED = "runs/\n__pycache__/\n"


@click.command("init", cls=Command, example="harness init my-project")
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
def command(folder: Path) -> None:
    """Create a folder for your own project, with a method and a study.

    It has settings and a .gitignore, too. FOLDER is the current one by default. Existing files are never overwritten.
    """
    files = {Path("harness.toml"): SETTINGS, Path(".gitignore"): IGNORED}
    made = [Path("methods", f"{METHOD}.py"), Path("studies", f"{STUDY}.py"), *files]
    if there := [file for file in made if (folder / file).exists()]:
        raise UserError(f"{folder / there[0]} exists already: choose another folder, or use `harness new`")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create {folder.absolute()}: {error.strerror or error}") from error
    with contextlib.chdir(folder):
        write_new("method", METHOD)
        write_new("study", STUDY)
        for file, text in files.items():
            write_text(file, text)
    for file in made:
        click.echo(f"written: {folder / file}")
    enter = "" if folder == Path(".") else f"cd {folder} && "
    click.echo(f"next:    {enter}harness run {STUDY} --preset tiny && harness report {STUDY} --preset tiny")
