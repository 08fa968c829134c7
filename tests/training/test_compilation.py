"""Compiling is asked for by an invocation, and computes the same."""

from __future__ import annotations

from typing import Any

import torch

from harness.components.dataset import DataSet
from harness.study.configuration import RunConfig
from harness.training.compilation import operations_compiled
from harness.training.stages.train import build_supernets

PATH = (3, 2, 1, 3, 4, 2)
CONFIG = RunConfig.from_json({"network": {"width": 4, "depth": 1}})


def compiled(network: torch.nn.Module) -> list[torch.nn.Module]:
    return [module for module in network.modules() if module._compiled_call_impl is not None]


def test_nothing_is_compiled_unless_asked_for(few_digits: DataSet) -> None:
    assert not compiled(build_supernets(CONFIG, few_digits).networks[0])
    with operations_compiled(False):
        assert not compiled(build_supernets(CONFIG, few_digits).networks[0])


def test_compiled_operations_keep_their_weights_and_compute_the_same(few_digits: DataSet) -> None:
    plain: Any = build_supernets(CONFIG, few_digits).networks[0]
    with operations_compiled(True):
        other: Any = build_supernets(CONFIG, few_digits).networks[0]
    parts = compiled(other)
    assert parts
    for part in parts:  # a backend that needs no compiler
        part.compile(backend="eager")
    assert plain.state_dict().keys() == other.state_dict().keys()
    x = torch.randn(8, 1, 8, 8)
    plain.swift = other.swift = False
    assert torch.equal(plain(x, PATH), other(x, PATH))
