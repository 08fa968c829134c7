"""The site: `make docs` builds these pages, one page per command, and the Python API into build/site.

Nothing is loaded from another host, neither while the site is built nor when it is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import harness
from harness.cli import group
from harness.cli._help import EVERYTHING

HERE = Path(__file__).parent
COMMANDS = HERE / "commands"
"""Pages made from the help texts; not in the repository."""

project = "nas-harness"
author = "the nas-harness developers"
copyright = author
version = release = harness.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["conf.py"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"{project} {version}"
html_show_sourcelink = False
html_copy_source = False

# Docstrings are plain text with names in backticks.
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
autodoc_preserve_defaults = True
add_module_names = False


def command_page(name: str, command: click.Command) -> str:
    """The help of a command, and of its subcommands."""
    lines = [f"# `harness {name}`", "", *_help(f"harness {name}", command)]
    if isinstance(command, click.Group):
        for inner, subcommand in sorted(command.commands.items()):
            words = f"harness {name} {inner}"
            lines += ["", f"## `{words}`", "", *_help(words, subcommand)]
    return "\n".join([*lines, ""])


def _help(words: str, command: click.Command) -> list[str]:
    context = click.Context(command, info_name=words, max_content_width=100, terminal_width=100)
    context.meta[EVERYTHING] = True
    return ["```text", command.get_help(context).rstrip(), "```"]


def write_commands(app: Any) -> None:
    """One page per command, and their list."""
    COMMANDS.mkdir(exist_ok=True)
    context = click.Context(group, info_name="harness")
    names = group.list_commands(context)
    for name in names:
        command = group.get_command(context, name)
        assert command is not None
        _write(COMMANDS / f"{name}.md", command_page(name, command))
    entries = "\n".join(f"{name}" for name in names)
    text = f"# Commands\n\nThe help of every command.\n\n```{{toctree}}\n:maxdepth: 1\n\n{entries}\n```\n"
    _write(COMMANDS / "index.md", text)


def _write(file: Path, text: str) -> None:
    """An unchanged file keeps its time, so that its page is not built again."""
    if not file.is_file() or file.read_text() != text:
        file.write_text(text)


def setup(app: Any) -> None:
    app.connect("builder-inited", write_commands)
