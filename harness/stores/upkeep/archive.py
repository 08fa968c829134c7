"""Runs as one file: a tar archive that can be verified, from any kind of store. Imports no torch.

`manifest.json` comes first and lists the contents of the archive, with a checksum of every file and of itself;
the runs follow, as `runs/ID/FILE`, and their references, as `references/KEY.json`. Equal runs give equal bytes: names
are sorted, and no time, owner or path of a machine is included. An archive whose name ends in `.gz` or `.tgz` is
compressed.

An archive may come from anywhere: nothing of it is trusted before all of it is verified, and nothing is ever
written outside the folder that it is unpacked into.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import json
import re
import stat
import tarfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

from harness.documents import amount, parsed, sealed
from harness.errors import DataError, UserError, is_machines_fault
from harness.files import open_regular, write
from harness.schema import MANIFESTS, CompletionDocument, ManifestDocument
from harness.stores.directory.reading import is_beside
from harness.stores.directory.run_directory import (
    ABSENT,
    COMPLETION,
    RANKINGS,
    WEIGHTS,
    declare_absent,
    ranking_version,
)
from harness.stores.directory.store import REFERENCES, RUN_ID
from harness.stores.store import REFERENCE, Store
from harness.stores.stored import StoredRun

MANIFEST, RUNS = "manifest.json", "runs"
LONGEST_MANIFEST = 1 << 26
"""Bytes of a manifest, which is read as a whole: enough for about 40,000 runs."""
LONGEST_HEADER = 1 << 20
"""Bytes of what tar keeps of one file beside its content: a long name."""
MAX_SIZE = 100 << 30
"""Bytes of all files of an archive together, unless the user allows more."""
MOST_FILES = 500_000
BLOCK = 1 << 20

Files = dict[str, dict[str, Any]]
"""`sha256` and `size` by name."""


@dataclass(frozen=True)
class Manifest:
    """The declared contents of an archive."""

    study: str
    preset: str
    missing: Sequence[str]
    """What the study needs and the archive does not have."""
    files: Mapping[str, Files]
    """By run."""
    absent: Mapping[str, Mapping[str, str]]
    """By run, the checksums of files that were left out."""
    references: Files = field(default_factory=dict)
    """By key."""

    def document(self) -> dict[str, Any]:
        runs = {name: {"files": files, "absent": dict(self.absent[name])} for name, files in self.files.items()}
        schema, more = (MANIFESTS, {"references": self.references}) if self.references else (1, {})
        document = {"schema": schema, "study": self.study, "preset": self.preset, "missing": list(self.missing)}
        return sealed({**document, "runs": runs, **more})

    @classmethod
    def read(cls, text: bytes) -> Manifest:
        """Raises `DataError` for a manifest that is damaged, forged or newer."""
        try:
            document = parsed(text, ManifestDocument)
            if document != sealed(document):
                raise DataError("is not the one that was written: the checksum differs")
        except (DataError, ValueError, RecursionError) as error:
            raise DataError(f"its manifest {error}") from error
        files = {name: run["files"] for name, run in document["runs"].items()}
        absent = {name: run["absent"] for name, run in document["runs"].items()}
        for name in files:
            _check_names(name, {**files[name], **absent[name]})
        references = document.get("references", {})
        if wrong := [key for key in references if not REFERENCE.fullmatch(key)]:
            raise DataError(f"its manifest names {wrong[0]!r}, which is not the key of a reference")
        return cls(document["study"], document["preset"], document["missing"], files, absent, references)


def export_runs(
    store: Store,
    runs: Collection[StoredRun],
    target: Path,
    *,
    study: str = "",
    preset: str = "",
    missing: Sequence[str] = (),
    weights: bool = True,
    references: Mapping[str, Mapping[str, Any]] | None = None,
) -> Manifest:
    """Write the runs into an archive, with or without their weights, and these references, by key.

    A damaged log, or copy of a source file, is left out: no result depends on it.
    Raises `DataError` if another file of a run is damaged or missing, `UserError` if the archive cannot be written.
    The archive is written completely or not at all.
    """
    ordered = sorted(runs, key=lambda run: run.id)
    files: dict[str, Files] = {}
    absent: dict[str, dict[str, str]] = {}
    for run in ordered:
        files[run.id] = {}
        for name in _exported(store, run, weights):
            try:
                files[run.id][name] = _describe(store.read(run, name))
            except DataError as error:
                if not is_beside(name) or is_machines_fault(error):
                    raise
        absent[run.id] = _left_out(store, run, files[run.id])
    beside = {key: _text(one) for key, one in sorted((references or {}).items())}
    described = {key: _describe(content) for key, content in beside.items()}
    manifest = Manifest(study, preset, missing, files, absent, described)

    text = _text(manifest.document())
    if len(text) > LONGEST_MANIFEST or _count(manifest) > MOST_FILES:
        raise UserError(f"{len(ordered)} runs are too many for one archive: export studies, presets or seeds apart")

    def fill(file: IO[bytes]) -> None:
        with _compressed(file, target) as body, tarfile.open(fileobj=body, mode="w", format=tarfile.PAX_FORMAT) as tar:
            _add(tar, MANIFEST, text)
            for run in ordered:
                for name, described in files[run.id].items():
                    content = store.read(run, name)
                    if _describe(content) != described:
                        raise DataError(f"{store.name}: {run.id}/{name} changed while it was exported")
                    _add(tar, f"{RUNS}/{run.id}/{name}", content)
            for key, content in beside.items():
                _add(tar, reference_file(key), content)

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write(target, fill)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror or error}") from error
    return manifest


def unpack(archive: Path, folder: Path, max_size: int = MAX_SIZE) -> Manifest:
    """Unpack into a folder, one directory per run, and verify every file; raises `DataError` at the first wrong one.

    Nothing is unpacked of an archive that declares more than `max_size` bytes. Files unpacked before an error are left
    in the folder, which should be a temporary one.
    """
    with _reading(archive), open_regular(archive) as raw:
        compressed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        body: IO[bytes] = gzip.GzipFile(fileobj=raw) if compressed else raw  # type: ignore[assignment]
        # As a stream: what is read is what was hashed, once and in order.
        with tarfile.open(fileobj=body, mode="r|", tarinfo=_Entry) as tar:
            manifest = _read_manifest(tar, tar.next())
            _check_size(manifest, max_size)
            expected = {
                f"{RUNS}/{run}/{name}": one for run, files in manifest.files.items() for name, one in files.items()
            } | {reference_file(key): one for key, one in manifest.references.items()}
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # tarfile keeps them all
                if not member.isfile():
                    raise DataError(f"holds {member.name!r}, which is not a regular file")
                described = expected.pop(member.name, None)
                if described is None:
                    raise DataError(f"holds {member.name!r}, which its manifest does not list, or which occurs twice")
                _unpack_file(tar, member, described, folder)
            rest = 0
            while block := body.read(BLOCK):  # to the end, where the compression has a checksum, too
                if (rest := rest + len(block)) > BLOCK:  # padding is short
                    raise DataError("continues after its end")
        if expected:
            raise DataError(f"is incomplete: {len(expected)} files are missing, the first is {min(expected)}")
    for name, files in manifest.absent.items():
        (folder / name).mkdir(exist_ok=True)
        if files:
            declare_absent(folder / name, files)
    return manifest


class _Entry(tarfile.TarInfo):
    """An entry of an archive that may come from anywhere: tar's own notes about a file are read as a whole."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type not in tarfile.REGULAR_TYPES and self.size > LONGEST_HEADER:
            raise DataError(f"has a header of {self.size:,} bytes; allowed: {LONGEST_HEADER:,}")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]


def _count(manifest: Manifest) -> int:
    return len(manifest.references) + sum(map(len, manifest.files.values()))


def _check_size(manifest: Manifest, max_size: int) -> None:
    """Refuse, before anything is unpacked, what could fill the disk."""
    if (count := _count(manifest)) > MOST_FILES:
        raise DataError(f"holds {count:,} files; allowed: {MOST_FILES:,}")
    described = itertools.chain(manifest.references.values(), *(one.values() for one in manifest.files.values()))
    if (size := sum(one["size"] for one in described)) > max_size:
        raise DataError(f"holds {amount(size)} of files; allowed: {amount(max_size)} (--max-size)")


def reference_file(key: str) -> str:
    """The place of a reference in an archive, and in the folder that it is unpacked into."""
    return f"{REFERENCES}/{key}.json"


def _text(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"


def _exported(store: Store, run: StoredRun, weights: bool) -> list[str]:
    """The names of the files that go into the archive. Files of damaged rankings are left out.

    Raises `DataError` for what is not a file: a link would bring in another place, and a pipe would be waited for.
    """

    rankings = store.sound_rankings(run)
    sound = {*rankings, *(name for files in rankings.values() for name in files)}

    def belongs(name: str) -> bool:
        if name.startswith(f"{RANKINGS}/") and name.endswith(".json"):
            return name in sound
        if name.startswith(f"{RANKINGS}/"):  # a log
            return ranking_version(name)[0] in run.rankings
        return name != ABSENT and (weights or name != WEIGHTS)

    names = sorted(filter(belongs, store.files(run)))
    if (folder := store.folder_of(run)) is not None:
        for path in (folder / name for name in names):
            if not stat.S_ISREG(path.lstat().st_mode):
                kind = "a symbolic link" if path.is_symlink() else "not a regular file"
                raise DataError(f"{path} is {kind}: put the file itself in its place, or remove it")
    return names


def _left_out(store: Store, run: StoredRun, names: Collection[str]) -> dict[str, str]:
    """The checksums of the weights, if they do not go into the archive."""
    if COMPLETION not in names:
        return {}
    record = parsed(store.read(run, COMPLETION), CompletionDocument)
    missing = {name: one for name, one in record["files"].items() if name not in names and not is_beside(name)}
    if missing.keys() - {WEIGHTS}:
        raise DataError(f"{store.name}: {run.id}/{min(missing.keys() - {WEIGHTS})}: is missing")
    return missing


def _describe(content: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


def _check_names(run: str, files: Collection[str]) -> None:
    """Refuse every name that could lead outside the run's own directory."""
    if not RUN_ID.fullmatch(run):
        raise DataError(f"its manifest names {run!r}, which is not a run id")
    for name in files:
        parts = PurePosixPath(name).parts
        if (
            not parts
            or "/".join(parts) != name
            or any(part.startswith(".") or re.search(r"[\\\0:]", part) for part in parts)
        ):
            raise DataError(f"its manifest names the file {name!r} of run {run}, which could lead outside the run")


@contextmanager
def _compressed(file: IO[bytes], target: Path) -> Iterator[IO[bytes]]:
    if target.suffix not in (".gz", ".tgz"):
        yield file
        return
    # Stores neither name nor time: equal runs give equal bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as body:
        yield body  # type: ignore[misc]


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)  # mode 0644, no owner, time 0
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


@contextmanager
def _reading(archive: Path) -> Iterator[None]:
    """Report what is wrong with an archive in one line that names it."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{archive}: {error}; nothing was imported") from error
    except FileNotFoundError as error:
        raise DataError(f"there is no file {archive}" if not archive.exists() else f"cannot import: {error}") from error
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, OverflowError) as error:
        if isinstance(error, OSError) and error.strerror:  # an error of the system, not of the archive
            raise UserError(f"cannot import {archive}: {error.strerror}") from error
        raise DataError(f"{archive}: cannot be read as an archive of runs ({error}); nothing was imported") from error


def _read_manifest(tar: tarfile.TarFile, first: tarfile.TarInfo | None) -> Manifest:
    if first is not None and first.name == MANIFEST and first.size > LONGEST_MANIFEST:
        raise DataError(f"has a manifest of {amount(first.size)}; allowed: {amount(LONGEST_MANIFEST)}")
    if first is None or first.name != MANIFEST or not first.isfile():
        raise DataError(f"is not an archive of runs: it does not begin with {MANIFEST}")
    content = tar.extractfile(first)
    assert content is not None  # a plain file has content
    return Manifest.read(content.read())


def _unpack_file(tar: tarfile.TarFile, member: tarfile.TarInfo, described: Mapping[str, Any], folder: Path) -> None:
    if member.size != described["size"]:
        raise DataError(f"{member.name} has {member.size} bytes instead of {described['size']}")
    source = tar.extractfile(member)
    assert source is not None  # a plain file has content
    digest = hashlib.sha256()

    def fill(file: IO[bytes]) -> None:
        while block := source.read(BLOCK):
            digest.update(block)
            file.write(block)

    # Safe: the names in the manifest were checked.
    path = folder / member.name.removeprefix(f"{RUNS}/")
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, fill)
    if digest.hexdigest() != described["sha256"]:
        raise DataError(f"{member.name} has another checksum than the manifest says")
