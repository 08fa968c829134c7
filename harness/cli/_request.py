"""Shared by `run`, `plan`, `status` and others: the selection of studies and trials."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click

from harness.cli._completion import AFTER_WITH, conditions, presets, studies
from harness.cli._help import Command
from harness.cli._options import COUNT, WHAT, Option, argument, option, shared
from harness.errors import MOST, DataError, UserError

if TYPE_CHECKING:
    from pathlib import Path

    from harness.stores.places import Places
    from harness.stores.store import Store
    from harness.stores.stored import StoredRun
    from harness.study.edits import Edit
    from harness.study.study import Study
    from harness.work.plan import Asked, Plan

WEIGHTS = "train.weights"
NAME = r"[\w.-]+-[0-9a-f]{12}"
"""What the names of weights are like; anything else is a run."""

F = TypeVar("F", bound=Callable[..., Any])


class WithUpdates(Command):
    """A command that takes overrides after `with`, as its argument `updates`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        split = args.index("with") if "with" in args else len(args)
        if any(one.partition("=")[0] == "--with" for one in args[:split]):
            raise UserError("overrides follow the word `with`, without dashes: `… with train.epochs=10`")
        ctx.params["updates"] = tuple(args[split + 1 :])
        ctx.meta[AFTER_WITH] = split < len(args)
        return super().parse_args(ctx, args[:split])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[with KEY=VALUE…]"]


class PresetOption(Option):
    """An option whose help names the presets. Their files are read only when the help is shown."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        from harness.components.preset import quick_summaries

        record = super().get_help_record(ctx)
        return record and (record[0], f"{record[1]}  [presets: {', '.join(quick_summaries())}]")


def preset_option(command: F) -> F:
    """Add `--preset`; it defaults to the name of the default preset."""

    def resolve(context: click.Context, option: click.Parameter, value: str | None) -> str:
        if context.resilient_parsing:  # the shell asks for completions
            return value or ""
        from harness.components.preset import default_preset
        from harness.settings import settings

        return value or settings().get("preset") or default_preset().name

    return click.option(
        "--preset",
        cls=PresetOption,
        heading=WHAT,
        metavar="P",
        callback=resolve,
        help="Preset (the scale).  [default: demo, or your own default]",
        shell_complete=presets,
    )(command)


def with_preset(studies: list[Study], preset: str) -> list[Study]:
    """The studies whose space has the preset; a line is printed for each study that is left out.

    Raises `UnknownName` when no study is left.
    """
    from harness.components.preset import get_preset, presets_of

    kept = [study for study in studies if preset in presets_of(study.about)]
    if not kept:
        get_preset(preset, studies[0].about if studies else None)
    for study in studies:
        if study not in kept:
            has = ", ".join(presets_of(study.about))
            click.echo(f"left out: {study.name}; {study.about} has no preset {preset!r}, only {has}", err=True)
    return kept


def expandable(studies: list[Study], preset: str) -> list[Study]:
    """The studies that can be expanded; a line is printed for each other. For commands that name no study.

    A study cannot be expanded if it names a component that does not exist, as when the component's file is broken.
    """
    from harness.components.preset import get_preset
    from harness.study.expansion import expand

    kept, refused = [], LeftOut()
    for study in studies:
        try:
            expand(study, get_preset(preset, study.about), 1)
        except DataError:  # missing files are another matter: told where they are needed
            kept.append(study)
        except UserError as error:
            refused.add(study, error)
        else:
            kept.append(study)
    refused.tell()
    return kept


class LeftOut:
    """Studies that are left out, by the reason."""

    def __init__(self) -> None:
        self._names: dict[str, list[str]] = {}

    def add(self, study: Study, error: UserError) -> None:
        self._names.setdefault(" ".join(str(error).split()), []).append(study.name)

    def tell(self) -> None:
        """Print them, a line per reason."""
        for reason, names in self._names.items():
            which = f"study {names[0]} is" if len(names) == 1 else f"studies {', '.join(names)} are"
            click.echo(f"warning: {which} left out: {reason}", err=True)


@dataclass(frozen=True)
class Request:
    """Which trials of which studies."""

    HEADING: ClassVar[str] = WHAT

    names: tuple[str, ...] = argument(metavar="[STUDY]...", nargs=-1, shell_complete=studies)
    everything: bool = option("--all", "All studies, without those that only their name runs.", is_flag=True)
    preset: str = shared(preset_option)
    seeds: int | None = option("--seeds", "Seeds, from 0 on.  [default: the preset's]", COUNT, "N")
    only: tuple[str, ...] = option(
        "--only",
        "Only trials with these values: train.epochs=20,seed=0.",
        None,
        "KEY=VALUE,…",
        multiple=True,
        shell_complete=conditions,
    )
    printed: bool = option("--printed", "Only the rows and data sets that the paper prints.", is_flag=True, more=True)
    updates: tuple[str, ...] = ()
    """The overrides after `with`."""

    def asked(self, store: Places) -> Asked:
        """The studies and trials that these options select. Raises `UserError` for none."""
        from harness.components.discovery import component
        from harness.study.overrides import parse_only, parse_updates
        from harness.work.plan import Asked

        overrides, chosen = with_named_weights(parse_updates(self.updates), store.open), parse_only(self.only)
        studies = with_preset(chosen_studies(self.names, self.everything), self.preset)
        studies = expandable(studies, self.preset) if self.everything else studies
        keep = None
        if self.printed:
            keep = component("reports.paper.printed").is_printed
            studies = [study for study in studies if component("reports.paper.printed").has_printed(study)]
            if not studies:
                raise UserError("the paper prints nothing of these studies; leave out --printed")
        return Asked(studies, self.preset, self.seeds, overrides, chosen, keep)


def with_named_weights(overrides: dict[str, Any], open_store: Callable[[], Store]) -> dict[str, Any]:
    """The overrides, with the id of a run as `train.weights` replaced by the name of its weights.

    They are copied to the folder of weights under the beginning of their checksum, which is part of a trial's identity.
    """
    run = overrides.get(WEIGHTS)
    run = str(run) if isinstance(run, int) else run  # the first digits of an id may be a number
    if not isinstance(run, str) or re.fullmatch(NAME, run):
        return overrides
    import hashlib

    from harness.data.places import weights_folder
    from harness.files import write
    from harness.stores.directory.run_directory import WEIGHTS as FILE

    store = open_store()
    content = store.read(store.find(run), FILE)
    name = f"run-{hashlib.sha256(content).hexdigest()[:12]}"
    file = weights_folder() / f"{name}.pt"
    if not file.exists():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write(file, lambda opened: opened.write(content))
        except OSError as error:
            raise UserError(f"cannot write {file}: {error.strerror or error}") from error
    return {**overrides, WEIGHTS: name}


def chosen_studies(names: tuple[str, ...], everything: bool) -> list[Study]:
    """The selected studies, each once. Raises `UserError` when none is named."""
    from harness.components.discovery import study_files
    from harness.study.catalogue import all_studies, locate, namesakes

    if overrides := [name for name in names if "=" in name and not name.endswith(".py")]:
        shown = " ".join([*(name for name in names if name not in overrides), "with", *overrides])
        raise UserError(f"{overrides[0]!r} is an override, not a study: put `with` before it, as in `{shown}`")
    if everything and names:
        raise UserError("either name studies or use --all, not both")
    if not everything and not names:
        # The user's come last in discovery, and first here: of the project's, a few are enough.
        files = [file.parent.name if file.name == "__init__.py" else file.stem for file in reversed(study_files())]
        more = f" and {len(files) - MOST} more: `harness explain studies`" if len(files) > MOST else ""
        raise UserError(
            f"name a study, by file or by name, or use --all. Known: {', '.join(files[:MOST]) or 'none'}{more}"
        )
    if everything:
        return [study for study in all_studies() if not study.by_name_only]
    found = [one for name in names for one in locate(name)]
    studies: dict[str, tuple[Study, Path]] = {}
    for study, file in found:
        first, place = studies.setdefault(study.name, (study, file))
        if first is not study:
            raise UserError(f"two different studies are both named {study.name!r}: {place} and {file}; rename one")
    for line in dict.fromkeys(namesakes(found)):
        click.echo(line, err=True)
    return [study for study, _ in studies.values()]


def edits_since(plans: Iterable[Plan], runs: Callable[[], Sequence[StoredRun]]) -> list[Edit]:
    """The files of the user's that have changed since runs were made that would answer these plans."""
    from harness.study.edits import edits

    return edits((request for plan in plans for work in plan.work for request in work.requests), runs)


def tell_edits(found: Iterable[Edit]) -> None:
    """Print these edits, each once, with what to do."""
    for told, edit in {str(edit): edit for edit in found}.items():
        click.echo(told, err=True)
        click.echo(f"  the change: harness diff --code {edit.runs[-1].id}", err=True)
        click.echo(f'  if it changes no result: harness store accept {edit.file} --reason "…"', err=True)
