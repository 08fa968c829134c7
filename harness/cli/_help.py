"""Help texts: options under headings, one example per command, commands in the order of work.

Plain click commands and options work beside these: what is unknown here comes last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

COMMANDS = {
    "Work": ("run", "plan", "status", "view", "show", "query", "report", "diff", "rerun"),
    "Components and diagnosis": ("init", "new", "check", "explain", "doctor"),
    "Many machines": ("worker", "submit", "cancel"),
    "Upkeep": ("store", "predictions", "data", "benchmark", "weights", "mongo"),
}
"""The commands in the order of work, by heading."""

BRIEF = ("Many machines", "Upkeep")
"""Headings whose commands only `--help --all` describes."""

OTHERS, SHOWN = "Others", "What is shown"
"""Headings of commands that are not known here, and of options about output."""

FEW = 8
"""Up to so many options stand under one heading."""


EVERYTHING = "harness.everything"
"""The key of a context's `meta` that says that the help is to show all: `--help --all`."""


def _asks_for_all(ctx: click.Context, args: list[str]) -> list[str]:
    """The arguments; where they are `--help --all`, without `--all`, which the context notes."""
    if "--all" in args and not {"--help", "-h"}.isdisjoint(args):
        ctx.meta[EVERYTHING] = True
        return [one for one in args if one != "--all"]
    return args


class Command(click.Command):
    """A command with an example. Its options stand under their headings, if they have any."""

    def __init__(self, *args: Any, example: str = "", **more: Any) -> None:
        super().__init__(*args, **more)
        self.example = example

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        from harness.settings import option_defaults

        return super().make_context(info_name, args, parent, **{"default_map": option_defaults(), **extra})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _asks_for_all(ctx, args))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        headings = {one: SHOWN if "--help" in one.opts else getattr(one, "heading", "") for one in options}
        many = len(options) > FEW
        brief = many and not ctx.meta.get(EVERYTHING)
        hidden = [one for one in options if brief and getattr(one, "more", False)]
        records: dict[str, list[tuple[str, str]]] = {}
        for one in options:
            if one not in hidden and (record := one.get_help_record(ctx)):
                heading = headings[one] if many and all(headings.values()) else "Options"
                records.setdefault(heading, []).append(record)
        for heading, shown in records.items():
            with formatter.section(heading):
                formatter.write_dl(shown)
        if hidden:
            formatter.write(f"\n`{ctx.command_path} --help --all` shows {len(hidden)} more options.\n")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        _show_example(self.example, formatter)


class Group(click.Group):
    """A group of such commands. The first sentence of each is shown whole."""

    command_class = Command

    def __init__(self, *args: Any, example: str = "", **more: Any) -> None:
        super().__init__(*args, **more)
        self.example = example

    def headings(self, names: list[str]) -> dict[str, list[str]]:
        """The commands by the heading that they stand under."""
        return {"Commands": names}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        texts = {name: one.get_short_help_str(limit=1000) for name, one in found.items() if one and not one.hidden}
        brief = [] if ctx.meta.get(EVERYTHING) else BRIEF
        headings = self.headings(list(texts))
        width = max(len(name) for heading, names in headings.items() if heading not in brief for name in names)
        for heading, names in headings.items():
            if heading not in brief:
                with formatter.section(heading):
                    formatter.write_dl([(f"{name:{width}}", texts[name]) for name in names])
        if named := [(heading, ", ".join(headings[heading])) for heading in brief if heading in headings]:
            with formatter.section(f"More, described by `{ctx.command_path} --help --all`"):
                formatter.write_dl(named)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        _show_example(self.example, formatter)


class MainGroup(Group):
    """The commands of the program, in the order of work. Of those that few people need daily, it shows the names."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        of_group = all(one.startswith("-") for one in args)
        return super().parse_args(ctx, _asks_for_all(ctx, args) if of_group else args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if ctx.meta.get(EVERYTHING):
            super().format_options(ctx, formatter)
        else:
            self.format_commands(ctx, formatter)

    def headings(self, names: list[str]) -> dict[str, list[str]]:
        return _under(COMMANDS, names)


def _under(headings: Mapping[str, tuple[str, ...]], names: Iterable[str]) -> dict[str, list[str]]:
    """Names by heading, in the order of the headings; what has none comes last."""
    left = list(names)
    found = {heading: [name for name in known if name in left] for heading, known in headings.items()}
    found[OTHERS] = [name for name in left if not any(name in known for known in headings.values())]
    return {heading: names for heading, names in found.items() if names}


def _show_example(example: str, formatter: click.HelpFormatter) -> None:
    """A command line as it is typed: it is not wrapped."""
    if example:
        with formatter.section("Example"):
            formatter.write(f"{'':>{formatter.current_indent}}{example}\n")
