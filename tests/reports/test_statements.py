"""The statements file names what is there, and the paper's own numbers bear it out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.components.discovery import component
from harness.components.registries import SCHEDULES, SPACES
from harness.errors import DataError
from harness.study.catalogue import all_studies

numbers: Any = component("reports.paper.numbers")
statements: Any = component("reports.paper.statements")

DATASETS = ("cifar10", "cifar100", "imagenet16-120", "imagenet")
STUDIES = {study.name: study for study in all_studies()}
UNSHOWN = {"gradient_spread", "momentum_spread_within", "stage_seconds.train"} | {
    f"valid_{what}_{size}" for what in ("loss", "accuracy") for size in ("small", "large")
}
"""Metrics that runs have, and that tables need not show."""


UNMEASURED = {
    "Figure 3(b): γ = 1, a linearly decaying rate, belongs to subnets near the centre of complexity": (
        "it follows from Eq. 4 to 6 and no run can change it: γ = 1 at 0.830 M parameters as the released code counts "
        "them, the centre is 0.799 M. The figure of the study gamma_grid draws it"
    ),
}
"""Statements of the paper that no study tests, and the reason of each."""


def terms(statement: Any) -> list[Any]:
    return [term for pair in statement.pairs for side in pair.sides for term in side.terms]


def every(holds: Callable[[Any], bool]) -> list[str]:
    """The statements for which it does not hold."""
    return [statement.id for statement in statements.statements() if not holds(statement)]


def test_every_table_has_a_statement() -> None:
    named = {statement.where for statement in statements.statements()}
    assert {table.name for table in numbers.tables()} <= named


def test_no_statement_is_without_a_study_or_a_reason() -> None:
    assert every(lambda statement: statement.study in STUDIES) == []
    named = {statement.where for statement in statements.statements()}
    assert {f"Figure {figure}" for figure in statements.FIGURES} | set(statements.SECTIONS) <= named
    for text, reason in UNMEASURED.items():
        assert text.partition(":")[0] not in named and len(reason) > 50


def test_premises_are_known_and_of_statements_that_a_gain_is_claimed_in() -> None:
    premises = component("reports.paper.premises").PREMISES
    assert every(lambda statement: set(statement.premises) <= premises.keys()) == []
    gains = [one for one in statements.statements() if re.search("CaLR|MS |clusters by operation", one.text)]
    without = {one.id for one in gains if not one.premises and one.kind not in ("factor_at_most", "lower")}
    assert without == {"retrain-cosine"}  # about training networks alone


def test_gamma_is_1_near_the_centre_of_complexity() -> None:
    """Figure 3(b), as `UNMEASURED` says it."""
    space, count = SPACES.get("nasbench201")(), "parameters-released"
    slope, offset = SCHEDULES.get("calr")(complexity=count).coefficients(space)
    low, high = space.complexity_range(count)
    linear, centre = math.exp((1 - offset) / slope) / 1e6, (low + high) / 2e6
    assert (f"{linear:.3f}", f"{centre:.3f}") == ("0.830", "0.799") and abs(linear - centre) < (high - low) / 40e6
    (reason,) = UNMEASURED.values()
    assert f"{linear:.3f} M" in reason and f"{centre:.3f} M" in reason


def test_a_statement_belongs_to_the_study_of_its_table() -> None:
    studies = {table.name: table.study for table in numbers.tables()}
    assert every(lambda statement: studies.get(statement.where, statement.study) == statement.study) == []


def test_statements_on_tables_name_rows_of_the_paper() -> None:
    rows = {table.name: [dict(row.labels) for row in table.rows] for table in numbers.tables()}
    assert every(lambda c: c.where not in rows or all(dict(t.labels) in rows[c.where] for t in terms(c))) == []


def test_statements_name_rows_and_metrics_of_the_studies_that_are_here() -> None:
    wrong = []
    for statement in statements.statements():
        if statement.study not in STUDIES:
            continue
        study = STUDIES[statement.study]
        for term in terms(statement):
            if dict(term.labels) not in [dict(row.labels) for row in study.rows]:
                wrong.append((statement.id, dict(term.labels)))
            if term.metric not in {column.metric for column in study.columns} | UNSHOWN:
                wrong.append((statement.id, term.metric))
    assert wrong == []


def test_rows_of_the_paper_are_rows_of_the_studies_that_are_here() -> None:
    wrong = []
    for table in numbers.tables():
        study = STUDIES.get(table.study)
        if study is not None:
            rows = [dict(row.labels) for row in study.rows]
            wrong += [(table.name, dict(row.labels)) for row in table.rows if dict(row.labels) not in rows]
            shown = {column.metric for column in study.columns}
            wrong += [(table.name, column.metric) for column in table.columns if column.metric not in shown]
    assert wrong == []


def test_the_papers_own_numbers_bear_out_every_statement_that_they_concern() -> None:
    borne_out: dict[str, set[bool]] = {}
    for statement in statements.statements():
        for pair in statement.pairs:
            for dataset in DATASETS:
                effect = statements.printed_effect(statement, pair, dataset)
                if effect is not None:
                    borne_out.setdefault(statement.id, set()).add(effect > 0)
    assert [name for name, outcomes in borne_out.items() if outcomes != {True}] == []
    # Figures of spread, time and curves have no printed numbers, sections neither; every statement on a table has, but
    # for overheads that the text beside Tables B and C calls marginal.
    unprinted = every(lambda statement: statement.id in borne_out or not statement.where.startswith("Table"))
    assert unprinted == ["darts-memory", "darts-time", "autoformer-memory", "autoformer-time"]


@pytest.mark.parametrize(
    ("statement_id", "dataset", "effect"),
    [
        ("main-tau", "cifar10", 0.063),
        ("main-memory", "cifar10", 1.05 - 1901 / 1875),
        ("unfair-calr-cb", "cifar10", 0.13),
        ("unfair-reversed-c3", "cifar10", 0.03),
        ("unfair-baseline-c3", "cifar10", 0.19),
        ("clustering-random-no-gain", "cifar10", 0.011),
        ("clustering-random-varies", "cifar10", 0.011),
        ("momentum-fairnas-loses-least", "cifar10", 0.113),
        ("main-memory", "cifar100", None),
        ("curves-gradients", "cifar10", None),
    ],
)
def test_the_effect_by_the_papers_numbers(statement_id: str, dataset: str, effect: float | None) -> None:
    (statement,) = [statement for statement in statements.statements() if statement.id == statement_id]
    assert statements.printed_effect(statement, statement.pairs[0], dataset) == pytest.approx(effect)


def broken(file: Path, **changes: Any) -> str:
    """What the loader says of a statement with something changed."""
    document = [one for one in json.loads((statements.FILE).read_text()) if one["id"] == "main-memory"]
    file.write_text(json.dumps([document[0] | changes]))
    with pytest.raises(DataError) as caught:
        statements.load(file)
    assert str(file) in str(caught.value)
    return str(caught.value)


def test_a_wrong_statement_is_told_and_which(tmp_path: Path) -> None:
    file = tmp_path / "statements.json"
    assert "statement 1 (main-memory): the paper has no 'Table 9'" in broken(file, where="Table 9")
    assert "the kind is 'better'; allowed: higher" in broken(file, kind="better")
    assert "need a bound" in broken(file, bound=None)
    assert "need a bound" in broken(file, kind="higher")
    assert "need a reference" in broken(file, reference=0.5)
    assert "our reading" in broken(file, reading="")
    assert "lower-case words" in broken(file, id="Main Memory")
    assert "no pairs to compare" in broken(file, pairs=[])
    assert "list of two sides" in broken(file, pairs=[[{"Ours": True}]])
    assert "is neither the labels" in broken(file, pairs=[[{"Ours": 1}, {}]])
    assert "lists of labels" in broken(file, each={"Method": "SPOS"})
    assert "wrong type" in broken(file, metric=None)
    file.write_text("{}")
    with pytest.raises(DataError, match="expected a list of statements"):
        statements.load(file)
    one = json.loads((statements.FILE).read_text())[0]
    file.write_text(json.dumps([one, one]))
    with pytest.raises(DataError, match="two statements are named 'mobilenet-top1'"):
        statements.load(file)


def test_a_row_of_a_statement_may_have_a_metric_of_its_own(tmp_path: Path) -> None:
    document = json.loads((statements.FILE).read_text())[0]
    document["pairs"] = [[{"Ours": True, "@metric": "flops"}, {"Ours": True}]]
    (tmp_path / "statements.json").write_text(json.dumps([document]))
    (statement,) = statements.load(tmp_path / "statements.json")
    assert [term.metric for term in terms(statement)[:2]] == ["flops", "retrained_accuracy"]
    assert dict(terms(statement)[0].labels) == {"Method": "SPOS-S", "Ours": True}
