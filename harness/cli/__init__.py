"""The command line: `harness COMMAND`, one file of this folder per command.

A command is a module here whose attribute `command` is a click command of the same name. Modules are
found by listing the folder and imported on demand. Command modules import click and `harness.errors`
only, and everything else inside the function: `--help` must answer at once.

A command's integer return value is the exit status. Errors are printed here, and only here.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from harness import __version__
from harness.cli._completion import VARIABLE
from harness.cli._help import MainGroup
from harness.cli._plain_text import replace_what_cannot_be_written
from harness.errors import (
    ComponentWarning,
    HarnessError,
    SourceWarning,
    UnknownName,
    UserError,
    users_place,
    with_notes,
)


class _Commands(MainGroup):
    """The commands of this folder."""

    # Once the command `list` is imported, that name means its module here, not the builtin.
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            if ctx.resilient_parsing:  # the shell asks for completions
                return None
            if deeper := self._deeper(cmd_name, ctx):
                raise UnknownName(f"no command is named {cmd_name!r}; did you mean {' or '.join(deeper)}?")
            raise UnknownName.among("command", cmd_name, self.list_commands(ctx))
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name}").command
        return command

    def _deeper(self, name: str, ctx: click.Context) -> list[str]:
        """The commands of that name in groups, as `store` has `clean`."""
        groups = {one: self.get_command(ctx, one) for one in self.list_commands(ctx)}
        found = [one for one, group in groups.items() if isinstance(group, click.Group) and name in group.commands]
        return [f"`harness {one} {name}`" for one in found]


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    example="harness run mine --preset tiny && harness report mine --preset tiny",
)
@click.version_option(__version__, prog_name="harness")
def group() -> None:
    """Benchmark neural architecture search: run studies, rebuild tables."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    0: done. 1: something failed. 2: the request was wrong. 130: interrupted.
    """
    replace_what_cannot_be_written(sys.stdout, sys.stderr)
    if os.environ.get(VARIABLE):
        return _complete()
    try:
        with _told_of_components():
            status = group.main(arguments, prog_name="harness", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except HarnessError as error:
        click.echo(f"error: {with_notes(error)}", err=True)
        return 2 if isinstance(error, UserError) else 1
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except Exception as error:
        # A mistake in a file of the user's, told by its line; `python -X dev` shows the traceback.
        if sys.flags.dev_mode or not (told := _users_mistake(error)):
            raise
        click.echo(f"error: {told}", err=True)
        return 2
    finally:
        sys.stdout.flush()
    return status if isinstance(status, int) else 0


def _complete() -> int:
    """Answer the shell, which asks for completions or for its script. Errors are not for its reader."""
    with contextlib.suppress(Exception):
        group.main(prog_name="harness", complete_var=VARIABLE)
    return 1


@contextmanager
def _told_of_components() -> Iterator[None]:
    """Within, a file or folder that is left out is one line on stderr."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, ComponentWarning | SourceWarning):
                click.echo(f"warning: {' '.join(str(message).split())}", err=True)
            else:
                others(message, category, *place, **more)

        warnings.simplefilter("always", ComponentWarning)
        warnings.simplefilter("always", SourceWarning)
        warnings.showwarning = show
        yield


def _users_mistake(error: Exception) -> str | None:
    """An error that passed through a file of the user's folder, with the line; None for one that is ours."""
    import traceback
    from pathlib import Path

    from harness.documents import one_line
    from harness.environment import PROJECT

    place = None if Path.cwd() == PROJECT else users_place(traceback.format_exception(error), Path.cwd())
    return f"{place}: {one_line(error)} (`python -X dev -m harness` shows the traceback)" if place else None
