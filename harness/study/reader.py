"""Reads dataclasses from plain JSON types. Every mistake is an error that says where it is and what is allowed.

Components (method, schedule, cluster rule, sampler) are named, with their options beside the name; the options are the
fields of the component's dataclass, so a new component needs no edit here. Knows no particular section.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from harness.components.option import document as document_of
from harness.components.registry import Registry
from harness.errors import InvalidConfiguration, UserError, did_you_mean
from harness.errors import require as require

T = TypeVar("T")


LARGEST = 2**63 - 1
"""The largest whole number that databases can keep and arrays can count to."""


@dataclass(frozen=True)
class Component:
    """A component by name, with its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def build(self, registry: Registry[Any], where: str) -> Any:
        """The component itself. Raises `UnknownName` or `InvalidConfiguration`."""
        component = registry.get(self.name)
        if not (isinstance(component, type) and dataclasses.is_dataclass(component)):
            raise InvalidConfiguration(
                f"{registry.kind} {self.name!r} ({registry.entries[self.name].origin}) is not a dataclass, so its "
                "options are unknown: derive it from its interface in harness/components, with @dataclass(frozen=True)"
            )
        for option in self.options:
            if option not in component.__dataclass_fields__:
                raise unknown_option(f"{where}.{option}", option, [(registry, self.name)])
        return read(component, dict(self.options), where)

    def __getattr__(self, option: str) -> Any:
        """An option as an attribute: `config.optimiser.learning_rate`."""
        options = self.__dict__.get("options", {})
        if option in options:
            return options[option]
        raise AttributeError(f"{type(self).__name__} has no attribute or option {option!r}")


def read(cls: type[T], document: object, where: str) -> T:
    """A dataclass from plain JSON types. Raises `InvalidConfiguration` on any key or type that does not fit."""
    if not isinstance(document, Mapping):
        raise InvalidConfiguration(f"{where or 'the configuration'} must be a set of keys, not {document!r}")
    kinds = hints(cls)
    allowed = [f.name for f in dataclasses.fields(cls) if f.init]  # type: ignore[arg-type]
    for key in document:
        if key not in allowed:
            raise _unknown_key(f"{where}.{key}" if where else str(key), key, allowed)
    for option in dataclasses.fields(cls):  # type: ignore[arg-type]
        required = option.default is dataclasses.MISSING and option.default_factory is dataclasses.MISSING
        if option.init and required and option.name not in document:
            key = f"{where}.{option.name}" if where else option.name
            raise InvalidConfiguration(f"{key} is missing: it has no default, so give it a value")
    values = {
        key: as_type(kinds[key], value, f"{where}.{key}" if where else str(key)) for key, value in document.items()
    }
    return cls(**values)


hints: Callable[[type], dict[str, Any]] = functools.cache(get_type_hints)


def unknown_option(path: str, option: str, components: Iterable[tuple[Registry[Any], str]]) -> InvalidConfiguration:
    """The error for an option that none of these components has: each with its place and the options that it has."""
    have, known, advice = [], [], ""
    for registry, name in components:
        component = registry.get(name)
        options = [field.name for field in dataclasses.fields(component) if field.init]
        known += options
        origin = registry.entries[name].origin
        have.append(f"{', '.join(options) or 'none'} (the options of {registry.kind} {name!r}, {origin})")
        if hasattr(component, option) and not callable(getattr(component, option)):
            advice = f". Its attribute {option} has no type and so is not an option: write `{option}: TYPE = …`"
    near = did_you_mean(option, known)
    suggestion = f"; did you mean {near!r}?" if near else "."
    return InvalidConfiguration(f"no configuration key {path!r}{suggestion} Allowed: {'; '.join(have)}{advice}")


def _unknown_key(path: str, key: object, allowed: list[str]) -> UserError:
    near = did_you_mean(str(key), allowed)
    suggestion = f"; did you mean {near!r}?" if near else "."
    return InvalidConfiguration(f"no configuration key {path!r}{suggestion} Allowed: {', '.join(allowed)}")


def as_type(kind: Any, value: Any, where: str) -> Any:
    """`value` as the type `kind`, or an error."""
    if kind is Any:  # read later, by what else the configuration says
        return value
    if kind is Component:
        return as_component(value, where)
    if dataclasses.is_dataclass(kind):
        return value if isinstance(value, kind) else read(kind, value, where)  # type: ignore[arg-type]
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        kinds = [other for other in get_args(kind) if other is not type(None)]
        if value is None and len(kinds) < len(get_args(kind)):
            return None
        return as_type(kinds[0], value, where) if len(kinds) == 1 else value
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(as_type(get_args(kind)[0], item, where) for item in value)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not abs(value) <= sys.float_info.max:  # an integer can exceed all floats, too
            raise InvalidConfiguration(f"{where} must be a finite number, not {value!r}")
        return float(value) + 0.0  # -0.0 is 0.0
    if isinstance(value, int) and abs(value) > LARGEST:
        raise InvalidConfiguration(f"{where} is too large a number; allowed: up to {LARGEST:,}")
    fits = isinstance(value, typing.cast(type, origin or kind)) and not (isinstance(value, bool) and kind is not bool)
    if not fits:
        name = getattr(origin or kind, "__name__", str(kind))
        raise InvalidConfiguration(f"{where} must be of type {name}, not {value!r}")
    return value


def as_component(value: Any, where: str) -> Component:
    if isinstance(value, Component):
        return value
    if isinstance(value, str):
        return Component(value)
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return Component(value["name"], {key: option for key, option in value.items() if key != "name"})
    raise InvalidConfiguration(f"{where} must be a name, or keys with a name and its options, not {value!r}")


def complete(components: tuple[Component, ...], registry: Registry[Any], where: str) -> tuple[Component, ...]:
    """The components with all their options, checked."""
    return tuple(Component(one.name, document_of(one.build(registry, where))) for one in components)


def require_precision(value: str, where: str) -> None:
    """Raise `InvalidConfiguration` unless the value names a number format of passes."""
    allowed = ("float32", "bfloat16", "float16")
    require(value in allowed, f"{where} is {value!r}; allowed: {', '.join(allowed)}")
