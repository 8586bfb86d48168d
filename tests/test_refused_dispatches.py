"""A compiler's refusal of a dispatch: told by line, recorded in a target, avoided by answers."""

from __future__ import annotations

from pathlib import Path

import pytest

import eqsat
from eqsat.execute.compilers.ask import refused_dispatches
from eqsat.extract.selected import first_answer
from eqsat.lang.programs import parse_program
from eqsat.model.compiled import RefusedDispatch
from eqsat.model.diag import EqsatError
from eqsat.model.selection import Selection
from eqsat.model.target import CompilerRefusal, Target
from eqsat.run.refused import logged_about, logged_dispatches, record, refusals_of
from eqsat.run.run import Run
from eqsat.schedule.legal import faults as legality_faults

PROGRAM = "transposed_pack.eqs"
# a machine whose matrix unit wants blocks of 128 by 128, and that says nothing of vectors
BLOCKS = """target: blocks
doc: A machine whose matrix kernels want large blocks.
extends: iree-like
source: made up
data_tiling: true
untiled_rate: 0.05
tiles: {matmul: [{mnk: [128, 128, 1], rate: 1.0}]}
limits: {vector: null, scratch: null}
"""
SAYS = "One or more operations with large vector sizes (8192 bytes) were found"


@pytest.fixture
def blocks(tmp_path: Path) -> Path:
    path = tmp_path / "blocks.yaml"
    path.write_text(BLOCKS)
    return path


def searched(target: Path) -> Run:
    return eqsat.optimize(PROGRAM, target=str(target))


def selection(run: Run) -> Selection:
    assert run.selection is not None
    return run.selection


def ops_of(run: Run) -> list[str]:
    return [d.ops for d in run.need_schedule().dispatches]


# ---- the story of the first thread ---------------------------------------------------------------
@pytest.mark.slow  # six programs by IREE's compiler
def test_refused_recorded_searched_again_compiles(blocks: Path, tmp_path: Path):
    """IREE's compiler for CPUs refuses large vectors; so may not be known before it is asked."""
    pytest.importorskip("iree.compiler")
    run, file = searched(blocks), tmp_path / "refused.yaml"
    assert "contraction+unpack" in ops_of(run)
    first, before = run, [g.value for _, g in selection(run).goals]
    for _ in range(6):
        answer = run.compile_for("x86-64").chosen
        if answer.refused is None:
            break
        assert {r.says for r in answer.refused_dispatches} == {SAYS}
        rows = refusals_of(
            run.need_schedule(), run.target, answer.refused_dispatches, "iree x86-64"
        )
        assert record(file, run.target, rows) == len(rows) > 0
        run = searched(file)
    assert answer.refused is None and answer.kernels
    assert [g.value for _, g in selection(run).goals] > before
    assert run.verify().ok
    faults = list(legality_faults(first.need_schedule(), run.target))
    assert any(SAYS in f and "refused.yaml" in f for f in faults)
    assert not list(legality_faults(run.need_schedule(), run.target))


# ---- rows ----------------------------------------------------------------------------------------
def refused_target(run: Run, number: int, tmp_path: Path) -> Path:
    rows = refusals_of(run.need_schedule(), run.target, [RefusedDispatch(number, SAYS)], "me")
    record(tmp_path / "refused.yaml", run.target, rows)
    return tmp_path / "refused.yaml"


def test_an_answer_has_no_refused_dispatch_and_explains_why(blocks: Path, tmp_path: Path):
    run = searched(blocks)
    number = ops_of(run).index("contraction+unpack")
    other = searched(refused_target(run, number, tmp_path))
    assert "contraction+unpack" not in ops_of(other)
    text = other.explain().to_text()
    assert f"a dispatch of generic %y@128x128 and unpack %y: {SAYS}" in text


def test_a_program_that_cannot_avoid_it_is_a_sentence(tmp_path: Path):
    program = parse_program("program p\ninput a: f32[8, 8]\ny = exp(a)\nreturn y\n", "p.eqs")
    run = eqsat.optimize(program, target="reference")
    file = refused_target(run, 0, tmp_path)
    with pytest.raises(EqsatError, match=f"E410[\\s\\S]*{SAYS[:20]}"):
        eqsat.optimize(program, target=str(file))
    assert run.egraph is not None
    assert first_answer(run.egraph, eqsat.target("reference"), run.goals) is not None
    assert first_answer(run.egraph, eqsat.target(str(file)), run.goals) is None


def test_rows_are_added_and_keep_what_they_extend(blocks: Path, tmp_path: Path):
    base, file = eqsat.target(str(blocks)), tmp_path / "mine.yaml"
    one, two = (CompilerRefusal((f"exp(f32[{n}])",), f"no “{n}”\n", "me") for n in (1, 2))
    assert [record(file, base, [one]), record(file, base, [one, two])] == [1, 1]
    found = eqsat.target(str(file))
    assert found.refused == (one, two)
    assert (found.name, found.tiles, found.rates) == ("mine", base.tiles, base.rates)
    assert Target.from_json(found.to_json()) == found


# ---- whose line it is ----------------------------------------------------------------------------
MODULE = """module {
  func.func @p(%a: tensor<8xf32>) -> tensor<8xf32> {
    // dispatch 0: elementwise
    %b = op
    // dispatch 1, y: contraction
    %c = op
  }
}
"""


def test_an_error_is_about_the_dispatch_above_its_line(tmp_path: Path):
    log = "m.mlir:6:3: error: too large:\nm.mlir:6:3: note: it is\nm.mlir:4:9: error: no\n"
    found = refused_dispatches(log, lambda file: MODULE.splitlines())
    assert found == (RefusedDispatch(1, "too large"), RefusedDispatch(0, "no"))
    (tmp_path / "m.mlir").write_text(MODULE)
    (tmp_path / "log").write_text(log)
    assert logged_dispatches(tmp_path / "log") == found
    assert logged_about(tmp_path / "log", 1) == (RefusedDispatch(1, log.splitlines()[0]),)


@pytest.mark.parametrize(
    ("log", "says"),
    [
        ("all is well\n", "E466.*names no dispatch"),
        ("m.mlir:2:3: error: no\n", "E466.*names no dispatch"),
        ("gone.mlir:6:3: error: no\n", "E466.*`gone.mlir`, which is not here"),
    ],
)
def test_a_log_that_names_no_dispatch_is_a_sentence(tmp_path: Path, log: str, says: str):
    (tmp_path / "m.mlir").write_text(MODULE)
    (tmp_path / "log").write_text(log)
    with pytest.raises(EqsatError, match=says):
        logged_dispatches(tmp_path / "log")


def test_bad_files_and_numbers_are_sentences(blocks: Path, tmp_path: Path):
    base = eqsat.target(str(blocks))
    with pytest.raises(EqsatError, match=r"E467.*left alone"):
        record(blocks, base, [])
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(EqsatError, match=r"E466.*is empty"):
        logged_about(tmp_path / "empty", 0)
    program = parse_program("program p\ninput a: f32[8, 8]\ny = exp(a)\nreturn y\n", "p.eqs")
    run = eqsat.optimize(program, target="reference")
    with pytest.raises(EqsatError, match=r"E466.*no dispatch 3: it has 1"):
        refusals_of(run.need_schedule(), base, [RefusedDispatch(3, "no")], "me")
    blocks.write_text(BLOCKS + "refused: [{ops: [exp], says: no, source: me}]\n")
    with pytest.raises(EqsatError, match=r"blocks.yaml:9:\d+"):
        eqsat.target(str(blocks))
