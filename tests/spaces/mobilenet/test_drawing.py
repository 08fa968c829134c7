"""Architectures of the space as drawings: blocks with expansion and kernel, channels above."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from harness.components.discovery import component
from harness.components.registries import SPACES
from harness.components.space import Chain

SPACE: Any = SPACES.get("mobilenet")()
drawing, values = component("reports.render.drawing"), component("reports.figure_values")


def figure(*architectures: tuple[int, ...], space: Any = SPACE) -> Any:
    panels = tuple(values.GraphPanel(f"Net {n}", space.wiring(one)) for n, one in enumerate(architectures))
    return values.FigureValue("searched", "nets", "Searched", "", panels, (), ())


def test_a_chain_has_the_blocks_with_their_channels() -> None:
    chain = SPACE.wiring((3, 6, 6, 0, *(1,) * 16, 5))
    assert isinstance(chain, Chain)
    shown = [(block.label, block.above) for block in chain.blocks]
    assert shown[:4] == [("Conv 3×3", "32"), ("MB1 3×3", "16"), ("MB6 5×5", "24"), ("MB3 3×3", "24")]
    assert shown[-3:] == [("MB6 7×7", "320"), ("Conv 1×1", "1280"), ("Pool, FC", "1000")] and len(shown) == 23
    wide = SPACE.at(SPACE.Network(stage1_width=32)).wiring((3,) * 21)
    assert wide.blocks[2].above == "32"


@pytest.mark.parametrize("form", ["svg", "pdf"])
def test_the_same_drawing_has_the_same_bytes(form: str) -> None:
    reduced: Any = SPACES.get("mobilenet-reduced")()
    one, again, other = (drawing.draw(figure(net, space=reduced), form) for net in ((0,) * 8, (0,) * 8, (1,) * 8))
    assert one == again != other
    if form == "svg":
        assert ElementTree.fromstring(one).tag.endswith("svg")


def test_graphs_and_chains_may_stand_in_one_figure() -> None:
    cell: Any = SPACES.get("nasbench201")()
    panels = (*figure((0,) * 21).panels, values.GraphPanel("Cell", cell.wiring((3,) * 6)))
    assert drawing.draw(values.FigureValue("mixed", "nets", "Both", "", panels, (), ()), "svg")
