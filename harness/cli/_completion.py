"""Completion of studies, presets, runs and configuration keys in the shell: quick, silent whatever happens, and
without running any code of the current folder. Names of studies and presets there are read from the files."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import click
from click.shell_completion import CompletionItem

VARIABLE = "_HARNESS_COMPLETE"
"""Set by the shell's completion script."""

AFTER_WITH = "harness.after_with"
"""The key of a context's `meta` that says that the word `with` was given."""

Complete = Callable[[click.Context, str], Iterable[CompletionItem]]


def _silent(complete: Complete) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """The completions that begin with what was typed; none if anything goes wrong. Prints nothing."""

    @wraps(complete)
    def silent(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
        from harness.components.discovery import users_code_left_out

        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                with users_code_left_out():
                    found = list(complete(context, typed))
            except (Exception, SystemExit):  # such as a store that cannot be read
                return []
        return [item for item in found if item.type != "plain" or str(item.value).startswith(typed)]

    return silent


@_silent
def studies(context: click.Context, typed: str) -> Iterable[CompletionItem]:
    """Known studies and files; after `with`, configuration keys."""
    from harness.components.discovery import study_files

    if context.meta.get(AFTER_WITH):
        return [CompletionItem(f"{key}=") for key in _keys()]
    if "/" in typed or typed.startswith("."):
        return [CompletionItem(typed, type="file")]
    files = study_files()
    return [CompletionItem(file.parent.name if file.name == "__init__.py" else file.stem) for file in files]


@_silent
def presets(context: click.Context, typed: str) -> Iterable[CompletionItem]:
    """The presets of all spaces."""
    from harness.components.preset import quick_summaries

    return [CompletionItem(name, help=summary) for name, summary in quick_summaries().items()]


@_silent
def formats(context: click.Context, typed: str) -> Iterable[CompletionItem]:
    """The formats of reports."""
    from harness.components.registries import RENDERERS

    return [CompletionItem(name, help=entry.summary) for name, entry in RENDERERS.items()]


@_silent
def runs(context: click.Context, typed: str) -> Iterable[CompletionItem]:
    """The runs in the directory."""
    from harness.stores.directory.store import DirectoryStore
    from harness.stores.places import Places, places

    given = context.params.get("store")
    place = given if isinstance(given, Places) else places()
    return [CompletionItem(name) for name in sorted(DirectoryStore(place.directory).ids())]


@_silent
def conditions(context: click.Context, typed: str) -> Iterable[CompletionItem]:
    """Configuration keys, one after the other: KEY=VALUE,KEY=VALUE."""
    before = typed[: typed.rfind(",") + 1]
    return [CompletionItem(f"{before}{key}=") for key in _keys()]


def _keys() -> list[str]:
    """All configuration keys, with the options of all components that ship with the harness."""
    from harness.components.registries import SEARCHES
    from harness.documents import flatten
    from harness.study.configuration import COMPONENTS, Retraining, RunConfig, with_names

    keys = set(flatten(with_names(RunConfig(retrain=Retraining()).json())))
    for section, registry in {**COMPONENTS, "search": SEARCHES}.items():
        options: set[str] = {"name"}
        for name in registry.names():
            component: Any = registry.get(name)
            options |= set(getattr(component, "__dataclass_fields__", {}))
        keys |= {f"{section}.{option}" for option in options}
    return sorted(keys)
