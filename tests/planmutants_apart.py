"""Mutants of planner and generator: they are made, applied, taken back, and told."""

from __future__ import annotations

import pytest
from fuzz import codemutants, planmutants, recordmutants
from fuzz.codemutants import CodeMutant, applied, function_of, mutants_of

from eqsat.model.tensor import cdiv
from eqsat.plan.contraction import Blocking


def mutant(module: str, function: str, kind: str, number: int = 0) -> CodeMutant:
    wanted = function, kind, number
    return next(m for m in mutants_of(module) if (m.function, m.kind, m.number) == wanted)


def test_a_mutant_is_one_change_of_one_function() -> None:
    found = list(mutants_of("eqsat.model.tensor"))
    texts = {m.text for m in found if m.function == "cdiv"}
    assert "-(-a // b) -> a // b" in texts and "-a // b -> -a % b" in texts
    assert len({(m.function, m.kind, m.number) for m in found}) == len(found)
    assert not any(m.function.endswith("to_json") for m in found)


def test_every_kind_of_change_is_made_somewhere() -> None:
    found = {m.kind for _, name in planmutants.modules() for m in mutants_of(name)}
    assert found == set(codemutants.KINDS)


def test_a_mutant_is_applied_to_what_everybody_holds_and_taken_back() -> None:
    assert cdiv(7, 2) == 4
    with applied(mutant("eqsat.model.tensor", "cdiv", "a ceiling")):
        assert cdiv(7, 2) == 3  # though it was imported by name before
    assert cdiv(7, 2) == 4


def test_methods_properties_and_caches_are_reached() -> None:
    module = "eqsat.plan.contraction"
    for name in ("window", "width", "panels_along"):
        assert function_of(module, f"Blocking.{name}").__qualname__ == f"Blocking.{name}"
    assert function_of("eqsat.plan.stages", "additions_of").__name__ == "additions_of"
    assert isinstance(Blocking.__dict__["window"].func, type(function_of))


@pytest.fixture(scope="module")
def products() -> planmutants.Known:
    return planmutants.known(range(1), ("row_blocks",))


VERDICTS = ("refused", "caught", "crashes", "raises", "right", "same")
TOLD = (
    ("eqsat.ops.nests.nest", "_NestBuilder.__init__", "a number + 1", 1, "refused"),
    ("eqsat.plan.rowblocks", "RowExtents.panels", "a ceiling", 0, "refused"),
    ("eqsat.execute.kernels.rowblocks", "Items.block", "a count - 1", 0, "caught"),
)


@pytest.mark.parametrize("case", TOLD, ids=lambda c: c[0])
def test_what_is_wrong_by_one_is_told(
    case: tuple[str, str, str, int, str], products: planmutants.Known
) -> None:
    module, function, kind, number, wanted = case
    row = planmutants.verdict(mutant(module, function, kind, number), products)
    assert row["verdict"] == wanted, row


def test_records_changed_by_one_are_refused_or_caught(products: planmutants.Known) -> None:
    own = products.cases[0]
    assert own.nest is not None and own.plan is not None
    assert not list(recordmutants.faults(own.program, own.nest))
    for record in (own.nest, own.plan):
        every = list(recordmutants.variants(record))
        assert len(every) > 20 and all(new != record for _, new in every)
    few = planmutants.Known(products.cases[:3], {})
    found = [r["verdict"] for r in recordmutants.verdicts(few, 4, 0)]
    assert len(found) == 24 and set(found) <= set(VERDICTS)
    assert found.count("refused") > 6


def test_what_the_code_is_now_is_not(products: planmutants.Known) -> None:
    """The same cases pass as they are, and a change of what is only asked for changes nothing."""
    assert products.cases and not products.alarms
    one = mutant("eqsat.plan.rowblocks", "RowExtents.chunks", "a ceiling")
    assert planmutants.verdict(one, products)["verdict"] == "same"
