"""Whether a component fits its interface, checked before anything runs. Imports nothing heavy.

Python finds these mistakes late, deep in the engine and in its own words: a misspelt hook is never called, a hook with
another signature fails in the first step, an option without `@dataclass(frozen=True)` does not exist. A registry looks
here when a component is first used, so that a mistake in one component does not stop commands that need others.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from harness.errors import InvalidConfiguration, did_you_mean

INTERFACES = "harness.components."
"""The modules whose classes are interfaces."""

NO_OPTIONS = ("version",)
"""Attributes that the engine reads and that are not options."""

Problem = tuple[str, str]
"""Its place, empty for that of the registration, and what is wrong."""

_ALSO = {"draw": 2, "learn": 2}
"""Further numbers of arguments that the engine accepts."""


def check_component(kind: str, name: str, origin: str, thing: object, takes: Sequence[str] | None = None) -> None:
    """Raise `InvalidConfiguration` for a class that does not fit the interface that it derives from.

    The message begins with the file and line. A function is checked only if it is known what it `takes`.
    """
    if inspect.isfunction(thing) and takes is not None and not _accepts(thing, len(takes)):
        wanted = f"def {thing.__name__}({', '.join(takes)})"
        raise InvalidConfiguration(
            f"{place(thing, origin)}: the {kind} {name!r} is called with {_counted(len(takes))}: write `{wanted}`, not "
            f"`def {thing.__name__}{_shown(thing)}`"
        )
    interface = interface_of(thing)
    if interface is None or not isinstance(thing, type):
        return
    about = f"{kind} {name!r} ({thing.__name__})"
    found = itertools.chain(_missing(thing, interface), _undecorated(thing, interface), _signatures(thing, interface))
    for where, text in found:
        raise InvalidConfiguration(f"{where or origin}: {about} {text}")


def interface_of(thing: object) -> type | None:
    """The nearest interface that a class derives from; None for anything else."""
    if not isinstance(thing, type):
        return None
    bases = (base for base in thing.__mro__[1:] if base.__module__.startswith(INTERFACES))
    return next(bases, None)


def hooks(interface: type) -> dict[str, Callable[..., Any]]:
    """The public functions of an interface, by name."""
    named = ((name, inspect.getattr_static(interface, name)) for name in dir(interface) if not name.startswith("_"))
    return {name: hook for name, hook in named if inspect.isfunction(hook)}


def misspelt(thing: type, interface: type) -> Iterator[tuple[str, str, str]]:
    """Functions of a class that look like hooks of its interface with a mistake in the name.

    Each with its place, its name, and the hook's. None of them need be a mistake.
    """
    known = hooks(interface)
    own = _own_functions(thing, interface)
    for name, function in own.items():
        near = did_you_mean(name, [hook for hook in known if hook not in own], strict=True)
        if name not in known and near:
            yield place(function, ""), name, near


def place(function: Any, otherwise: str) -> str:
    """The file and line of a function."""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return f"{code.co_filename}:{code.co_firstlineno}" if code else otherwise


def _missing(thing: type, interface: type) -> Iterator[Problem]:
    """Abstract methods that are not there, a choice of hooks of which none is, attributes without a value."""
    own = _own_functions(thing, interface)
    one_of: tuple[str, ...] = getattr(interface, "one_of", ())
    wanted = [[name] for name in sorted(getattr(thing, "__abstractmethods__", ()))]
    if one_of and not any(getattr(thing, name) is not getattr(interface, name) for name in one_of):
        wanted.append(list(one_of))
    for names in wanted:
        what = f"has no `{names[0]}`" if len(names) == 1 else f"defines neither `{'` nor `'.join(names)}`"
        for name in names:
            if near := did_you_mean(name, [other for other in own if other not in hooks(interface)]):
                advice = f"did you mean `{name}` by `{near}`? Write {_asked(interface, name)}"
                yield place(own[near], ""), f"{what}; {advice}"
        yield "", f"{what}: write {_asked(interface, names[0])}"
    if not dataclasses.is_dataclass(interface) and thing.__init__ is interface.__init__:  # type: ignore[misc]
        for name in inspect.get_annotations(interface):
            if not hasattr(thing, name):
                yield "", f"has no `{name}`, an attribute that every {interface.__name__} has; see {_home(interface)}"


def _undecorated(thing: type, interface: type) -> Iterator[Problem]:
    """Options of a class that is not a dataclass itself: they would not exist."""
    if not dataclasses.is_dataclass(interface) or "__dataclass_fields__" in vars(thing):
        return
    fields = {field.name for field in dataclasses.fields(interface)}
    options = [
        name
        for name, kind in inspect.get_annotations(thing).items()
        if "ClassVar" not in str(kind) and name not in NO_OPTIONS and (name in fields or not hasattr(interface, name))
    ]
    if options:
        what = "the option" if len(options) == 1 else "the options"
        yield (
            "",
            f"has {what} {', '.join(options)}, but is not a dataclass: put @dataclass(frozen=True) above the class, "
            "below the line that registers it",
        )


def _signatures(thing: type, interface: type) -> Iterator[Problem]:
    """Hooks that cannot be called as the engine calls them."""
    for name, hook in hooks(interface).items():
        own = inspect.getattr_static(thing, name)
        if own is hook:
            continue
        function = getattr(thing, name)
        if not callable(function):
            yield "", f"has a `{name}` that is not a function: write {_asked(interface, name)}"
            continue
        bound = 0 if isinstance(own, staticmethod | classmethod) else 1
        count = len(inspect.signature(hook).parameters) - 1
        if not any(_accepts(function, bound + number) for number in {count, _ALSO.get(name, count)}):
            what = f"`{name}{_shown(function)}`, which cannot be called as {interface.__name__}.{name} is"
            yield place(function, ""), f"has {what}: write {_asked(interface, name)}"


def _own_functions(thing: type, interface: type) -> dict[str, Any]:
    """The public functions that the class and the bases before its interface define."""
    bases = thing.__mro__[: thing.__mro__.index(interface)]
    named = {name: own for base in reversed(bases) for name, own in vars(base).items() if not name.startswith("_")}
    return {name: own for name, own in named.items() if inspect.isfunction(own)}


def _accepts(function: Any, count: int) -> bool:
    """Whether a function can be called with so many positional arguments."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a function of C without a signature
        return True
    return True


def _asked(interface: type, name: str) -> str:
    return f"`def {name}{_shown(getattr(interface, name))}`, as in {_home(interface)}"


def _home(interface: type) -> str:
    """The file of an interface, as documents name it."""
    return interface.__module__.replace(".", "/") + ".py"


def _shown(function: Any) -> str:
    """A signature without types."""
    signature = inspect.signature(function)
    plain = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))


def _counted(count: int) -> str:
    return "no arguments" if count == 0 else f"{count} arguments"
