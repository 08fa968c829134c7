"""One generic registry: names for things in files that the engine does not know.

Used for methods, spaces, data sets and all other kinds alike (`harness.components.registries` holds the
instances). A registry knows neither its contents nor where the files are. Its creator may pass a
callback that runs before every lookup and loads the components.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Generic, TypeVar, overload

from harness.components.conformity import check_component
from harness.errors import BrokenComponent, InvalidConfiguration, NameCollision, UnknownName
from harness.files import check_name

T = TypeVar("T")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """One name: where it was registered, its summary, and the thing itself (or where to import it from)."""

    name: str
    file: Path
    line: int
    module: str
    """The module that registered it, by its name in `sys.modules`."""
    package: str | None
    """The package that a relative `lazy` target starts from."""
    summary: str = ""
    lazy: str | None = None
    thing: T | None = None
    checked: bool = False
    """Whether the thing is known to fit its interface."""

    @property
    def origin(self) -> str:
        """The place of the registration, as `file:line`."""
        return f"{self.file}:{self.line}"


class Registry(Generic[T]):
    """Maps names to things of one kind.

    `before_lookup` runs before each `get`, `names`, `items` and `in`, never on registration: it may
    import files that register, and a nested call must return at once. `takes` names the arguments of a registered
    function, where that is known.
    """

    def __init__(
        self,
        kind: str,
        before_lookup: Callable[[], None] | None = None,
        why_missing: Callable[[str], Iterable[str]] | None = None,
        takes: tuple[str, ...] | None = None,
        parts: bool = False,
    ) -> None:
        """`why_missing` gives reasons why there may be no thing of a name: for messages. `parts`: names are
        several, joined by slashes."""
        self.kind, self.takes, self.parts = kind, takes, parts
        self.entries: dict[str, Entry[T]] = {}
        """The registrations so far; reading them does not call `before_lookup`."""
        self.collisions: dict[str, str] = {}
        """The names that two places have registered, each with the message: they are refused until one is renamed."""
        self._before_lookup = before_lookup or (lambda: None)
        self._why_missing = why_missing or (lambda name: ())

    @overload
    def register(self, name: str, *, summary: str = "", stacklevel: int = 1) -> Callable[[T], T]: ...

    @overload
    def register(self, name: str, *, lazy: str, summary: str = "", stacklevel: int = 1) -> None: ...

    def register(
        self, name: str, *, lazy: str | None = None, summary: str = "", stacklevel: int = 1
    ) -> Callable[[T], T] | None:
        """Register the decorated thing, or with `lazy="module:attribute"` one to import on first use.

        The summary is the thing's first docstring line unless given. A lazy module may be relative to
        the registering file's package (`".networks:Supernet"`). Raises `NameCollision` when another place
        has registered the name, which is refused from then on; the same place may register again (a file that is
        loaded twice).
        A function that registers for its caller says so with `stacklevel=2`.
        """
        if not isinstance(name, str) or not name:
            raise InvalidConfiguration(f'a {self.kind} is registered under a name: @register("name"), not @register')
        for part in name.split("/") if self.parts else [name]:
            check_name(self.kind, part)
        if lazy is not None and not all(lazy.partition(":")):
            raise InvalidConfiguration(f'{self.kind} {name!r}: lazy={lazy!r} is not "module:attribute"')
        entry = self._entry(name, sys._getframe(stacklevel))
        if lazy is not None:
            self.add(replace(entry, lazy=lazy, summary=summary))
            return None

        def add(thing: T) -> T:
            self.add(replace(entry, thing=thing, summary=summary or _first_line(thing)))
            return thing

        return add

    def get(self, name: str) -> T:
        """The thing of that name.

        Raises `UnknownName` with a suggestion and the known names, `NameCollision` for a name that two places have
        registered, and `InvalidConfiguration` for a class that does not fit its interface.
        """
        self._before_lookup()
        if name in self.collisions:
            raise NameCollision(self.collisions[name])
        if name not in self.entries:
            raise self.unknown(name)
        entry = self.entries[name]
        if entry.lazy is not None:
            entry = self.entries[name] = replace(entry, thing=_import(self.kind, entry), lazy=None)
        if not entry.checked:
            check_component(self.kind, name, entry.origin, entry.thing, self.takes)
            entry = self.entries[name] = replace(entry, checked=True)
        return entry.thing  # type: ignore[return-value]  # None is a thing only where T admits it

    def unknown(self, name: str) -> UnknownName:
        """The error for a name that is not registered."""
        return UnknownName.among(self.kind, name, self.entries).because(self._why_missing(name))

    def names(self) -> list[str]:
        """All names, sorted."""
        self._before_lookup()
        return sorted(self.entries)

    def items(self) -> list[tuple[str, Entry[T]]]:
        """All names with their entries, sorted; lazy targets are not imported."""
        self._before_lookup()
        return sorted(self.entries.items())

    def __contains__(self, name: object) -> bool:
        self._before_lookup()
        return name in self.entries

    def _entry(self, name: str, caller: FrameType) -> Entry[T]:
        # The caller's frame gives the line at no cost; a class's own line would need its source parsed.
        scope = caller.f_globals
        file = Path(caller.f_code.co_filename)
        return Entry(name, file, caller.f_lineno, scope.get("__name__", ""), scope.get("__package__"))

    def add(self, entry: Entry[T]) -> None:
        """Add an entry. Raises `NameCollision`, as `register` does."""
        known = self.entries.get(entry.name)
        if known is not None and (known.file, known.line) != (entry.file, entry.line):
            self.collisions[entry.name] = (
                f"two {self.kind} registrations are named {entry.name!r}: {known.origin} and {entry.origin}. "
                f"{_advice(known.file, entry.file)}"
            )
            raise NameCollision(self.collisions[entry.name])
        self.entries[entry.name] = entry


def _advice(first: Path, second: Path) -> str:
    """What to do about two registrations of one name."""
    if first.parts[-2:] == second.parts[-2:] and first != second:
        roots = [str(file.parents[1]) for file in (first, second)]
        return f"These are two copies of the project: {' and '.join(roots)}. Work in the one that is installed."
    return "Rename one of them."


def _import(kind: str, entry: Entry[T]) -> T:
    module, _, attribute = (entry.lazy or "").partition(":")
    try:
        found: T = getattr(importlib.import_module(module, entry.package), attribute)
    except (NameCollision, BrokenComponent):
        raise
    except (Exception, SystemExit) as error:
        broken = BrokenComponent.during_import(entry.file, error)
        broken.add_note(f"It is the target {entry.lazy!r} of the {kind} {entry.name!r}.")
        raise broken from error
    return found


def _first_line(thing: object) -> str:
    lines = (getattr(thing, "__doc__", None) or "").strip().splitlines()
    return lines[0].strip() if lines else ""
