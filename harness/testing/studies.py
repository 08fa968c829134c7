"""Checks of a study: the presets that it expands under, and the first step of its rows. Stores nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.components.preset import Preset, presets_of
from harness.errors import UserError
from harness.study.configuration import RunConfig
from harness.study.fingerprints import are_here
from harness.study.study import Study
from harness.testing.training import TINY, attempt, few_images, shrunk
from harness.work.findings import Checks
from harness.work.plan import Plan, make_plan

ROWS = 8
"""Rows whose first step is tried."""


def check_study(found: Checks, study: Study, overrides: Mapping[str, Any]) -> None:
    """Check that some preset fits, and that rows train."""
    plans, refusals = _plans(study, overrides)
    if not plans:
        _, reason = next(iter(refusals.items()))
        found.problem(f"expands under no preset: {reason}")
        return
    for name, reason in refusals.items():
        found.note(f"does not fit preset {name}: {reason}")
    for name, plan in plans.items():
        found.ok(f"expands under preset {name} to {len(plan.work)} trials per seed")
    usable = {name: plan for name, plan in plans.items() if all(are_here(w.trial.config.dataset) for w in plan.work)}
    if not usable:
        found.note("no row is tried: the images of every preset are missing; see `harness data`")
        return
    name = TINY if TINY in usable else next(iter(usable))
    configs = _rows(usable[name])
    if len(configs) > ROWS:
        found.note(f"the first {ROWS} of {len(configs)} different rows are tried")
    for label, config in list(configs.items())[:ROWS]:
        with found.check(f"takes the first step of {label} under preset {name}"):
            attempt(shrunk(config), few_images(config.dataset), enough=1)


def check_preset(found: Checks, preset: Preset, overrides: Mapping[str, Any]) -> None:
    """Check that the preset's settings make a valid configuration."""
    from harness.study.layout import Row

    with found.check(f"makes a valid configuration of {preset.space}"):
        study = Study("check", "check", [Row({"": "trial"}, {})], [], space=preset.space)
        make_plan([study], preset, [], seeds=1, overrides=overrides)


def _plans(study: Study, overrides: Mapping[str, Any]) -> tuple[dict[str, Plan], dict[str, str]]:
    """The study's plan under each preset that fits, and why the others do not."""
    plans, refusals = {}, {}
    for name in presets_of(study.about):
        try:
            plans[name] = make_plan([study], name, [], seeds=1, overrides=overrides)
        except UserError as error:
            refusals[name] = " ".join(str(error).split())
    return plans, refusals


def _rows(plan: Plan) -> dict[str, RunConfig]:
    """One configuration per row that trains a supernet, by its label."""
    return {work.label: work.trial.config for work in plan.work if work.trial.start is None}
