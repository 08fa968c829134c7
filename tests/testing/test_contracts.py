"""Our own components keep the contracts that `harness check` asks of a user's."""

from __future__ import annotations

from typing import Any

import pytest

from harness.components.registries import REGISTRIES
from harness.data.inspection import presences
from harness.testing.components import ComponentSuite

SLOW = ("autoformer", "darts", "mobilenet", "exhaustive")
"""Spaces whose networks take seconds per step on a CPU, and the search of a whole space."""

SETTINGS = {"embedding": {"space": "autoformer-reduced"}, "darts-none": {"network.depth": 3}}
"""What components need that do not fit the default space, or that have no preset."""

KINDS = ("methods", "searches", "samplers", "schedules", "cluster-rules", "spaces")
OURS = [(kind, name) for kind in KINDS for name in REGISTRIES[kind].names()]
OURS += [("datasets", one.name) for one in presences() if one.state == "embedded"]


def parameter(kind: str, name: str) -> Any:
    marks = [pytest.mark.long] if kind in ("spaces", "searches") and name in SLOW else []
    return pytest.param((kind, name, SETTINGS.get(name, {})), id=f"{kind} {name}", marks=marks)


class TestOurs(ComponentSuite):
    @pytest.fixture(params=[parameter(kind, name) for kind, name in OURS])
    def component(self, request: pytest.FixtureRequest) -> Any:
        return request.param


def test_every_kind_has_some() -> None:
    assert {kind for kind, _ in OURS} == {*KINDS, "datasets"}
    assert {("methods", "spos"), ("spaces", "nasbench201"), ("datasets", "digits")} <= set(OURS)
