"""Finds component files by directory and loads them under private module names.

Our folders are `methods/` and `spaces/` next to the `harness` package. The user's are the same folders in the
current directory, and `datasets/`, `benchmarks/` and `presets/`. `python -m` puts the current directory first on the
path, so a plain import of `methods.random` could find the wrong file; here every folder becomes a synthetic package
(`harness_components.ours.methods`, `harness_components.user.methods`), so no file shadows another and
relative imports within a folder work. A folder's own `__init__.py` is neither needed nor run.

`studies/` is only listed (`study_files`) and loaded file by file (`load_file`). A file that cannot be imported is left
out and reported once, by a `ComponentWarning`: it does not stop the others. This module knows no particular component
and imports nothing heavy itself.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from harness.components.notices import Notices, unregistered
from harness.components.registry import Entry
from harness.environment import PROJECT
from harness.errors import BrokenComponent, NameCollision, UserError
from harness.files import check_name

ROOT = "harness_components"
ENTRY_POINT_GROUP = "harness.components"

_PRESETS = ("studies/presets", "presets")
_LOADED_AT_DISCOVERY = ("methods", "spaces", "datasets", "benchmarks", *_PRESETS, "reports/formats")
_READ = ("methods", "spaces", "datasets", "benchmarks", "presets", "studies")
"""The user's folders."""
FOLDERS = (*_READ, "reports")
"""The folders of components, studies and reports: their own `__init__.py` never runs."""
# The engine's own components: these packages register themselves when imported.
_BUILT_IN = ("harness.data.shipped",)
_BESIDE_THE_ENGINE = PROJECT


class _State:
    """Everything that this process has discovered."""

    def __init__(self, ours: Path) -> None:
        self.ours = ours
        self.done: set[tuple[Path, ...]] = set()
        """The sets of folders whose components are all loaded."""
        self.places: set[tuple[str, ...]] = set()
        """The same by the current directory: cheaper than resolving the folders again at every lookup."""
        self.packages: dict[Path, str] = {}
        """Folders and their synthetic packages."""
        self.foreign: set[str] = set()
        """Modules that entry points imported."""
        self.notices = Notices(_READ)
        self.running = False
        self.ours_only = False
        """Whether the user's components are left out."""


_state = _State(_BESIDE_THE_ENGINE)
_lock = threading.RLock()


def discover() -> None:
    """Load all components, once per process and set of folders. A nested call returns at once.

    A file that cannot be imported is left out, with a warning; it is tried again once it has changed. So is one that
    registers a name which another file has: from then on that name is refused, and no other.
    """
    with _lock:
        place = _place()
        if _state.running:
            return
        repaired = _state.notices.repaired()
        if place in _state.places and not repaired:
            return
        ours, user = _folders(_LOADED_AT_DISCOVERY)
        user = [] if _state.ours_only else user
        if (*ours, *user) in _state.done and not repaired:
            _state.places.add(place)
            return
        _state.running = True
        _forget_collisions()
        try:
            for name in _BUILT_IN:
                importlib.import_module(name)
            for file in (file for folder in (*ours, *user) for file in _component_files(folder)):
                _load(file)
            if not _state.ours_only:
                _register_image_folders()
            _import_entry_points()
            _state.done.add((*ours, *user))
            _state.places.add(place)
        finally:
            _state.running = False
        _look_around()


@contextmanager
def users_code_left_out() -> Iterator[None]:
    """Within, no component of the current directory is loaded: help and completion run in folders of others, too."""
    with _lock:
        before, _state.ours_only = _state.ours_only, True
    try:
        yield
    finally:
        _state.ours_only = before


def load_presets() -> list[Path]:
    """Load our preset files alone: quick, whatever the spaces import. Returns the user's, which are not loaded."""
    with _lock:
        ours, user = ([file for folder in some for file in _component_files(folder)] for some in _folders(_PRESETS))
        for file in ours:
            _import_file(file)
        return user


def why_missing(name: str) -> list[str]:
    """The problems of the files that may have been meant to bring a component or study of that name."""
    return _state.notices.why_missing(name)


def left_out() -> dict[Path, str]:
    """The component and study files that bring nothing so far, and why."""
    return _state.notices.left_out()


def leave_out(file: Path, why: str) -> None:
    """Remember that a file registers nothing, and report it once."""
    _state.notices.leave_out(file, why)


def _look_around() -> None:
    """Report the folders of the current directory that look like component folders and are not read, once."""
    from harness.components.registries import REGISTRIES

    if (here := _current_directory()) is not None:
        _state.notices.look_at(here, REGISTRIES)


def _load(file: Path) -> None:
    """Import a component file; one that cannot be imported, or registers nothing, is reported."""
    module, before, quick = _module_name(file), _registered(), "torch" not in sys.modules
    try:
        loaded = _import_file(file)
    except (BrokenComponent, NameCollision) as error:
        _forget(module)
        _state.notices.broken(file, error)
    else:
        _state.notices.imported(file)
        if quick and "torch" in sys.modules and not file.is_relative_to(_state.ours):
            _state.notices.slow(file)
        _check_registered(file, loaded, before)


def _check_registered(file: Path, module: ModuleType, before: set[tuple[str, str]]) -> None:
    from harness.components.registries import REGISTRIES

    everyone = [entry.module for registry in REGISTRIES.values() for entry in registry.entries.values()]
    # A function of another file may register for this one.
    if _registered() == before and not any(_is_within(name, module.__name__) for name in everyone):
        leave_out(file, unregistered(file, module))


def _registered() -> set[tuple[str, str]]:
    from harness.components.registries import REGISTRIES

    return {(kind, name) for kind, registry in REGISTRIES.items() for name in registry.entries}


def _forget(module: str) -> None:
    """Undo what a module registered before its import failed; neighbours that it has imported stay."""
    from harness.components.registries import REGISTRIES

    for registry in REGISTRIES.values():
        for name in [name for name, entry in registry.entries.items() if _is_within(entry.module, module)]:
            del registry.entries[name]
    for name in [name for name in sys.modules if _is_within(name, module)]:
        del sys.modules[name]


def _forget_collisions() -> None:
    """Files that collided are loaded again: those that still do refuse their names again."""
    from harness.components.registries import REGISTRIES

    for registry in REGISTRIES.values():
        registry.collisions.clear()


def _is_within(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def _place() -> tuple[str, ...]:
    """The current directory and which component folders are in it; nothing if they are left out."""
    if _state.ours_only:
        return ()
    try:
        return (os.getcwd(), *filter(os.path.isdir, _LOADED_AT_DISCOVERY))
    except FileNotFoundError:  # it was deleted
        return ()


def component(path: str) -> ModuleType:
    """One of our own component modules by its path, e.g. `component("methods.schedules")`."""
    folder, _, rest = path.partition(".")
    if folder not in FOLDERS or not rest:
        raise UserError(f"{path!r} is not a component; expected {', '.join(f'{f}.NAME' for f in FOLDERS)}")
    return importlib.import_module(f"{_package(_state.ours / folder)}.{rest}")


def folders_of_user() -> list[Path]:
    """The user's folders that are there: of components and of studies."""
    return _folders(_READ)[1]


def study_files() -> list[Path]:
    """The study files, ours first, then the user's; none of them is loaded."""
    _look_around()
    ours, user = _folders(("studies",))
    return [file for folder in (*ours, *user) for file in _component_files(folder)]


def load_file(path: Path | str) -> ModuleType:
    """Load any single Python file under a private name; the same file is loaded once."""
    file = Path(path).resolve()
    if file.suffix != ".py" or not file.is_file():
        raise UserError(f"{path} is not a Python file" if file.exists() else f"there is no file {path}")
    return _import_file(file)


def reset(ours: Path | None = None) -> None:
    """Forget every component that discovery loaded, as in a new process (for tests).

    `ours` replaces the folder next to the engine.
    """
    from harness.components.registries import REGISTRIES

    global _state
    with _lock:
        private = {name for name in sys.modules if name.partition(".")[0] == ROOT} | _state.foreign
        for registry in REGISTRIES.values():
            for name, entry in [*registry.entries.items()]:
                if entry.module in private:
                    del registry.entries[name]
        _forget_collisions()
        for name in private:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        _state = _State(ours.resolve() if ours else _BESIDE_THE_ENGINE)


@contextmanager
def fresh(ours: Path | None = None) -> Iterator[None]:
    """`reset` for the duration of a block; afterwards the previous state is back, with the same objects."""
    from harness.components.registries import REGISTRIES

    global _state
    state, modules = _state, {name: m for name, m in sys.modules.items() if name.partition(".")[0] == ROOT}
    modules.update({name: sys.modules[name] for name in state.foreign if name in sys.modules})
    entries = {kind: dict(registry.entries) for kind, registry in REGISTRIES.items()}
    collisions = {kind: dict(registry.collisions) for kind, registry in REGISTRIES.items()}
    reset(ours)
    try:
        yield
    finally:
        reset()
        _state = state
        sys.modules.update(modules)
        for kind, registry in REGISTRIES.items():
            # Keep what the engine itself has registered meanwhile: its modules are not loaded again.
            registry.entries = {**entries[kind], **registry.entries}
            registry.collisions = collisions[kind]


def _folders(names: tuple[str, ...]) -> tuple[list[Path], list[Path]]:
    """The existing folders: ours, and the user's without ours."""
    ours = [_state.ours / name for name in names]
    here = _current_directory()
    user = [(here / name).resolve() for name in names] if here else []
    taken = {folder.resolve() for folder in ours}
    return (
        [folder for folder in ours if folder.is_dir()],
        [folder for folder in user if folder.is_dir() and folder not in taken],
    )


def _current_directory() -> Path | None:
    try:
        return Path.cwd().resolve()
    except FileNotFoundError:  # the directory was deleted: then the user has no components
        return None


def _component_files(folder: Path) -> list[Path]:
    """The modules of a folder (packages by their `__init__.py`), without private modules and tests."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(("_", ".", "test_")) or path.name in ("tests", "conftest.py"):
            continue
        if path.is_dir() and (path / "__init__.py").is_file():
            found.append(path / "__init__.py")
        elif path.suffix == ".py" and path.is_file() and not path.stem.endswith("_test"):
            found.append(path)
    return found


def _import_file(file: Path) -> ModuleType:
    module = _path_of(file)
    rival = module.with_suffix(".py") if file.name == "__init__.py" else module / "__init__.py"
    if rival.is_file():  # Python would import the package and ignore the file
        raise NameCollision(f"two components are both named {module.name!r}: {file} and {rival}. Rename one.")
    try:
        return importlib.import_module(_module_name(file))
    except (NameCollision, BrokenComponent):
        raise
    except (Exception, SystemExit) as error:
        raise BrokenComponent.during_import(file, error) from error


def _path_of(file: Path) -> Path:
    """The path of a module: a file without its suffix, or the folder of a package."""
    return file.parent if file.name == "__init__.py" else file.with_suffix("")


def _module_name(file: Path) -> str:
    module = _path_of(file)
    return f"{_package(module.parent)}.{module.name}"


def _package(folder: Path) -> str:
    """The synthetic package whose modules are the files of `folder`."""
    if folder not in _state.packages:
        if folder.parent == _state.ours and folder.name in FOLDERS:
            # Make all of them, so that a study finds our reports as `..reports`.
            for name in FOLDERS:
                _make_package(f"{ROOT}.ours.{name}", _state.ours / name)
        elif f"{folder.parent.name}/{folder.name}" in _LOADED_AT_DISCOVERY:
            _make_package(f"{_package(folder.parent)}.{folder.name}", folder)
        else:
            plain = f"{ROOT}.user.{folder.name}"
            is_user = folder.name in FOLDERS and folder.parent == _current_directory()
            # A process that changes its directory may load a second project: the first keeps the name.
            digest = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
            free = is_user and plain not in sys.modules
            _make_package(plain if free else f"{ROOT}.folder_{digest}", folder)
    return _state.packages[folder]


def _make_package(name: str, folder: Path | None) -> None:
    parent, _, _ = name.rpartition(".")
    if parent and parent not in sys.modules:
        _make_package(parent, None)
    package = ModuleType(name)
    package.__path__ = [str(folder)] if folder else []
    package.__package__ = name
    package.__spec__ = ModuleSpec(name, None, is_package=True)
    sys.modules[name] = package
    if parent:
        setattr(sys.modules[parent], name.rpartition(".")[2], package)
    if folder:
        _state.packages[folder] = name


def _register_image_folders() -> None:
    """Register the image folders that the settings of the user's folder name."""
    from harness.components.registries import DATASETS
    from harness.settings import FILE, image_folders

    module = f"{ROOT}.images"
    _state.foreign.add(module)
    for name, place in image_folders().items():
        check_name(DATASETS.kind, name)
        file, lazy = Path(FILE).absolute(), f"harness.data.folder:{name}"
        try:
            DATASETS.add(Entry(name, file, 1, module, None, f"the images in {place}", lazy))
        except NameCollision as error:
            leave_out(file, str(error))


def _import_entry_points() -> None:
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINT_GROUP):
        known, before = set(sys.modules), _registered()
        file, within = _source(point.module)
        try:
            loaded = importlib.import_module(point.module)
        except (Exception, SystemExit) as error:
            source = point.dist.name if point.dist else "an installed package"
            advice = f"It is the entry point {point.name!r} of {source} and is left out: fix or uninstall that package"
            _forget(point.module)
            leave_out(file, f"{BrokenComponent.during_import(file, error, within=within)}. {advice}")
        else:
            _check_registered(file, loaded, before)
        finally:
            top = point.module.partition(".")[0]
            _state.foreign |= {n for n in set(sys.modules) - known if n.partition(".")[0] == top}


def _source(module: str) -> tuple[Path, Path]:
    """The file of an installed module, and what counts as its own code: its package, or that file alone."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or spec.origin is None:
        return Path(module), Path(module)
    origin = Path(spec.origin)
    if not rest:
        return origin, origin.parent if spec.submodule_search_locations else origin
    return origin.parent.joinpath(*rest).with_suffix(".py"), origin.parent
