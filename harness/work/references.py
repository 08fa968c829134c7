"""Which references of studies are not stored yet, and the attempts that make them. Does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.components.preset import Preset, get_preset
from harness.components.proxy import Finder
from harness.components.registries import PROXIES
from harness.errors import DataError, HarnessError
from harness.stores.directory.reading import read_small
from harness.stores.merged import MergedStore
from harness.stores.store import Store
from harness.stores.stored import StoredRun
from harness.study.references import Reference, reference_names, references_of, stored_document, stored_result
from harness.study.study import Study
from harness.work.assignment import Assignment
from harness.work.attempts import Attempt, Attempts, fresh_folder, remove_folder
from harness.work.jobs import Job, failed
from harness.work.states import Kind

HALVES = 2
"""Jobs of one trial that divide the proxies with passes of networks, so that these use two cores."""


def _job_of(name: str) -> int:
    """Which of a trial's jobs makes the reference: 0 for those without passes of networks and for searches.

    Halves are by the order of rows, because neighbours share computations.
    """
    proxies = {one: PROXIES.get(one) for one in reference_names()}
    passing = [one for one, proxy in proxies.items() if proxy.on_request and not issubclass(proxy, Finder)]
    return 1 + HALVES * passing.index(name) // len(passing) if name in passing else 0


@dataclass
class Missing:
    """The references that a store does not hold, each once, and the jobs that make them: up to three per trial."""

    references: Sequence[Reference]
    store: Store

    def __post_init__(self) -> None:
        self.running: dict[int, Attempt] = {}
        """The attempts under way, by the number of their job."""
        self._by_job: dict[tuple[str, str, str], list[Reference]] = {}
        for one in self.references:
            job = one.trial.key, one.trial.ranking_key, str(_job_of(one.name))
            self._by_job.setdefault(job, []).append(one)

    def __len__(self) -> int:
        return len(self._by_job)

    def jobs(self, attempts: Attempts) -> Iterator[Job]:
        """The jobs; what each makes is stored as soon as it is there, in the directory and in a database."""
        for number, same in enumerate(self._by_job.values()):
            attempt = self.running[number] = Making(attempts, same)
            attempt.prepare([])
            yield attempt.job(number)

    def label(self, number: int) -> str:
        """The name of a job, for readers."""
        one = list(self._by_job.values())[number][0]
        settings = "".join(f" {key}={value}" for key, value in one.group)
        part = f", networks {half} of {HALVES}" if (half := _job_of(one.name)) else ""
        return f"references on {one.trial.config.dataset}{settings} seed {one.seed}{part}"

    def key(self, number: int) -> str:
        """What identifies a job."""
        return "-".join(list(self._by_job)[number])

    def count(self, number: int) -> int:
        """How many references a job makes."""
        return len(list(self._by_job.values())[number])

    def left(self) -> int:
        """How many are still not stored."""
        return sum(stored_result(self.store, one) is None for one in self.references)


class Making(Attempt):
    """Makes the references of one trial. Needs no claim: two workers that make the same one store the same document."""

    kind = Kind.REFERENCE

    def __init__(self, attempts: Attempts, references: Sequence[Reference]) -> None:
        super().__init__(attempts)
        self.references = references
        self._stored: set[str] = set()

    def prepare(self, runs: Sequence[StoredRun]) -> None:
        self.folder = fresh_folder(self.place.directory.path)
        names = tuple(one.name for one in self.references)
        computing = replace(self.attempts.computing, threads=1, ranks=1, timeout=None)
        Assignment(self.kind, self.references[0].trial, computing, references=names).write(self.folder)

    def job(self, number: int) -> Job:
        return replace(super().job(number), threads=1, ranks=1, timeout=None)

    def progressed(self) -> None:
        """Store what has been made so far: it is not made again when this worker is killed."""
        keys, place = {one.name: one.key for one in self.references}, self.place
        stores = [place.directory, *([place.mirrored] if place.has_database else [])]
        for file in sorted(self.folder.glob("*.json")):
            if file.name not in self._stored:
                self._stored.add(file.name)
                made = read_small(file)
                for store in stores:
                    store.remember(keys[made["reference"]], made)

    def end(self, answer: Mapping[str, Any], say: Callable[[str], object]) -> dict[str, Any]:
        try:
            self.progressed()
        except HarnessError as error:
            return failed(error)
        finally:
            remove_folder(self.folder)
        return dict(answer)


def missing_references(
    studies: Sequence[Study],
    preset: Preset | str,
    store: Store,
    seeds: int | None = None,
    overrides: dict[str, Any] | None = None,
    on_request: bool = True,
) -> Missing:
    """The references of these studies that are not stored. One that only one of two places holds is copied.

    Without `on_request` those proxies that take passes of networks are left out, except in studies that show them.

    References whose images or ground truth are not here cannot be made, and are left out.
    """
    wanted: dict[str, Reference] = {}
    for study in studies:
        scale = get_preset(preset, study.about) if isinstance(preset, str) else preset
        for one in references_of(study, scale, store.runs, seeds, overrides, on_request or study.references):
            try:
                wanted.setdefault(one.key, one)
            except DataError:
                continue
    return Missing([one for one in wanted.values() if not _is_everywhere(one, store)], store)


def _is_everywhere(reference: Reference, store: Store) -> bool:
    """Whether the reference is stored: with a database, in both places, because reports read either."""
    places = [store.directory, store.database] if isinstance(store, MergedStore) else [store]
    found = [stored_document(place, reference) for place in places]
    document = next((one for one in found if one is not None), None)
    if document is None:
        return False
    for place, there in zip(places, found, strict=True):
        if there is None:
            place.remember(reference.key, document)
    return True
