"""Forms of methods that were stored before published ones were added: their keys, and what presets take."""

from __future__ import annotations

from typing import Any

import pytest

from harness.components.preset import get_preset
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.study.study import Request

EARLIER: dict[str, dict[str, Any]] = {
    "gdas": {"first_update": "architecture", "temperature_falls": "step", "unneeded": "left"},
    "cream": {"meta_optimiser": "adam", "meta_clip": None},
    "sumnas": {"inner_momentum_kept": False},
    "pa-da": {"tau": "present", "image_norms": "last", "unreached": "halve"},
}
KEYS = {
    "gdas": "8ccf944691df90fc770d3c89244e33b9fe0450225e883c256165d9719ee61419",
    "cream": "127abcc81623e0d9deb4db088388af59919c75fa23bd1cf6f7d2aeb6edd5a4c9",
    "sumnas": "504500e7ac162ac12cba1a105b94811ecb7e0e8649cc12253f2454598e8aca6c",
    "pa-da": "887cf4b39518fb8998a9d2e1d088ebba8127da68f182e15b76732d9c27b65825",
}
"""Of seed 0 of `sota` under `tiny`, before there were options."""


def first_of(name: str, preset: str, overrides: dict[str, Any]) -> Request:
    [study] = find_studies("sota")
    requests = expand(study, get_preset(preset), 1, overrides)
    return next(one for one in requests if one.trial.config.method.name == name)


@pytest.mark.parametrize("name", EARLIER)
def test_an_earlier_form_keeps_its_key(name: str) -> None:
    overrides = {f"method.{option}": value for option, value in EARLIER[name].items()}
    assert first_of(name, "tiny", overrides).trial.key == KEYS[name]


@pytest.mark.parametrize("name", EARLIER)
@pytest.mark.parametrize("preset", ["tiny", "demo", "small", "paper", "official"])
def test_presets_take_the_published_form(name: str, preset: str) -> None:
    options = first_of(name, preset, {}).trial.config.method.options
    assert {option: options[option] for option in EARLIER[name]} != EARLIER[name]
    assert not any(options[option] == value for option, value in EARLIER[name].items())
