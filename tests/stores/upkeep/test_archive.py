"""Archives of runs: the same bytes for the same runs, back to the same runs, and nothing from a bad one."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import tarfile
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import DataError, UserError
from harness.stores.directory.run_directory import ABSENT, WEIGHTS, declare_invalid, write_ranking
from harness.stores.directory.store import DirectoryStore
from harness.stores.stored import Problem
from harness.stores.upkeep import archive
from harness.stores.upkeep.archive import MANIFEST, Manifest, export_runs
from harness.stores.upkeep.importing import import_into_directory
from tests.stored_runs import NO_PREDICTIONS, judged

MakeRun = Callable[..., Path]
Members = list[tuple[tarfile.TarInfo, bytes]]


def export(store: DirectoryStore, target: Path, **more: Any) -> Manifest:
    return export_runs(store, store.runs(), target, study="mine", preset="tiny", **more)


def tree(folder: Path) -> dict[str, bytes]:
    """Everything below a folder, hidden files too; but not what readers make of it for themselves."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "index")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def ranked(run: Path, tau: float = 0.25) -> None:
    """Add a further ranking."""
    write_ranking(run, "ab" * 8, {"rank": {}, "benchmark": "x"}, judged(tau), {}, NO_PREDICTIONS)


def repack(source: Path, target: Path, change: Callable[[Members], Iterable[tuple[tarfile.TarInfo, bytes]]]) -> Path:
    """The archive with its members changed."""
    with tarfile.open(source) as tar:
        members = [(entry, (tar.extractfile(entry) or io.BytesIO()).read()) for entry in tar]
    with tarfile.open(target, "w") as tar:
        for entry, content in change(members):
            entry.size = len(content) if entry.isfile() else 0
            tar.addfile(entry, io.BytesIO(content))
    return target


def resealed(members: Members, change: Callable[[dict[str, Any]], None]) -> Members:
    """With a manifest that somebody changed who knows how its checksum is made."""
    from harness.documents import sealed

    document = json.loads(members[0][1])
    change(document)
    return [(members[0][0], json.dumps(sealed(document)).encode()), *members[1:]]


@pytest.mark.parametrize("name", ["paper.tar", "paper.tar.gz"])
def test_what_is_exported_is_imported_file_by_file(
    store: DirectoryStore, make_run: MakeRun, tmp_path: Path, name: str
) -> None:
    ranked(make_run(0))
    declare_invalid(make_run(1), "a wrong seed")
    manifest = export(store, tmp_path / name, missing=["SPOS seed 2: waiting"])
    done = import_into_directory(tmp_path / name, tmp_path / "other" / "runs")
    assert done.added == sorted(manifest.files) == sorted(store.ids())
    assert done.manifest == manifest and done.manifest.missing == ["SPOS seed 2: waiting"]
    assert tree(tmp_path / "other" / "runs") == tree(store.path)
    again = DirectoryStore(tmp_path / "other" / "runs")
    assert again.runs() == store.runs() and again.problems == []


def test_equal_runs_give_equal_bytes_wherever_and_whenever(
    store: DirectoryStore, make_run: MakeRun, tmp_path: Path
) -> None:
    for seed in range(3):
        make_run(seed)
    shutil.copytree(store.path, tmp_path / "copy")
    for path in (tmp_path / "copy").rglob("*"):
        os.utime(path, (1e9, 1e9))
    for name in ("one.tar.gz", "one.tar"):
        export(store, tmp_path / name)
        export_runs(
            DirectoryStore(tmp_path / "copy"),
            DirectoryStore(tmp_path / "copy").runs()[::-1],
            tmp_path / f"other-{name}",
            study="mine",
            preset="tiny",
        )
        assert (tmp_path / name).read_bytes() == (tmp_path / f"other-{name}").read_bytes()
    assert gzip.decompress((tmp_path / "one.tar.gz").read_bytes()) == (tmp_path / "one.tar").read_bytes()
    assert str(tmp_path).encode() not in (tmp_path / "one.tar").read_bytes()


def test_a_run_without_its_weights_is_done_all_the_same_and_gets_them_later(
    store: DirectoryStore, make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run()
    light = export(store, tmp_path / "light.tar", weights=False)
    assert WEIGHTS not in light.files[run.name] and list(light.absent[run.name]) == [WEIGHTS]
    import_into_directory(tmp_path / "light.tar", tmp_path / "other")
    other = DirectoryStore(tmp_path / "other")
    assert [one.counts for one in other.runs()] == [True] and other.problems == []
    assert not (tmp_path / "other" / run.name / WEIGHTS).exists()
    # What has no weights is exported as such, to the same bytes.
    export(other, tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == (tmp_path / "light.tar").read_bytes()
    export(store, tmp_path / "whole.tar")
    assert import_into_directory(tmp_path / "whole.tar", other.path).extended == [run.name]
    assert tree(other.path) == tree(store.path)
    assert import_into_directory(tmp_path / "light.tar", other.path).present == [run.name]
    assert tree(other.path) == tree(store.path)


def test_only_weights_that_are_declared_absent_with_their_checksum_may_be_missing(
    store: DirectoryStore, make_run: MakeRun
) -> None:
    run = make_run()
    (run / WEIGHTS).unlink()
    assert store.runs() == [] and "is missing" in store.problems[0].reason
    (run / ABSENT).write_text(json.dumps({"schema": 2, "files": {WEIGHTS: "0" * 64}}))
    assert store.runs() == []


def test_runs_that_are_there_are_skipped_or_get_the_rankings_they_lack(
    store: DirectoryStore, make_run: MakeRun, tmp_path: Path
) -> None:
    first, second = make_run(0), make_run(1)
    export(store, tmp_path / "before.tar")
    import_into_directory(tmp_path / "before.tar", tmp_path / "other")
    assert import_into_directory(tmp_path / "before.tar", tmp_path / "other").present == sorted(
        [first.name, second.name]
    )
    ranked(first)
    declare_invalid(second, "no")
    make_run(2)
    export(store, tmp_path / "after.tar")
    done = import_into_directory(tmp_path / "after.tar", tmp_path / "other")
    assert (len(done.added), done.extended, done.present) == (1, sorted([first.name, second.name]), [])
    assert DirectoryStore(tmp_path / "other").runs() == store.runs()
    # What is only here stays.
    assert import_into_directory(tmp_path / "before.tar", tmp_path / "other").extended == []
    assert DirectoryStore(tmp_path / "other").runs() == store.runs()


@pytest.mark.parametrize("what", ["result", "ranking"])
def test_the_same_id_with_other_content_is_an_error_that_names_it(
    store: DirectoryStore, make_run: MakeRun, tmp_path: Path, what: str
) -> None:
    runs = [make_run(seed) for seed in range(3)]
    ranked(runs[1])
    export(store, tmp_path / "runs.tar")
    if what == "ranking":
        shutil.rmtree(runs[1] / "rankings")
        ranked(runs[1], tau=0.75)
    else:
        (runs[1] / "result.json").write_text("{}")
    shutil.rmtree(runs[2])
    before = tree(store.path)
    with pytest.raises(DataError, match=f"run {runs[1].name} already exists, but .*; nothing was imported"):
        import_into_directory(tmp_path / "runs.tar", store.path)
    assert tree(store.path) == before


def _cut(members: Members) -> Members:
    return members[:-1]


def _forge_file(members: Members) -> Members:
    entry, content = members[-1]
    return [*members[:-1], (entry, content[:-1] + b"?")]


def _forge_manifest(members: Members) -> Members:
    return [(members[0][0], members[0][1].replace(b"tiny", b"full")), *members[1:]]


def _add_file(members: Members) -> Members:
    return [*members, (tarfile.TarInfo("../outside"), b"evil")]


def _add_twice(members: Members) -> Members:
    return [*members, members[-1]]


def _add_link(members: Members) -> Members:
    link = tarfile.TarInfo(members[-1][0].name)
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return [*members[:-1], (link, b"")]


def _lead_out(members: Members) -> Members:
    def change(document: dict[str, Any]) -> None:
        run = next(iter(document["runs"].values()))
        run["files"]["../../outside"] = run["files"].pop("cell.json")

    return resealed(members, change)


def _lead_out_by_run(members: Members) -> Members:
    def change(document: dict[str, Any]) -> None:
        document["runs"]["../outside"] = document["runs"].popitem()[1]

    return resealed(members, change)


def _newer(members: Members) -> Members:
    return resealed(members, lambda document: document.update(schema=3))


def _odd_missing(members: Members) -> Members:
    return resealed(members, lambda document: document.update(missing=5))


def _odd_size(members: Members) -> Members:
    def change(document: dict[str, Any]) -> None:
        next(iter(document["runs"].values()))["files"]["cell.json"]["size"] = "big"

    return resealed(members, change)


def _inconsistent(members: Members) -> Members:
    """Whole as an archive, but its run is not what its completion record says."""
    import hashlib

    index, (entry, content) = next((i, m) for i, m in enumerate(members) if m[0].name.endswith("/result.json"))
    content = content.replace(b"0.5", b"0.9")

    def change(document: dict[str, Any]) -> None:
        run = next(iter(document["runs"].values()))
        run["files"]["result.json"]["sha256"] = hashlib.sha256(content).hexdigest()

    return resealed([*members[:index], (entry, content), *members[index + 1 :]], change)


def _long_header(members: Members) -> Members:
    """A note about a file that tar would read as a whole."""
    entry, content = members[-1]
    entry.pax_headers = {"comment": "x" * (1 << 20)}
    return [*members[:-1], (entry, content)]


def _pipe(members: Members) -> Members:
    pipe = tarfile.TarInfo(members[-1][0].name)
    pipe.type = tarfile.FIFOTYPE
    return [*members[:-1], (pipe, b"")]


def _no_manifest(members: Members) -> Members:
    return members[1:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_cut, "is incomplete: 1 files are missing"),
        (_forge_file, "has another checksum than the manifest says"),
        (_forge_manifest, "its manifest is not the one that was written"),
        (_add_file, "holds '../outside', which its manifest does not list"),
        (_add_twice, "which its manifest does not list, or which occurs twice"),
        (_add_link, "which is not a regular file"),
        (_lead_out, "which could lead outside the run"),
        (_lead_out_by_run, "which is not a run id"),
        (_newer, "has schema 3; this version of the harness reads up to 2"),
        (_inconsistent, "result.json: has another checksum than the completion record says"),
        (_long_header, "has a header of 1,048"),
        (_pipe, "which is not a regular file"),
        (_no_manifest, "does not begin with manifest.json"),
        (_odd_missing, "its manifest missing: expected `array`, got `int`"),
        (_odd_size, "files[...].size: expected `int`, got `str`"),
    ],
)
def test_nothing_of_a_bad_archive_is_imported(
    store: DirectoryStore,
    make_run: MakeRun,
    tmp_path: Path,
    change: Callable[[Members], Members],
    message: str,
) -> None:
    make_run()
    export(store, tmp_path / "good.tar")
    bad = repack(tmp_path / "good.tar", tmp_path / "bad.tar", change)
    before = tree(tmp_path)
    with pytest.raises(DataError) as caught:
        import_into_directory(bad, tmp_path / "other")
    text = str(caught.value)
    assert text.startswith(f"{bad}: ") and message in text and text.endswith("; nothing was imported")
    assert "\n" not in text
    assert tree(tmp_path) == before and list((tmp_path / "other").iterdir()) == []


@pytest.mark.parametrize("name", ["runs.tar", "runs.tgz"])
def test_an_archive_that_is_cut_or_damaged_anywhere_is_refused(
    store: DirectoryStore, make_run: MakeRun, tmp_path: Path, name: str
) -> None:
    make_run()
    export(store, tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    # A plain archive ends in blocks of zeros, which hold nothing.
    length = len(whole.rstrip(b"\0")) if name.endswith(".tar") else len(whole)
    for part in range(1, 20):
        cut = tmp_path / f"cut-{part}-{name}"
        cut.write_bytes(whole[: length * part // 20])
        damaged = tmp_path / f"damaged-{part}-{name}"
        at = length * part // 20
        damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        for bad in (cut, damaged):
            try:
                import_into_directory(bad, tmp_path / "other")
            except DataError as error:
                assert "nothing was imported" in str(error) and "\n" not in str(error)
            else:  # a byte of a header that nothing is read from: then it is all there
                assert bad is damaged and tree(tmp_path / "other") == tree(store.path)
                shutil.rmtree(tmp_path / "other")
    if name.endswith(".tgz"):
        (tmp_path / "end").write_bytes(whole[:-1])
        with pytest.raises(DataError, match="cannot be read as an archive of runs"):
            import_into_directory(tmp_path / "end", tmp_path / "other")


def test_something_else_than_an_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no archive\n" * 100)
    with pytest.raises(DataError, match="cannot be read as an archive of runs"):
        import_into_directory(tmp_path / "text", tmp_path / "other")
    with pytest.raises(DataError, match="there is no file"):
        import_into_directory(tmp_path / "nothing", tmp_path / "other")


def test_a_damaged_run_is_not_exported_and_no_half_archive_is_left(
    store: DirectoryStore, make_run: MakeRun, tmp_path: Path
) -> None:
    runs = [make_run(0), make_run(1)]
    stored = store.runs()
    (runs[1] / WEIGHTS).write_bytes(b"weighty")
    with pytest.raises(DataError, match="another checksum"):
        export_runs(store, stored, tmp_path / "runs.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    with pytest.raises(UserError, match="cannot write"):
        export_runs(store, stored[:1], runs[0] / "cell.json" / "runs.tar")


def test_the_manifest_can_be_read_by_hand(store: DirectoryStore, make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run()
    export(store, tmp_path / "runs.tar")
    with tarfile.open(tmp_path / "runs.tar") as tar:
        names = tar.getnames()
        document = json.loads((tar.extractfile(MANIFEST) or io.BytesIO()).read())
    assert names[0] == MANIFEST and names[1:] == sorted(names[1:])
    assert (document["schema"], document["study"], document["preset"]) == (1, "mine", "tiny")
    assert document["runs"][run.name]["files"].keys() == store.files(store.runs()[0]).keys()


def test_an_archive_that_is_too_large_is_refused_before_anything_is_unpacked(
    store: DirectoryStore, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run()
    manifest = export(store, tmp_path / "runs.tar")
    size = sum(one["size"] for one in manifest.files[run.name].values())
    with pytest.raises(DataError, match=r"holds .* of files; allowed: .* \(--max-size\); nothing was imported"):
        import_into_directory(tmp_path / "runs.tar", tmp_path / "other", max_size=size - 1)
    monkeypatch.setattr(archive, "MOST_FILES", len(manifest.files[run.name]) - 1)
    with pytest.raises(DataError, match="files; allowed: "):
        import_into_directory(tmp_path / "runs.tar", tmp_path / "other")
    with pytest.raises(UserError, match="1 runs are too many for one archive"):
        export(store, tmp_path / "again.tar")
    monkeypatch.undo()
    monkeypatch.setattr(archive, "LONGEST_MANIFEST", 100)
    with pytest.raises(DataError, match="has a manifest of .*; allowed: 100 bytes"):
        import_into_directory(tmp_path / "runs.tar", tmp_path / "other")
    monkeypatch.undo()
    assert list((tmp_path / "other").iterdir()) == []
    assert import_into_directory(tmp_path / "runs.tar", tmp_path / "other", max_size=size).added == [run.name]


def test_what_follows_the_end_of_an_archive_is_not_read_for_ever(
    store: DirectoryStore, make_run: MakeRun, tmp_path: Path
) -> None:
    make_run()
    export(store, tmp_path / "runs.tar")
    with gzip.open(tmp_path / "long.tar.gz", "wb", compresslevel=1) as file:
        file.write((tmp_path / "runs.tar").read_bytes() + bytes(3 << 20))
    with pytest.raises(DataError, match="continues after its end; nothing was imported"):
        import_into_directory(tmp_path / "long.tar.gz", tmp_path / "other")


def test_memory_does_not_grow_with_the_archive(store: DirectoryStore, make_run: MakeRun, tmp_path: Path) -> None:
    for _ in range(2):
        run = make_run()
        (run / "notes").write_bytes(bytes(32 << 20))  # zeros: the archive is small
    export(store, tmp_path / "runs.tar")
    tracemalloc.start()
    try:
        import_into_directory(tmp_path / "runs.tar", tmp_path / "other")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.symlink_to("/etc/hostname"), "notes.txt is a symbolic link: put the file itself"),
        (os.mkfifo, "notes.txt is not a regular file: put the file itself"),
    ],
)
def test_only_files_are_exported(
    store: DirectoryStore, make_run: MakeRun, tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    make(make_run() / "notes.txt")
    with pytest.raises(DataError, match=message):
        export(store, tmp_path / "runs.tar")
    assert not (tmp_path / "runs.tar").exists()


def test_a_pipe_is_neither_read_as_a_run_nor_as_an_archive(
    store: DirectoryStore, make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run()
    (run / "cell.json").unlink()
    os.mkfifo(run / "cell.json")
    problems: list[Problem] = []
    assert store.load(None, problems) == []
    assert problems == [Problem(str(run / "cell.json"), "cannot be read: not a regular file")]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="cannot import .*pipe: not a regular file"):
        import_into_directory(tmp_path / "pipe", tmp_path / "other")
