"""`harness doctor`: packages, machine, components, store, database and GPUs, each with what to do about a problem.

Each check looks at one thing, changes nothing, and cannot stop the others. This process reads the metadata of packages
and imports none of them: torch, its GPUs and Sacred are tried in another process (`Probe`).
"""

from __future__ import annotations

import codecs
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, entry_points, packages_distributions, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.components.benchmark import open_benchmark
from harness.components.discovery import ENTRY_POINT_GROUP, discover, left_out, study_files
from harness.components.registries import BENCHMARKS, IMPORTERS, REGISTRIES
from harness.data.inspection import presences
from harness.data.places import CACHE, DATA, FOLDER, cache_folder, data_folder
from harness.documents import NEWER, amount, one_line
from harness.environment import DRIVER, ENGINE, PACKAGE, bounds, gpu_names
from harness.errors import ComponentWarning, DataError, HarnessError, NotBuilt, Unreachable, UserError
from harness.stores.claims import Claims
from harness.stores.directory.records import DirectoryRecords
from harness.stores.directory.store import DirectoryStore
from harness.stores.places import MONGO, VARIABLE, Places
from harness.stores.stored import Problem, Status
from harness.stores.upkeep.checking import orphaned
from harness.study.catalogue import studies_in
from harness.work.findings import Findings, note, ok, problem
from harness.work.slots import VISIBLE

if TYPE_CHECKING:
    from packaging.requirements import Requirement


DEVELOPMENT = ("dev", "long")
"""The extras for those who change the harness; nobody else misses them."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""The limit of a container, as quota and period."""

LEAST = 32 << 20
"""Bytes that a run needs where none is stored to tell."""
SCARCE = 1 << 30
"""Free bytes below which a note says so."""
MEASURED = 20
"""How many of the newest runs are measured."""

PATIENCE = 3.0
"""Seconds within which the database must answer."""
SKEW = 5.0
"""Seconds by which two clocks may differ. Leases are a minute long."""
ANOTHER = f"name another with --store or {VARIABLE}"
SCRIPT = """
import json, warnings
found = {"errors": {}, "said": []}
for name in ("torch", "torchvision", "sacred"):
    try:
        __import__(name)
    except BaseException as error:
        found["errors"][name] = f"{type(error).__name__}: {error}"
if "torch" not in found["errors"]:
    import torch
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found["usable"] = torch.cuda.is_available()
        found["names"] = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    found["said"] = [str(one.message) for one in said]
    found["built_for"] = torch.version.cuda or torch.version.hip
print(json.dumps(found))
"""


def examine(places: Places, wait: float) -> Findings:
    """Everything that is found, one finding at a time; torch and its GPUs have `wait` seconds to answer."""
    probe = Probe(wait)  # first, because it takes longest
    checks: dict[str, Callable[[], Findings]] = {
        "packages": check_packages,
        "output": check_output,
        "cores": check_cores,
        "temporary": check_temporary,
        "components": check_components,
        "data sets": check_contents,
        "store": partial(check_store, places),
        "disk": partial(check_disk, Path.cwd() if places.database_only else places.directory),
        "database": partial(check_database, places),
        "gpus": probe.findings,
    }
    try:
        for subject, check in checks.items():
            yield from _guarded(subject, check)
    finally:
        probe.close()


def _guarded(subject: str, check: Callable[[], Findings]) -> Findings:
    """What the check finds. One that fails itself is a problem, and the next ones still run."""
    try:
        yield from check()
    except Exception as error:
        text = f"could not be checked: {one_line(error)}"
        yield problem(subject, text, "report this; the other checks do not depend on it")


def check_packages() -> Findings:
    """Python and all packages against their bounds, then pairs and extras."""
    try:
        import packaging  # noqa: F401
    except ImportError:
        yield problem("packages", "packaging is not installed", f"pip install {PACKAGE}, or pip install packaging")
        return
    asked = bounds()
    if asked is None:
        advice = f"pip install {PACKAGE}, or `make setup` in a checkout"
        yield problem("packages", "the harness is not installed, so its bounds are unknown", advice)
        return
    yield from _check_python(asked.python)
    yield from _check_needed(asked.needed)
    yield from _check_pair("torchvision", "torch")
    if importlib.util.find_spec("pkg_resources") is None:
        text = "sacred needs pkg_resources, which setuptools 81 and later do not have"
        yield problem("sacred", text, "pip install 'setuptools<81'")
    yield from _check_extras(asked.extras)


def check_hidden(folder: Path, names: Iterable[str] = ()) -> Findings:
    """Files of a folder that hide a module: `python -m` looks into the current folder first."""
    asked = bounds()
    packages = {_requirement(text).name for text in asked.needed} if asked else set()
    modules = {module for module, owners in packages_distributions().items() if packages.intersection(owners)}
    for name in sorted({"harness", *modules, *sys.stdlib_module_names, *names}):
        for path in (folder / f"{name}.py", folder / name / "__init__.py"):
            if path.is_file() and path.parent != ENGINE and not path.is_relative_to(Path(sys.prefix)):
                text = f"{path} hides the module {name!r} from `python -m harness` in this folder"
                yield problem("modules", text, "rename it, or work in another folder")


def _requirement(text: str) -> Requirement:
    from packaging.requirements import Requirement

    return Requirement(text)


def _check_python(wanted: str) -> Findings:
    from packaging.specifiers import SpecifierSet

    here = platform.python_version()
    if SpecifierSet(wanted).contains(here, prereleases=True):
        yield ok("python", f"{here} ({wanted})")
    else:
        yield problem("python", f"{here}; {wanted} is needed", "make a virtual environment with a newer Python")


def _check_needed(needed: Sequence[str]) -> Findings:
    wrong = list(_wrong(map(_requirement, needed)))
    for text, advice in wrong:
        yield problem("packages", text, advice)
    if not wrong:
        yield ok("packages", f"{len(needed)} packages are within their bounds")


def _wrong(asked: Iterable[Requirement]) -> Iterable[tuple[str, str]]:
    """What is missing or has a version out of bounds, and what to do."""
    for one in asked:
        if one.marker is not None and not one.marker.evaluate({"extra": ""}):
            continue
        advice = f"pip install '{one.name}{one.specifier}'"
        here = _version(one.name)
        if here is None:
            yield f"{one.name} is not installed; {one.specifier or 'any version'} is needed", advice
        elif not one.specifier.contains(here, prereleases=True):
            yield f"{one.name} is {here}; {one.specifier} is needed", advice


def _check_pair(package: str, other: str) -> Findings:
    """Whether a package was made for the version of the other that is here: each release needs its own."""
    try:
        asked = [one for one in map(_requirement, requires(package) or ()) if one.name == other]
    except PackageNotFoundError:
        return  # said already
    pair = f"{package} {_version(package)} with {other} {_version(other)}"
    wrong = [f"{package} {_version(package)}: {text}" for text, _ in _wrong(asked)]
    for text in wrong:
        yield problem("packages", text, f"pip install --upgrade {other} {package}")
    if not wrong:
        yield ok(other, pair)


def _check_extras(extras: dict[str, list[str]]) -> Findings:
    here: list[str] = []
    absent: list[str] = []
    for extra, texts in sorted(extras.items()):
        if extra in DEVELOPMENT:
            continue
        asked = list(map(_requirement, texts))
        present = [one for one in asked if _version(one.name) is not None]
        (here if len(present) == len(asked) else absent).append(extra)
        for text, advice in _wrong(present):
            yield problem("extras", f"{extra}: {text}", advice)
    if absent:
        text = f"absent: {', '.join(absent)}" + (f"; here: {', '.join(here)}" if here else "")
        yield note("extras", text, f"if you need them: pip install '{PACKAGE}[{','.join(absent)}]'")
    elif here:
        yield ok("extras", plural(len(here), "extra") + f" here: {', '.join(here)}")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def check_cores() -> Findings:
    """The cores that this process may use, and the variables that set threads."""
    cores = os.cpu_count() or 1
    allowed = min(cores, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores, _quota() or cores)
    wrong = [name for name in THREADS if not os.environ.get(name, "1").isdecimal()]
    for name in wrong:
        text = f"{name} is {os.environ[name]!r}, not a number of threads"
        yield problem("cores", text, f"unset {name}; `run --threads` sets the threads of a trial")
    given = ", ".join(f"{name}={os.environ[name]}" for name in THREADS if name in os.environ and name not in wrong)
    if allowed < cores:
        text = f"{cores} cores, of which this process may use {allowed}"
        yield note("cores", text, f"`run --jobs {allowed}` starts no more trials than that")
    else:
        yield ok("cores", plural(cores, "core") + (f"; {given}" if given else ""))


def check_output() -> Findings:
    """Whether what is printed can hold τ, ± and ✓."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    if codecs.lookup(encoding).name == "utf-8":
        yield ok("output", "UTF-8")
    else:
        yield problem("output", f"the output is {encoding}, which has no tau and no check mark", "export PYTHONUTF8=1")


def check_temporary() -> Findings:
    """The folder of temporary files, and the folder of decoded images if one was named."""
    given = next((name for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)), None)
    error = None if given is None else write_error(Path(os.environ[given]))
    if given is not None and error is not None:
        text = f"no file can be written in {os.environ[given]}, which {given} names: {error}"
        yield problem("temporary", text, f"make the folder, free space in it, or set {given} to another")
    try:
        folder = Path(tempfile.gettempdir())
    except OSError as none:
        yield problem("temporary", f"there is no folder for temporary files: {none}", "set TMPDIR to a folder")
        return
    if error is None and (error := write_error(folder)) is not None:
        yield problem("temporary", f"no file can be written in {folder}: {error}", "set TMPDIR to another folder")
    elif error is None:
        yield from _space("temporary", folder, LEAST, "", f"free space in {folder}, or set TMPDIR to another folder")
    if os.environ.get(CACHE) and (error := write_error(nearest(cache_folder()))) is not None:
        text = f"decoded images cannot be written to {cache_folder()}: {error}"
        yield problem("cache", text, f"set {CACHE} to another folder")


def check_disk(directory: Path) -> Findings:
    """The free space of the store's disk, against what a run needs."""
    place = nearest(directory)
    if not place.is_dir():
        return  # said by the check of the store
    need = LEAST
    if directory.is_dir():
        store = DirectoryStore(directory)
        # A run is written once, and its checkpoint beside it twice: the old one stays until the new one is whole.
        done = sorted((run for run in store.runs() if run.status is Status.DONE), key=lambda run: run.stop_time or "")
        need = max([LEAST, *(3 * sum(store.files(run).values()) for run in done[-MEASURED:])])
    told = f"; a run may need {amount(need)}"
    yield from _space("disk", place, need, told, f"free space, or set {VARIABLE} to a folder on another disk")


def _space(subject: str, folder: Path, need: int, told: str, advice: str) -> Findings:
    state = os.statvfs(folder)
    free = state.f_bavail * state.f_frsize
    text = f"{amount(free)} free in {folder}{told}"
    if free < need:
        yield problem(subject, text, advice)
    elif state.f_files and not state.f_favail:
        yield problem(subject, f"{folder} can hold no more files (inodes)", advice)
    elif free < max(SCARCE, 10 * need):
        yield note(subject, text, advice)
    else:
        yield ok(subject, text)


def _quota() -> int | None:
    """How many cores a container may use; None without a limit."""
    try:
        quota, period = QUOTA.read_text().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):  # "max" stands for no limit
        return None


def check_components() -> Findings:
    """Whether all component and study files load, and no entry point is hidden."""
    points = entry_points(group=ENTRY_POINT_GROUP)
    yield from check_hidden(Path.cwd(), {point.module.partition(".")[0] for point in points})
    noticed = _discovered()
    files = left_out()
    for file, why in files.items():
        text, _, rest = why.partition(". It is ")
        advice = rest.rpartition("left out: ")[2] or f"correct {file}, or start its name with an underscore"
        yield problem("components", text, advice)
    for text in noticed:
        if text not in files.values():
            folder, _, meant = text.partition(": should it be ")
            yield problem("components", folder, f"rename it to {meant.partition('?')[0]}, if it holds components")
    if not noticed and not files:
        names = f"; entry points: {', '.join(sorted(point.name for point in points))}" if points else ""
        yield ok("components", f"{sum(len(one.names()) for one in REGISTRIES.values())} registered{names}")
    yield from _check_studies()


def check_contents() -> Findings:
    """The data sets and the tables of truth, also where other components are left out."""
    _discovered()
    yield from _check_datasets()
    yield from _check_tables()


def _discovered() -> list[str]:
    """The warnings of discovery: files and folders that are left out."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ComponentWarning)
        discover()
    return [str(one.message) for one in told if issubclass(one.category, ComponentWarning)]


def _check_studies() -> Findings:
    files, broken = study_files(), 0
    places: dict[str, list[Path]] = {}
    for file in files:
        try:
            for study in studies_in(file):
                places.setdefault(study.name, []).append(file)
        except UserError as error:
            broken += 1
            yield problem("studies", " ".join(str(error).split()), f"correct {file}, or move it out of studies/")
    for name, held in places.items():
        if len(held) > 1:
            broken += 1
            yield problem("studies", f"two are both named {name!r}: {held[0]} and {held[1]}", "rename one of them")
    if not broken:
        yield ok("studies", f"{len(places)} in {len(files)} files")


def _check_datasets() -> Findings:
    for variable in (DATA, FOLDER):
        place = os.environ.get(variable)
        if place and not Path(place).expanduser().is_dir():
            yield problem("data sets", f"{variable} names {place}, which is not a folder", f"correct {variable}")
    found = presences()
    for one in found:
        if one.state == "incomplete":
            advice = f"complete the files; `harness data check {one.name}` reads them all"
            yield problem("data sets", f"{one.name}: {one.advice}", advice)
    here = [one.name for one in found if one.state not in ("missing", "incomplete")]
    missing = [one.name for one in found if one.state == "missing"]
    yield ok("data sets", f"here: {', '.join(here) or 'none'}")
    if missing:
        text = f"not in {data_folder()}: {', '.join(missing)}"
        yield note("data sets", text, "`harness data list` says how to get them")


def _check_tables() -> Findings:
    for name in BENCHMARKS.names():
        imported = name in IMPORTERS
        place = IMPORTERS.get(name).file() if imported else None
        try:
            benchmark = open_benchmark(name)
            for dataset in benchmark.datasets:
                benchmark.accuracies(dataset)
            yield ok("tables", f"{name}: {benchmark.space.name} on {', '.join(benchmark.datasets)}")
        except NotBuilt as error:
            yield note("tables", f"{name} is not computed yet", f"build it if you need it: {error}")
        except DataError as error:
            if place is not None and not place.exists():
                advice = f"get it and import it: `harness benchmark import FILE --as {name}`"
                yield note("tables", f"{name} is not available ({place})", advice)
                continue
            again = "import it again: `harness benchmark import FILE`" if imported else "build it again, or remove it"
            yield problem("tables", f"{name}: {error}", again)
        except UserError as error:
            yield problem("tables", f"{name}: {error}", f"correct {BENCHMARKS.entries[name].origin}")


def check_store(places: Places) -> Findings:
    """The directory of the runs."""
    if places.database_only:
        yield note("store", "only the database was named; the directory is not looked at")
        return
    try:
        store = DirectoryStore(places.directory)
    except UserError as error:
        yield problem("store", str(error), f"move the file away, or {ANOTHER}")
        return
    place = nearest(store.path)
    refused = write_error(place)
    if refused is not None:
        yield problem("store", f"no file can be written in {place}: {refused}", f"make it writable, or {ANOTHER}")
    if place != store.path.absolute():
        if refused is None:
            yield note("store", f"there is no store {store.path} yet; the first `harness run` makes it")
        return
    if refused is None:
        yield from _check_clock(store.path)
    try:
        yield from _check_runs(store, refused is None)
    except UserError as unreadable:
        yield problem("store", str(unreadable), f"make it readable, or {ANOTHER}")


def check_database(places: Places) -> Findings:
    """The database: whether it answers, lets this user read and write, and has all runs of the directory."""
    if places.mongo is None:
        yield ok("database", f"none ({MONGO} is not set): runs are kept in the directory alone")
        return
    from harness.stores.mongo.connection import address, connect, disconnect, translated
    from harness.stores.mongo.sync import unsynced

    try:
        database = connect(places.mongo, timeout=PATIENCE)
    except Unreachable as error:
        advice = f"start the server (`harness mongo start` starts a private one), or correct {MONGO}"
        yield problem("database", str(error), advice)
        return
    except UserError as error:
        yield problem("database", str(error), f"correct {MONGO}: address, user, password; or ask for the right to read")
        return
    try:
        with translated():
            version = database.client.server_info()["version"]
            runs = database["runs"].estimated_document_count()
            # Matches nothing and so writes nothing, but needs the right to write.
            database["runs"].update_one({"_id": "no run has this id"}, {"$set": {"seen": True}})
        yield ok("database", f"{address(database)} answers (MongoDB {version}), {plural(runs, 'run')}")
        here = not places.database_only and places.directory.is_dir()
        if here and (missing := unsynced(DirectoryStore(places.directory), database)):
            text = f"{plural(len(missing), 'run')} of {places.directory} not in the database yet"
            yield note("database", text, "`harness store sync` brings them there")
    except HarnessError as error:
        yield problem("database", f"{address(database)}: {error}", "ask for the right to write (role readWrite)")
    finally:
        disconnect(database.client)


def _check_clock(folder: Path) -> Findings:
    """The clock of the file system against this machine's: on a network disk it is the server's."""
    before = time.time()
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".new-") as file:
        os.utime(file.fileno())  # now, by the clock of the file system where that is another
        written = os.stat(file.name).st_mtime
    after = time.time()
    off = written - after if written > after else min(0.0, written - before)
    if abs(off) > SKEW:
        text = f"the clock of {folder} is {abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} this machine's"
        yield problem("clock", text, "synchronise the clocks (NTP): claims of several machines expire by them")


def _check_runs(store: DirectoryStore, writable: bool) -> Findings:
    runs = store.runs()
    newer = [one for one in store.problems if NEWER in one.reason]
    damaged = [one for one in store.problems if one not in newer]
    if damaged:
        advice = "`harness store check` lists all damage; with --fix it repairs what a database has"
        yield problem(
            "runs",
            f"{len(damaged)} {'entry' if len(damaged) == 1 else 'entries'} cannot be used: {_first(damaged)}",
            advice,
        )
    if newer:
        text = f"{len(newer)} {'run is' if len(newer) == 1 else 'runs are'} of a newer version: {_first(newer)}"
        yield problem("runs", text, "pip install --upgrade nas-harness")
    over = {run.key for run in runs if run.status in (Status.DONE, Status.RUNNING)}
    left = [run for run in runs if run.status is Status.LOST and run.key not in over]
    if left:
        scales = ", ".join(sorted({run.preset for run in left}))
        text = f"{plural(len(left), 'run')} left unfinished by a process that died, for example {left[-1].id}"
        advice = f"`harness show {left[-1].id}` names its configuration; running its study continues it ({scales})"
        yield problem("runs", text, advice)
    if claims := list(orphaned(Claims(DirectoryRecords(store.path)), str(store.claims))):
        text = f"{plural(len(claims), 'claim')} of dead or silent processes, for example {claims[0].reason}"
        yield note("claims", text, "`harness run` takes them over; `harness store check --fix` frees them")
    if not store.problems:
        counted = sum(run.counts for run in runs)
        how = "readable and writable" if writable else "readable"
        yield ok("store", f"{store.path}: {plural(len(runs), 'run')}, of which {counted} count; {how}")


def _first(found: list[Problem]) -> str:
    return f"{found[0].place} {found[0].reason}"


@dataclass
class Probe:
    """The process; started at once, so that other checks run meanwhile."""

    limit: float
    """Seconds that it may take: a GPU that hangs would otherwise hang the check."""
    process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        command = [sys.executable, "-c", SCRIPT]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def findings(self) -> Findings:
        """What the process has said; waits for it."""
        try:
            out, err = self.process.communicate(timeout=self.limit)
            said: dict[str, Any] = json.loads(out.splitlines()[-1])
        except subprocess.TimeoutExpired:
            text = f"torch did not answer within {self.limit:.0f} s"
            yield problem("gpus", text, "look at `nvidia-smi` and the load of this machine; --wait gives it more time")
            return
        except (ValueError, IndexError):
            last = (err.strip().splitlines() or ["no message"])[-1]
            text = f"torch ended its process with status {self.process.returncode}: {last}"
            yield problem("torch", text, "pip install --force-reinstall torch torchvision")
            return
        finally:
            self.close()
        for name, error in said["errors"].items():
            setuptools = "pkg_resources" in error
            advice = "pip install 'setuptools<81'" if setuptools else f"pip install --force-reinstall {name}"
            yield problem(name, f"{name} does not import: {error}", advice)
        if "torch" not in said["errors"]:
            yield from _gpus(said)

    def close(self) -> None:
        """End the process if it is still there."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def _gpus(said: dict[str, Any]) -> Findings:
    driven, hidden = gpu_names(), os.environ.get(VISIBLE)
    if said["usable"]:
        names = ", ".join(said["names"])
        yield ok("gpus", f"{len(said['names'])}: {names}" + (f" ({VISIBLE}={hidden})" if hidden is not None else ""))
    elif not driven and not DRIVER.is_dir():
        yield note("gpus", "there is no GPU here; trials run on the CPU")
    elif hidden is not None and hidden.strip() in ("", "-1"):
        yield note("gpus", f"{VISIBLE}={hidden} hides all GPUs; trials run on the CPU", f"unset {VISIBLE} to use them")
    else:
        names = ", ".join(driven) or "no GPU"
        if said["built_for"] is None:
            reason, advice = "this torch is built for CPUs", "install a torch that is built for CUDA: see pytorch.org"
        else:
            reason = said["said"][0].splitlines()[0] if said["said"] else f"torch is built for {said['built_for']}"
            advice = "update the driver, or install a torch that is built for its version: see `nvidia-smi`"
        yield problem("gpus", f"the driver lists {names}, but torch cannot use it: {reason}", advice)


def write_error(folder: Path) -> str | None:
    """Why no file can be written in the folder; None if one can. Tried for real: permissions alone do not tell."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return None


def nearest(path: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    path = path.absolute()
    return next(one for one in (path, *path.parents) if one.exists())


def plural(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' * (count != 1)}"
