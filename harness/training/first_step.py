"""What a method gives is checked in its first step: the paths that it trains, and what its step returns.

Each message names the method's own function, its file and line, and what is expected. Paths are checked in the first
step of each process only, so that later steps cost nothing more.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

from torch import Tensor

from harness.components.method import Method, Part, Step
from harness.components.space import Space
from harness.data.loader import Batch
from harness.errors import InvalidConfiguration


class WrongPath(InvalidConfiguration):
    """A path that cannot be trained. Whoever knows the method says whose it is."""


def check_paths(space: Space, part: Part, paths: Any) -> None:
    """Raise `WrongPath` unless these are paths of that part of the space: a list of tuples of whole numbers."""
    if not isinstance(paths, Sequence) or isinstance(paths, str):
        raise WrongPath(f"gave {_kind(paths)}; expected is a list of paths, each {_expected(space)}")
    if not paths:
        raise WrongPath("gave no path; a step trains at least one")
    if all(isinstance(one, Integral) for one in paths):
        raise WrongPath(f"gave the path {paths}; expected is a list of paths: put it into a list, [path]")
    for path in paths:
        check_path(space, path)
        if path not in part:
            raise WrongPath(
                f"gave the path {path}, which is not in the part of {space.name} that this supernet covers ({part}): "
                "draw with training.draw(n), or keep to training.part"
            )


def check_path(space: Space, path: Any) -> None:
    """Raise `WrongPath` unless this is an architecture of the space, as a tuple of whole numbers."""
    if not isinstance(path, tuple):
        advice = ": write tuple(map(int, path))" if isinstance(path, Iterable) else ""
        raise WrongPath(f"gave the path {path}, which is {_kind(path)}; a path is {_expected(space)}{advice}")
    for choice in path:
        if not isinstance(choice, int) or isinstance(choice, bool):
            advice = f": write int({choice})" if isinstance(choice, Integral) else ""
            raise WrongPath(f"gave the path {path} with {_kind(choice)} in it; a path is {_expected(space)}{advice}")
    try:
        space.check(path)
    except InvalidConfiguration as error:
        raise WrongPath(f"gave a path that is not one of {space.name}: {error}") from error


def is_discrete(path: Any) -> bool:
    """Whether this is meant as a path: networks may also take learnt weights of choices."""
    return isinstance(path, tuple | list) and all(isinstance(choice, Integral) for choice in path)


def checked(method: Method, space: Space, batch: Batch, given: Any) -> Step:
    """What a step returned, as a `Step`. Raises `InvalidConfiguration` unless it is one loss per path."""
    losses = given.losses if isinstance(given, Step) else given
    if not isinstance(losses, Tensor) or losses.dim() != 1:
        raise InvalidConfiguration(f"{whose(method, 'train_step')} {_not_losses(losses)}")
    found = len(losses)
    if found != (expected := method.paths_per_step(space)) and not method.paths_vary:
        what = "paths" if _default_step(method) else "losses"
        raise InvalidConfiguration(
            f"{whose(method)} gave {found} {what}, but paths_per_step is {expected}: methods that are compared at "
            "equal passes would not get equal passes. Return the right number from paths_per_step, or set "
            "`paths_vary = True` in the class"
        )
    return given if isinstance(given, Step) else Step(losses, found, found * len(batch.labels))


def whose(method: Method, name: str = "") -> str:
    """The method's own function of a step, with file and line: "Mine.paths (methods/mine.py:9)"."""
    name = name or ("paths" if _default_step(method) else "train_step")
    code = getattr(inspect.unwrap(getattr(type(method), name)), "__code__", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return f"{type(method).__name__}.{name}{place}"


def _default_step(method: Method) -> bool:
    return type(method).train_step is Method.train_step


def _expected(space: Space) -> str:
    return f"a tuple of {len(space.choices)} whole numbers, one per decision of {space.name}"


def _not_losses(given: Any) -> str:
    expected = "expected is a tensor with one loss per path, or a Step with it"
    if given is None:
        return f"returned nothing; {expected}: did you forget `return training.descend(batch, paths, step)`?"
    if isinstance(given, Tensor):
        advice = ": write loss.detach().reshape(1)" if not given.dim() else ""
        return f"returned a tensor of shape {tuple(given.shape)}; {expected}{advice}"
    return f"returned {_kind(given)}; {expected}: write torch.stack(losses).detach()"


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
