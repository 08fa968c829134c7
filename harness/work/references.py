"""Which references of studies are not stored yet, as jobs of an executor. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.components.preset import Preset, get_preset
from harness.errors import DataError
from harness.stores.merged import MergedStore
from harness.stores.store import Store
from harness.study.references import Reference, references_of, stored_document, stored_result
from harness.study.study import Study
from harness.work.jobs import Job

KIND = "reference"
"""The kind of these jobs, in their documents."""


@dataclass
class Missing:
    """The references that a store does not hold, each once, and the jobs that make them: one per trial."""

    references: Sequence[Reference]
    store: Store

    def __post_init__(self) -> None:
        self._by_trial: dict[tuple[str, str], list[Reference]] = {}
        for one in self.references:
            self._by_trial.setdefault((one.trial.key, one.trial.ranking_key), []).append(one)

    def __len__(self) -> int:
        return len(self._by_trial)

    def jobs(self, directory: Path, mongo: str | None, device: str | None = None) -> Iterator[Job]:
        """The jobs; each stores what it makes in the directory, and in the database if there is one.

        `device` is None for the CPU.
        """
        for number, same in enumerate(self._by_trial.values()):
            document = {
                "kind": KIND,
                "trial": same[0].trial.json(),
                "keys": {one.name: one.key for one in same},
                "store": str(directory.absolute()),
                "mongo": mongo,
                "device": device,
                "threads": 1,
            }
            yield Job(number, document)

    def label(self, number: int) -> str:
        """The name of a job, for readers."""
        one = list(self._by_trial.values())[number][0]
        settings = "".join(f" {key}={value}" for key, value in one.group)
        return f"references on {one.trial.config.dataset}{settings} seed {one.seed}"

    def key(self, number: int) -> str:
        """What identifies a job."""
        return "-".join(list(self._by_trial)[number])

    def count(self, number: int) -> int:
        """How many references a job makes."""
        return len(list(self._by_trial.values())[number])

    def left(self) -> int:
        """How many are still not stored."""
        return sum(stored_result(self.store, one) is None for one in self.references)


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
