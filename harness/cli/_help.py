"""Help texts: options under headings, one example per command, commands in the order of work.

Plain click commands and options work beside these: what is unknown here comes last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

COMMANDS = {
    "Work": ("run", "plan", "status", "view", "show", "query", "report", "diff", "rerun"),
    "Many machines": ("worker", "submit", "cancel"),
    "Components and diagnosis": ("init", "check", "new", "list", "explain", "doctor"),
    "Upkeep": ("store", "predictions", "data", "benchmark", "weights", "mongo"),
}
"""The commands in the order of work, by heading."""

OPTIONS = {
    "What to run or read": (
        *("everything", "study", "preset", "seeds", "printed", "only", "where", "retry"),
        *("until", "power", "effects", "margins", "max_seeds", "hours"),
        *("no_references", "references_only", "again", "all_attempts"),
    ),
    "How": (
        *("jobs", "threads", "device", "per_device", "ranks"),
        *("timeout", "compiled", "profile", "no_wait", "calibration", "devices", "price"),
    ),
    "Ray": ("executor", "ray_address", "cpus_per_trial", "gpus_per_trial"),
    "Workers and SLURM": ("given", "workers", "dry_run", "deadline", "requeue", "needs", "new_files"),
    "Store and database": ("store", "mongo", "mongo_file", "offline", "outage_wait", "mirror_weights_max"),
    "Checkpoints and claims": ("work", "checkpoint_every", "lease"),
    "What is shown": (
        "form",
        "columns",
        "references",
        "compare",
        "verdicts",
        "strict",
        "figures",
        "out",
        "notify",
        "quiet",
        "help",
    ),
}
"""The options of commands that are about stored runs, by heading; those of no heading come last."""

OTHERS = "Others"


class Command(click.Command):
    """A command with an example. If it is about stored runs and has many options, they stand under headings."""

    FEW = 8
    """Up to so many options stand under one heading."""

    def __init__(self, *args: Any, example: str = "", **more: Any) -> None:
        super().__init__(*args, **more)
        self.example = example

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        from harness.settings import option_defaults

        return super().make_context(info_name, args, parent, **{"default_map": option_defaults(), **extra})

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        named = {"help" if "--help" in one.opts else str(one.name): one for one in options}
        records = {name: record for name, one in named.items() if (record := one.get_help_record(ctx)) is not None}
        many = "store" in records and len(records) > self.FEW
        headings = _under(OPTIONS, records) if many else {"Options": list(records)}
        for heading, names in headings.items():
            with formatter.section(heading):
                formatter.write_dl([records[name] for name in names])

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
        width = max(map(len, texts), default=0)
        for heading, names in self.headings(list(texts)).items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:{width}}", texts[name]) for name in names])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        _show_example(self.example, formatter)


class MainGroup(Group):
    """The commands of the program, in the order of work."""

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
