"""Shows whether the summary of a mirrored run is what the run's own files say.

Lists and tables read nothing but the summary. Its checksum, beside it, shows damage at little cost. Whoever changes a
summary can make the checksum fit, too; so `store check` makes each summary again from the files in the same document,
which have the checksums of the completion record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from harness.documents import flatten, parsed, problem
from harness.errors import DataError
from harness.schema import (
    CompletionDocument,
    InvalidDocument,
    MirroredDocument,
    RankingDocument,
    ResultDocument,
    RunDocument,
    Seal,
    TrialDocument,
)
from harness.stores.directory.reading import is_beside, not_listed, summary_of, wrong_trial
from harness.stores.directory.run_directory import (
    COMPLETION,
    INFO,
    INVALID,
    RANKINGS,
    RESULT,
    RUN,
    SOURCES,
    TRIAL,
    WEIGHTS,
    is_ranking,
    ranking_version,
)
from harness.stores.mongo.snapshot import COMPLETE, explained, phase_of
from harness.stores.stored import OPEN, Status

Entries = Mapping[str, Mapping[str, Any]]
"""What the database knows about a run's files, by name."""
Read = Callable[[str], bytes]
"""Gives the content of a file, verified by its checksum. Raises `DataError`."""

CHANGING = ("heartbeat", "start_time", "stop_time", "fail_trace", "recorded")
"""The keys of a summary that may be older than the files of a run that has not ended well."""


def seal(own: Mapping[str, Any]) -> Seal:
    """The checksums of a mirrored run: of the files that its summary is made from, and of the summary."""
    entries = [entry for part in ("documents", "files") for entry in own.get(part) or ()]
    lines = sorted(f"{one['name']} {one['sha256']}\n" for one in entries if _is_summarised(one["name"]))
    files = hashlib.sha256("".join(lines).encode()).hexdigest()
    return {"files": files, "summary": _digest(own, files)}


def is_sealed(own: Mapping[str, Any]) -> bool:
    """Whether the summary of a mirrored run has the checksum beside it. Older documents have none."""
    written = own.get("seal")
    return isinstance(written, dict) and written.get("summary") == _digest(own, written.get("files"))


def from_files(entries: Entries, read: Read) -> dict[str, Any]:
    """The summary that these files of a run give, as `reading.summarise` gives it for a directory.

    Rankings that cannot be used are left out. Raises `DataError` that names the file.
    """
    trial = _document(TRIAL, TrialDocument, read)
    if (wrong := wrong_trial(trial, trial["run_id"])) is not None:
        raise DataError(f"{TRIAL}: {wrong}")
    run = _document(RUN, RunDocument, read) if RUN in entries else {}
    result: dict[str, Any] | None = None
    further: dict[str, dict[str, Any]] = {}
    if COMPLETION in entries:
        record = _document(COMPLETION, CompletionDocument, read)["files"]
        if (wrong := not_listed(record)) is not None:
            raise DataError(f"{COMPLETION}: {wrong}")
        for name, checksum in record.items():
            needed = name != WEIGHTS and not is_beside(name)
            there = entries.get(name, {}).get("sha256", None if needed else checksum)
            if there != checksum:
                raise DataError(f"{name}: {'is missing' if there is None else 'is not the file of'} {COMPLETION}")
        result = _document(RESULT, ResultDocument, read)
        further = _rankings(entries, read)
    invalid = _document(INVALID, InvalidDocument, read)["reason"] if INVALID in entries else None
    info = _document(INFO, None, read) if INFO in entries else {}
    return summary_of(trial, run, result, further, invalid, info, partial(_sources, entries, read))


def _sources(entries: Entries, read: Read) -> Iterator[bytes]:
    """The copies of the run's source files that can be read."""
    for name in sorted(entries):
        if name.startswith(f"{SOURCES}/"):
            with suppress(DataError):
                yield read(name)


def wrong_document(own: Mapping[str, Any], entries: Entries) -> str | None:
    """What is wrong with a mirrored run by itself, for the reader; None if nothing is. New ones have no content yet."""
    if own.get("revision") == 0 and "summary" not in own:
        return None
    if (wrong := problem(MirroredDocument, own)) is not None:
        return wrong
    if phase_of(own["revision"]) >= COMPLETE and own["revision"] > explained(entries):
        return f"its revision is {own['revision']}, but none of its files is as new as that"
    if own["cell16"] != own["run_id"][:16]:
        return f"is about trial {own['cell16']}"
    return None if own.get("seal") in (None, seal(own)) else "the checksum of its summary is wrong"


def contradiction(summary: Mapping[str, Any], made: Mapping[str, Any]) -> str | None:
    """The first difference between a summary and that of the run's files, for the reader; None if there is none.

    Summaries of older versions lack some keys.
    """
    done = Status.DONE.value in (summary["recorded"], made["recorded"])
    for key, value in made.items():
        if key not in summary:
            continue
        told = summary[key]
        if key == "recorded" and not done and told == OPEN:
            continue
        if key in CHANGING and key != "recorded" and not done:
            continue
        if key == "recomputed":
            told, value = sorted(told), sorted(value)
        if told != value:
            return _difference(key, told, value)
    return None


def _difference(key: str, told: Any, made: Any) -> str:
    theirs, ours = ({f"{key}.{inner}": item for inner, item in _flat(one)} for one in (told, made))
    names = [name for name in {**ours, **theirs} if theirs.get(name) != ours.get(name)]
    name = names[0] if names else key
    says, has = (_short(values.get(name, one)) for values, one in ((theirs, told), (ours, made)))
    return f"its summary says {name.removesuffix('.')} {says}, its files say {has}"


def _flat(value: Any) -> Iterable[tuple[str, Any]]:
    return flatten(value).items() if isinstance(value, Mapping) else [("", value)]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}…"


def _rankings(entries: Entries, read: Read) -> dict[str, dict[str, Any]]:
    found = {}
    for name in sorted(filter(is_ranking, entries), key=ranking_version):
        try:
            document = _document(name, RankingDocument, read)
        except DataError:
            continue
        beside = {f"{RANKINGS}/{other}": checksum for other, checksum in document["files"].items()}
        if all(entries.get(other, {}).get("sha256") == checksum for other, checksum in beside.items()):
            found[ranking_version(name)[0]] = document
    return found


def _document(name: str, kind: type | None, read: Read) -> dict[str, Any]:
    content = read(name)
    try:
        return parsed(content, kind)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


def _is_summarised(name: str) -> bool:
    return name in (TRIAL, RUN, RESULT, COMPLETION, INVALID) or name.startswith(f"{RANKINGS}/")


def _digest(own: Mapping[str, Any], files: Any) -> str:
    get = own.get
    about = f"{files}\n{get('run_id')}\n{get('invalid')!r}\n{get('problems')!r}\n{get('summary')}"
    return hashlib.sha256(about.encode(errors="surrogatepass")).hexdigest()
