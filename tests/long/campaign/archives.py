"""Hostile archives: `store import` adds all of an intact archive or nothing, and writes nowhere else."""

from __future__ import annotations

import io
import json
import random
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.long.campaign.commands import attempt, call
from tests.long.campaign.damage import flip, spoilt
from tests.long.campaign.scene import TINY, Scene
from tests.long.campaign.tally import Attempt, Tally
from tests.stores.upkeep.test_archive import Members, repack, resealed, tree

FLIPS, MANIFESTS = 40, 60
OUTSIDE = (
    "../x",
    "/tmp/x",
    "runs/../../x",
    "a/../../x",
    ".hidden",
    "a//b",
    "a\\..\\x",
    "C:x",
    "",
    "a\nb",
    "a" * 300,
    "\x00",
)


def members(*added: tuple[tarfile.TarInfo, bytes]) -> Callable[[Members], Members]:
    return lambda own: [*own, *added]


def entry(name: str, kind: bytes = tarfile.REGTYPE, to: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, to
    return made


def _renamed(old: str, new: str) -> Callable[[Members], Members]:
    """A file's name, in the manifest and in the archive."""

    def change(own: Members) -> Members:
        def rename(document: dict[str, object]) -> None:
            text = json.dumps(document).replace(json.dumps(old), json.dumps(new))
            document.clear()
            document.update(json.loads(text))

        changed = resealed(own, rename)
        for one, _ in changed:
            one.name = one.name.replace(old, new)
        return changed

    return change


def _other_content(own: Members) -> Members:
    """Another result under the checksum of the manifest; the run's own record knows better."""
    from harness.stores.upkeep.archive import _describe

    place = next(at for at, (one, _) in enumerate(own) if one.name.endswith("/result.json"))
    text = own[place][1].replace(b'"kendall_tau": ', b'"kendall_tau": 0', 1)
    _, run, name = own[place][0].name.split("/")

    def describe(document: dict[str, object]) -> None:
        document["runs"][run]["files"][name] = _describe(text)  # type: ignore[index]

    changed = resealed(own, describe)
    changed[place] = (changed[place][0], text)
    return changed


def forgeries(run: str) -> Iterator[tuple[str, Callable[[Members], Members]]]:
    """Archives made by somebody who knows the format."""
    for name in OUTSIDE:
        yield f"a member {name[:20]!r}", members((entry(name), b"evil"))
        yield f"a file {name[:20]!r} in the manifest", _renamed("cout.txt", name)
        yield f"a run {name[:20]!r}", _renamed(run, name)
    for kind, what in (
        (tarfile.SYMTYPE, "symbolic link"),
        (tarfile.LNKTYPE, "hard link"),
        (tarfile.CHRTYPE, "device"),
        (tarfile.FIFOTYPE, "pipe"),
        (tarfile.DIRTYPE, "folder"),
    ):
        yield f"a {what}", members((entry(f"runs/{run}/x", kind, "/etc/hostname"), b""))
        yield f"a {what} first", lambda own, kind=kind: [(entry("runs", kind, "/tmp"), b""), *own]  # type: ignore[misc]
    yield "a member twice", lambda own: [*own, own[-1]]
    yield "a member missing", lambda own: own[:-1]
    yield "no manifest", lambda own: own[1:]
    yield "the manifest last", lambda own: [*own[1:], own[0]]
    yield "a deep manifest", lambda own: [(own[0][0], b'{"a":' * 50_000 + b"1" + b"}" * 50_000), *own[1:]]
    yield "another result", _other_content
    yield "empty", lambda own: []


@contextmanager
def watched(scene: Scene, one: Attempt) -> Iterator[Path]:
    """An empty store to import into; afterwards nothing else is changed, and what it holds is what was exported."""
    place = scene.folder / "imported" / "runs"
    shutil.rmtree(place.parent, ignore_errors=True)
    place.mkdir(parents=True)
    before = _around(scene.folder)
    yield place
    one.require(_around(scene.folder) == before, "other", "something is written outside")
    runs = {path for path in place.iterdir() if path.is_dir() and "-" in path.name}
    for run in runs:
        original = tree(scene.store / run.name) if (scene.store / run.name).is_dir() else {}
        for name, content in tree(run).items():
            one.require(original.get(name) == content or name == "absent.json", "wrong", f"{run.name}/{name} is other")
    left = [path.name for path in place.iterdir() if path not in runs and path.name not in ("references", "index")]
    one.require(not left, "other", f"left behind: {left}")


def _around(folder: Path) -> set[str]:
    """The names of all files that a way out of the store leads to."""
    places = (folder, folder.parent, folder / "imported", Path("/"))
    beside = {str(path) for place in places for path in place.iterdir()}
    return beside | {str(path) for path in [*Path("/tmp").glob("x*"), *Path("/tmp").glob("*-1-*")]}


def imported(scene: Scene, tally: Tally, what: str, archive: Path, whole: int) -> None:
    with tally.attempt(what) as one, watched(scene, one) as place:
        said = attempt(one, "store", "import", str(archive), "--store", str(place))
        runs = [path for path in place.iterdir() if "-" in path.name]
        added = len(runs) + sum(path.is_file() for path in (place / "references").glob("*"))
        one.require(said.code == 0 or added == 0, "other", f"refused, but {added} runs and references are there")
        one.require(
            said.code != 0 or len(runs) == whole, "lost", f"accepted, but {len(runs)} of {whole} runs are there"
        )


def run(scene: Scene, rng: random.Random) -> list[Tally]:
    plain, packed, target = (scene.folder / name for name in ("all.tar", "all.tar.gz", "hostile.tar"))
    for path in (plain, packed):
        said = call("store", "export", "attacked", str(path), *TINY, "--store", str(scene.store))
        assert said.code == 0, said.end
    flips = Tally("bit flips and cuts in archives")
    for number in range(FLIPS):
        content = rng.choice([plain, packed]).read_bytes()
        changed = flip(content, rng) if rng.random() < 0.7 else content[: rng.randrange(len(content))]
        target.write_bytes(changed)
        imported(scene, flips, f"{number}", target, 6)
    manifests = Tally("odd values in sealed manifests")
    for number in range(MANIFESTS):
        told: list[str] = []

        def change(document: dict[str, object], told: list[str] = told) -> None:
            what, changed = spoilt(document, rng)
            told.append(what)
            document.clear()
            document.update(changed if isinstance(changed, dict) else {"": changed})

        try:
            repack(plain, target, lambda own, change=change: resealed(own, change))  # type: ignore[misc]
        except (ValueError, UnicodeEncodeError, RecursionError):
            continue
        imported(scene, manifests, f"{number}: {told[0]}", target, 6)
    forged = Tally("hostile archives")
    first = sorted(path.name for path in scene.store.iterdir() if path.name in scene.rows)[0]
    with tarfile.open(plain) as tar:
        inside = {name.split("/")[1] for name in tar.getnames() if name.startswith("runs/")}
    for what, make in forgeries(min(inside & {first}) if first in inside else min(inside)):
        try:
            repack(plain, target, make)
        except (ValueError, UnicodeError):
            continue  # tarfile itself refuses to write it
        imported(scene, forged, what, target, 6)
    _bombs(scene, forged, plain, target)
    for path in (plain, packed, target):
        path.unlink()
    shutil.rmtree(scene.folder / "imported", ignore_errors=True)
    return [flips, manifests, forged]


def _bombs(scene: Scene, tally: Tally, plain: Path, target: Path) -> None:
    """Far more than the archive's own size: zeros in a file that nobody asked for, and a size that is a lie."""
    import gzip

    huge = entry("runs/x")
    huge.size = 1 << 50
    raw = io.BytesIO()
    raw.write(plain.read_bytes().rstrip(b"\0"))
    raw.write(b"\0" * (-raw.tell() % 512) + huge.tobuf())
    target.write_bytes(raw.getvalue())
    imported(scene, tally, "a size of a petabyte", target, 6)
    target.write_bytes(gzip.compress(plain.read_bytes().rstrip(b"\0") + b"\0" * (1 << 28)))
    imported(scene, tally, "256 MB of zeros at the end", target, 6)
