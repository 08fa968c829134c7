"""What trials cost before they run: hours of each, and by what they are estimated. Does not import torch.

A trial's time is taken from the first of these that knows it: done trials of the same kind, a calibration, hours
that its preset states, and then what is known of other kinds, by images. What none of them knows stays unknown, and is
counted apart.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from harness.components.preset import HOUR, Hours, Preset
from harness.data.inspection import image_counts
from harness.stores.stored import Status, StoredRun
from harness.study.configuration import RunConfig
from harness.work.effort import effort, kind_of
from harness.work.states import Kind, Work

SAME, OTHERS = "done trials of the same kind", "done trials of other kinds, by images"
CALIBRATED = "a few seconds of training on this machine"
BY_PASSES = "{}; of other trainings, by passes over the images"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Estimated:
    """About how long a trial takes, and how that is known."""

    seconds: float | None
    """None if it is not known."""
    source: str = UNKNOWN


@dataclass
class Estimator:
    """Estimates trials one by one. `presets` are those of the studies, by the study's name."""

    runs: Sequence[StoredRun]
    presets: Mapping[str, Preset]
    calibrated: Mapping[str, float] = field(default_factory=dict)
    """Seconds by the trial's key, measured here."""

    def __post_init__(self) -> None:
        self._counts = cache(image_counts)  # ImageNet has thousands of folders to look at
        self._known: dict[tuple[str, int, str, bool], Estimated] = {}

    def of(self, work: Work) -> Estimated:
        """The estimate of a trial that is to be trained; a ranking of stored weights is not known."""
        if work.kind() is not Kind.TRAIN:
            return Estimated(None)
        named, config = work.named, work.trial.config
        place = (named.study, named.row, config.dataset, config.retrain is None)  # the same for all seeds
        if place not in self._known:
            self._known[place] = self._estimated(work)
        return self._known[place]

    def _estimated(self, work: Work) -> Estimated:
        config = work.trial.config
        kind, known = kind_of(config.json()), effort(config, self._counts)
        images = known.images if known else None
        ways: tuple[Callable[[], Estimated | None], ...] = (
            lambda: _by_runs(self._done_by_kind.get(kind, ()), images, SAME),
            lambda: _calibrated(self.calibrated.get(work.trial.key)),
            lambda: self._as_published(work, exactly=True),
            lambda: _by_runs(self._done_by_preset.get(self._preset(work).name, ()), images, OTHERS),
            lambda: self._as_published(work, exactly=False),
        )
        return next((found for way in ways if (found := way()) is not None), Estimated(None))

    @cached_property
    def _done(self) -> list[StoredRun]:
        return [run for run in self.runs if run.status is Status.DONE and run.cost]

    @cached_property
    def _done_by_kind(self) -> dict[str, list[StoredRun]]:
        found = defaultdict(list)
        for run in self._done:
            found[kind_of(run.trial["config"])].append(run)
        return found

    @cached_property
    def _done_by_preset(self) -> dict[str, list[StoredRun]]:
        found = defaultdict(list)
        for run in self._done:
            found[run.preset].append(run)
        return found

    def _preset(self, work: Work) -> Preset:
        return self.presets[work.named.study]

    def _as_published(self, work: Work, exactly: bool) -> Estimated | None:
        """By the hours that the preset states for such trials, or for others on the same data set."""
        config = work.trial.config
        document = config.json()
        stated = [one for one in self._preset(work).hours if one.settings.get("dataset") == config.dataset]
        if exactly:
            stated = [one for one in stated if config.retrain is None and _fits(one.settings, document)]
            stated.sort(key=lambda one: -len(one.settings))
        if not stated:
            return None
        best: Hours = stated[0]
        source = best.source if exactly else BY_PASSES.format(best.source)
        ranked = config.benchmark is not None and config.retrain is None
        hours = best.hours * self._passes(config) / best.passes + (best.ranking if ranked else 0.0)
        return Estimated(hours * HOUR, source)

    def _passes(self, config: RunConfig) -> float:
        """How often the trial's training passes the training images of its data set."""
        counts = self._counts(config.dataset) or {"train": 1_000_000, "valid": 0}
        known = effort(config, lambda name: counts)
        return known.images / counts["train"] if known else 0.0


def _calibrated(seconds: float | None) -> Estimated | None:
    return None if seconds is None else Estimated(seconds, CALIBRATED)


def _by_runs(runs: Sequence[StoredRun], images: int | None, source: str) -> Estimated | None:
    """The mean of what these runs took, each for as many images; what does not grow with training is added as it is."""
    if not runs:
        return None
    total = 0.0
    for run in runs:
        cost: Mapping[str, Any] = run.cost or {}
        stages = cost.get("stage_seconds") or {}
        after = sum(float(stages.get(stage, 0.0)) for stage in ("rank", "search"))
        grows = images / cost["images"] if images and cost.get("images") else 1.0
        total += after + max(0.0, float(cost["wall_seconds"]) - after) * grows
    return Estimated(total / len(runs), source)


def published_hours(preset: Preset, config: RunConfig) -> float | None:
    """The device-hours that the paper has for such a training; None if it has none."""
    document = config.json()
    stated = [one for one in preset.hours if one.published is not None and _fits(one.settings, document)]
    return max(stated, key=lambda one: len(one.settings)).published if stated else None


def _fits(settings: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    """Whether a configuration has these values."""

    def value(key: str) -> Any:
        found: Any = document
        for part in key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found

    return all(value(key) == wanted for key, wanted in settings.items())


@dataclass(frozen=True)
class Budget:
    """Some work with the estimate of each trial."""

    work: Sequence[Work]
    by_key: Mapping[str, Estimated]

    @property
    def known(self) -> list[Work]:
        return [one for one in self.work if self.by_key[one.trial.key].seconds is not None]

    @property
    def unknown(self) -> int:
        """How many trials are not estimated."""
        return len(self.work) - len(self.known)

    @property
    def seconds(self) -> float | None:
        """Of all known trials one after the other; None if none is known."""
        return sum(map(self._seconds, self.known)) if self.known else None

    def of(self, study: str) -> Budget:
        """The part that a study asks for."""
        return Budget([one for one in self.work if any(r.study == study for r in one.requests)], self.by_key)

    @property
    def sources(self) -> dict[str, int]:
        """By how it is known, how many trials; the unknown ones last."""
        found: dict[str, int] = {}
        for one in sorted(self.work, key=lambda one: self.by_key[one.trial.key].seconds is None):
            source = self.by_key[one.trial.key].source
            found[source] = found.get(source, 0) + 1
        return found

    @property
    def critical_path(self) -> list[Work]:
        """The chain of trials, each starting from the one before, that takes longest: nothing ends sooner."""
        here = {one.trial.key: one for one in self.work}

        def chain(one: Work) -> list[Work]:
            start = one.trial.start
            parent = None if start is None else here.get(start.key)
            return [*(chain(parent) if parent else []), one]

        return max(map(chain, self.work), key=lambda path: sum(map(self._seconds, path)), default=[])

    def length(self, path: Sequence[Work]) -> float:
        """Seconds of a chain, as far as they are known."""
        return sum(map(self._seconds, path))

    def on(self, devices: int) -> float:
        """Seconds until the last trial ends: each device takes the next trial that can begin, in the plan's order."""
        number = {one.trial.key: place for place, one in enumerate(self.work)}
        children: dict[int, list[int]] = defaultdict(list)
        ready = []
        for place, one in enumerate(self.work):
            start = one.trial.start
            if start is not None and start.key in number:
                children[number[start.key]].append(place)
            else:
                ready.append(place)
        running: list[tuple[float, int]] = []
        now = 0.0
        while ready or running:
            while ready and len(running) < devices:
                place = heapq.heappop(ready)
                heapq.heappush(running, (now + self._seconds(self.work[place]), place))
            now, ended = heapq.heappop(running)
            for child in children[ended]:
                heapq.heappush(ready, child)
        return now

    def _seconds(self, work: Work) -> float:
        return self.by_key[work.trial.key].seconds or 0.0


def budget(work: Sequence[Work], estimator: Estimator) -> Budget:
    """The budget of some work, each trial of which stands in it once."""
    return Budget(work, {one.trial.key: estimator.of(one) for one in work})
