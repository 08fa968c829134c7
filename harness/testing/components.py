"""The contract of every kind of component: tries a component as a trial would use it. Stores nothing.

`harness check` prints the findings about a file or a name, and a test class that derives from `ComponentSuite` asserts
that there is no problem.

Knows no particular component. Each kind has one function; those that take part in training are then trained with.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.components.benchmark import open_benchmark
from harness.components.clustering import Clustering
from harness.components.conformity import interface_of, misspelt
from harness.components.dataset import DataSet
from harness.components.discovery import load_file
from harness.components.method import Part, check_clusters, sampler_of
from harness.components.proxy import NotApplicable
from harness.components.registries import REGISTRIES, SPACES
from harness.components.registry import Entry
from harness.components.sampler import informed
from harness.errors import BrokenComponent, DataError, InvalidConfiguration, NameCollision, UnknownName, UserError
from harness.study.catalogue import find_studies, studies_in
from harness.study.configuration import COMPONENTS, RunConfig
from harness.testing.datasets import check_images
from harness.testing.spaces import DRAWN, check_architectures, check_networks
from harness.testing.studies import check_preset, check_study
from harness.testing.training import CPU, EPOCHS, Tried, check_training, few_images, tiny_config
from harness.training.cost import Meter
from harness.training.proxies import ProxyScene, as_predictions
from harness.training.stages.search import Scorer, search
from harness.training.stages.train import Progress
from harness.work.findings import Checks, Unfit

Overrides = Mapping[str, Any]


def check_named(name: str, overrides: Overrides, gpu: bool = False) -> Iterator[Checks]:
    """The findings of a file or of a registered name, one component after the other; by `gpu` on an emulated GPU, too.

    Raises `UserError` for a file that does not exist, and for a name that nothing has.
    """
    path = Path(name)
    if path.is_dir() and not (path / "__init__.py").is_file():
        for file in sorted(path.glob("[!_.]*.py")):
            yield from _in_file(file, overrides, gpu)
        return
    if name.endswith(".py") or path.name != name or path.is_dir():
        yield from _in_file(path, overrides, gpu)
        return
    found = [
        (kind, entry) for kind, registry in REGISTRIES.items() for known, entry in registry.items() if known == name
    ]
    for kind, entry in found:
        yield checked(kind, entry, overrides, gpu)
    if not found:
        known = {other for registry in REGISTRIES.values() for other in registry.names()}
        try:
            studies = find_studies(name)
        except UnknownName as error:
            raise UnknownName.among("component or study", name, known) from error
        for study in studies:
            yield _study(study, name, overrides)


def _in_file(path: Path, overrides: Overrides, gpu: bool) -> Iterator[Checks]:
    file = path / "__init__.py" if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"there is no file {path}")
    about = Checks(shown(file.resolve()), shown(file.resolve()))
    try:
        module = load_file(file)
    except (BrokenComponent, NameCollision) as error:
        about.problem(f"imports: {about.explained(error)}")
        yield about
        return
    inside = file.resolve().parent if file.name == "__init__.py" else file.resolve()
    entries = [
        (kind, entry)
        for kind, registry in REGISTRIES.items()
        for _, entry in registry.items()
        if entry.file.resolve().is_relative_to(inside)
    ]
    for kind, entry in entries:
        yield checked(kind, entry, overrides, gpu)
    if hasattr(module, "study") or hasattr(module, "studies"):
        with about.check("holds studies whose metrics exist"):
            studies = studies_in(file)
        if about.problems:
            yield about
            return
        for study in studies:
            yield _study(study, shown(file.resolve()), overrides)
    elif not entries:
        about.problem(f"{about.origin}: it registers nothing and holds no study. {_forgotten(module)}")
        yield about


def _forgotten(module: Any) -> str:
    """What to do about a file that registers nothing: the class that was meant, if there is one."""
    for name, thing in vars(module).items():
        if getattr(thing, "__module__", "") == module.__name__ and (interface := interface_of(thing)) is not None:
            return f'{name} derives from {interface.__name__}: put @REGISTRY.register("NAME") above it'
    return 'Put a decorator such as @METHODS.register("NAME") above a class, or bind `study`'


def _study(study: Any, origin: str, overrides: Overrides) -> Checks:
    found = Checks(f"study {study.name!r} ({origin})", origin)
    check_study(found, study, overrides)
    return found


def checked(kind: str, entry: Entry[Any], overrides: Overrides, gpu: bool = False) -> Checks:
    """The findings about a registered component; by `gpu` on an emulated GPU, too."""
    registry = REGISTRIES[kind]
    origin = f"{shown(entry.file)}:{entry.line}"
    found = Checks(f"{registry.kind} {entry.name!r} ({origin})", origin, gpu)
    things: list[Any] = []
    with found.check("fits its interface"):
        things.append(registry.get(entry.name))
    if not things:
        return found
    if isinstance(things[0], type) and (interface := interface_of(things[0])) is not None:
        for place, own, hook in misspelt(things[0], interface):
            found.note(f"{place.replace(f'{Path.cwd()}/', '')}: `{own}` is never called; did you mean `{hook}`?")
    KINDS.get(kind, _not_tried)(found, entry.name, things[0], overrides)
    return found


def _not_tried(found: Checks, name: str, thing: Any, overrides: Overrides) -> None:
    found.note("nothing of this kind is tried")


def _trained_with(found: Checks, settings: Mapping[str, Any], overrides: Overrides) -> tuple[RunConfig, Tried] | None:
    """Train a little with these settings; None if that is not possible."""
    made: list[tuple[RunConfig, DataSet]] = []
    with found.check("builds with its options"):
        config = tiny_config(settings, overrides)
        made.append((config, few_images(config.dataset)))
    if not made:
        return None
    config, dataset = made[0]
    tried = check_training(found, config, dataset)
    return None if tried is None else (config, tried)


def _setting(key: str, several: bool = False) -> Callable[[Checks, str, Any, Overrides], None]:
    """The check of a kind that a configuration names at that key."""

    def check(found: Checks, name: str, thing: Any, overrides: Overrides) -> None:
        _trained_with(found, {key: [name] if several else name}, overrides)

    return check


def _method(found: Checks, name: str, thing: Any, overrides: Overrides) -> None:
    made = _trained_with(found, {"method.name": name}, overrides)
    if made is None:
        return
    method, space = made[0].method.build(COMPONENTS["method"], "method"), SPACES.get(made[0].space)()
    sampler = sampler_of(method, space, made[0].sampler.build(COMPONENTS["sampler"], "sampler"))
    by = next((decision for decision, count in enumerate(space.choices) if count > 1), 0)
    clustering = Clustering(space.choices[by], lambda path: path[by], (by,))
    try:
        method.check(space, clustering, sampler)
        check_clusters(method, space, Part({}), clustering, sampler.bind(space, {}), random.Random(0))
    except InvalidConfiguration as error:
        found.note(f"does not go with momentum separation: {found.explained(error)}")


def _schedule(found: Checks, name: str, thing: Any, overrides: Overrides) -> None:
    made = _trained_with(found, {"schedule.name": name}, overrides)
    if made is None:
        return
    config, space = made[0], SPACES.get(made[0].space)()
    with found.check("gives finite factors that are not negative, from the first step to the last"):
        factor = config.schedule.build(COMPONENTS["schedule"], "schedule").bind(space)
        for path in (space.sample(random.Random(seed)) for seed in range(DRAWN)):
            for progress in (0.0, 0.01, 0.5, 0.99, 1.0):
                value = factor(path, progress)
                if not isinstance(value, int | float) or not 0 <= value < math.inf:
                    raise Unfit(f"the factor of {path} at progress {progress} is {value!r}")


def _sampler(found: Checks, name: str, thing: Any, overrides: Overrides) -> None:
    made = _trained_with(found, {"sampler.name": name}, overrides)
    if made is None:
        return
    sampler, space = made[0].sampler.build(COMPONENTS["sampler"], "sampler"), SPACES.get(made[0].space)()
    with found.check("draws valid paths, and keeps the decisions that are fixed"):
        fixed = {0: space.choices[0] - 1}
        source = sampler.bind(space, fixed)
        if informed(source, None) is not source:  # type: ignore[arg-type]
            return  # it draws with the training, which was tried above
        for seed in range(DRAWN):
            path = space.check(source.draw(random.Random(seed)))
            if path[0] != fixed[0]:
                raise Unfit(
                    f"bind(space, {fixed}) draws {path}, in which decision 0 is {path[0]}: a method with several "
                    "supernets fixes decisions, and `draw` must keep them, as space.sample(rng, fixed) does"
                )


def _clusters(found: Checks, name: str, thing: Any, overrides: Overrides) -> None:
    made = _trained_with(found, {"clusters.name": name}, overrides)
    if made is None:
        return
    rule, space = made[0].clusters.build(COMPONENTS["clusters"], "clusters"), SPACES.get(made[0].space)()
    with found.check("puts every path into one of its clusters, the same twice"):
        one, other = (rule.bind(space, {}, random.Random(1)) for _ in range(2))
        for path in (space.sample(random.Random(seed)) for seed in range(DRAWN)):
            if one.of(path) not in range(one.count):
                raise Unfit(f"the cluster of {path} is {one.of(path)!r}; there are 0 to {one.count - 1}")
            if one.of(path) != other.of(path):
                raise Unfit(
                    f"{path} is in cluster {one.of(path)} or {other.of(path)}: draw from the `rng` of bind only"
                )


def _search(found: Checks, name: str, thing: Any, overrides: Overrides) -> None:
    made = _trained_with(found, {"search.name": name}, overrides)
    if made is None or made[1].supernets is None:
        return
    config, supernets, dataset = made[0], made[1].supernets, few_images(made[0].dataset)
    with found.check("finds valid architectures, the same twice"):
        one, other = (search(Scorer(config, supernets, dataset, Meter(CPU))) for _ in range(2))
        if not one:
            raise Unfit("it found nothing: `find` must return the best first, as a list of Found")
        if one != other:
            raise Unfit("two searches differ: draw from the `rng` of find only")


def _space(found: Checks, name: str, thing: Any, overrides: Overrides) -> None:
    few = check_architectures(found, name, thing())
    if found.problems:
        return
    made: list[RunConfig] = []
    with found.check("builds with its options"):
        made.append(tiny_config({"space": name}, overrides))
    if made:
        dataset = few_images(made[0].dataset)
        check_networks(found, thing(), made[0], dataset, few)
        if not found.problems:
            check_training(found, made[0], dataset)


def _dataset(found: Checks, name: str, thing: Any, overrides: Overrides) -> None:
    if check_images(found, name) is not None and not found.problems:
        _trained_with(found, {"dataset": name}, overrides)


def _benchmark(found: Checks, name: str, thing: Any, overrides: Overrides) -> None:
    try:
        benchmark = open_benchmark(name)
    except DataError as error:
        found.note(f"cannot be opened here: {found.explained(error)}")
        return
    except Exception:  # told below, with its line
        benchmark = None
    with found.check("has an accuracy in percent for every architecture"):
        benchmark = benchmark or open_benchmark(name)
        for dataset in benchmark.datasets:
            accuracies = benchmark.accuracies(dataset)
            if accuracies.shape != (benchmark.space.size,):
                raise Unfit(
                    f"{dataset} has accuracies of shape {accuracies.shape}; {benchmark.space.name} has "
                    f"{benchmark.space.size} architectures"
                )
            if not 0 <= np.nanmin(accuracies) <= np.nanmax(accuracies) <= 100:
                raise Unfit(f"{dataset} has accuracies from {accuracies.min():g} to {accuracies.max():g}, not 0 to 100")


def _metric(found: Checks, name: str, thing: Any, overrides: Overrides) -> None:
    with found.check("gives one number for predicted accuracies, true ones and complexities"):
        rng = np.random.default_rng(0)
        value = thing(rng.random(DRAWN) * 100, rng.random(DRAWN) * 100, rng.integers(1, 1000, DRAWN).astype(float))
        float(value)


def _observation(found: Checks, name: str, thing: Any, overrides: Overrides) -> None:
    made = _trained_with(found, {}, overrides)
    if made is None or made[1].supernets is None:
        return
    with found.check("gives numbers by name"):
        with torch.no_grad():
            values = thing(made[1].supernets, Progress(0, 1, EPOCHS, EPOCHS, 0.0), few_images(made[0].dataset))
        if not isinstance(values, Mapping):
            raise Unfit(f"it must return numbers by name, such as {{{name!r}: 0.5}}, not {values!r}")
        for value in values.values():
            float(value)


def _proxy(found: Checks, name: str, thing: Any, overrides: Overrides) -> None:
    with found.check("scores architectures, each with a number, the same twice"):
        config = tiny_config({}, overrides)
        scenes = [ProxyScene(config, few_images(config.dataset), None) for _ in range(2)]
        few = [scenes[0].space.sample(random.Random(seed)) for seed in range(DRAWN)]
        try:
            one, other = (thing().predict(scene, few) for scene in scenes)
        except NotApplicable as error:
            found.note(f"does not apply to {config.space}: {error}")
            return
        wrong = [path for path in few if not math.isfinite(as_predictions(one)[path].accuracy)]
        if wrong:
            raise Unfit(f"the score of {wrong[0]} is not finite")
        if dict(one) != dict(other):
            raise Unfit("two calls differ: draw from `initial.generator`, or from the seed of the scene")


def _preset(found: Checks, name: str, thing: Any, overrides: Overrides) -> None:
    check_preset(found, thing, overrides)


KINDS: dict[str, Callable[[Checks, str, Any, Overrides], None]] = {
    "methods": _method,
    "optimisers": _setting("optimiser.name"),
    "orders": _setting("train.order"),
    "augmentations": _setting("train.augment", several=True),
    "schedules": _schedule,
    "samplers": _sampler,
    "cluster-rules": _clusters,
    "searches": _search,
    "spaces": _space,
    "datasets": _dataset,
    "benchmarks": _benchmark,
    "proxies": _proxy,
    "metrics": _metric,
    "observations": _observation,
    "presets": _preset,
}
"""How each kind of component is checked, by the words of the registries."""


class ComponentSuite:
    """Every component passes these tests: derive a class from it in a test file, with a fixture `component`, which
    gives kind, name and overrides, as `("methods", "mine", {"train.epochs": 1})`."""

    def test_the_contract_of_its_kind(self, component: tuple[str, str, Overrides]) -> None:
        kind, name, overrides = component
        entry = dict(REGISTRIES[kind].items())[name]
        assert checked(kind, entry, overrides).problems == []


def shown(file: Path) -> str:
    """A file as the user names it."""
    here = Path.cwd().resolve()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)
