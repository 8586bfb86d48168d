"""What a TPU's compiler does to bytes: narrow values, fused reductions and pads, VMEM, in place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from seeds import seeds

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.lang.requests import override
from eqsat.lang.targets import load_target
from eqsat.model.diag import EqsatError
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.plan.planner import weight_classes
from eqsat.plan.storage import narrowed_types
from eqsat.run.compiling import predicted
from eqsat.schedule.legal import faults
from eqsat.schedule.mainmemory import placed_peak_bytes

ROWS = 32768
RELU = "generic({x}, loops=[{m}, {n}], maps=[[d0, d1]], body=max(x0, 0.0))"
BOTH = "generic({x}, {z}, loops=[{m}, {n}], maps=[[d0, d1], [d0, d1]], body={body})"


@pytest.fixture(scope="module")
def tpu() -> Target:
    return load_target("tpu-v5e")


def schedule_of(text: str, target: Target, rules: tuple[str, ...] = ("policy/keep",)) -> Schedule:
    run = eqsat.optimize(parse_program(text), target=target, rules=rules, threads=1, time_limit=20)
    assert run.schedule is not None
    assert not faults(run.schedule, target)
    return run.schedule


def chain(dtype: str = "f32", precision: str = "", more: str = "") -> str:
    """Two products with a relu between; more: a line that reads it too, and makes `z`."""
    return (
        f"input x: {dtype}[{ROWS}, 512]\ninput a: {dtype}[512, 2048]\ninput b: {dtype}[2048, 512]\n"
        f"y = matmul(x, a{precision})\nr = {RELU.format(x='y', m=ROWS, n=2048)}\n{more}"
        f"o = matmul(r, b{precision})\nreturn o{', z' if more else ''}\n"
    )


def kinds(ops: str) -> list[str]:
    """The roots of a dispatch."""
    return [k for k in ops.split("+") if k in ("contraction", "reduction")]


def temporary_bytes(schedule: Schedule) -> list[int]:
    return sorted(b.nbytes for b in schedule.temporaries)


# ---- values in a narrower type (XLA:TPU: bf16[32768,2048] between both products) ----------------
def test_what_rounding_products_read_alone_is_kept_narrow(tpu: Target) -> None:
    assert temporary_bytes(schedule_of(chain(), tpu)) == [ROWS * 2048 * 2]
    assert temporary_bytes(schedule_of(chain("bf16"), tpu)) == [ROWS * 2048 * 2]


@pytest.mark.parametrize(
    "text",
    [
        chain(precision=", precision=highest"),
        chain(more=f"z = {RELU.replace('max', 'mul').format(x='r', m=ROWS, n=2048)}\n"),
    ],
    ids=["precise", "read by another op"],
)
def test_what_something_else_reads_is_as_it_is(text: str, tpu: Target) -> None:
    assert temporary_bytes(schedule_of(text, tpu))[-1] == ROWS * 2048 * 4


@pytest.mark.parametrize("rules", seeds(1, ["full", "default"]))
@pytest.mark.parametrize("rows", [1, 16])
def test_a_gate_is_narrow_only_if_a_product_is_behind_every_choice(
    rules: str, rows: int, tpu: Target
) -> None:
    """Rules find forms of the products that are none; whichever is chosen, the checker agrees."""
    gate = BOTH.format(x="y", z="u", m=rows, n=512, body="mul(max(x0, 0.0), x1)")
    text = (
        f"input x: f32[{rows}, 128]\nweight a: f32[128, 512]\nweight b: f32[128, 512]\n"
        f"weight c: f32[512, 128]\ny = matmul(x, a)\nu = matmul(x, b)\n"
        f"g = {gate}\no = matmul(g, c)\nreturn o\n"
    )
    assert not faults(schedule_of(text, tpu, (rules,)), tpu)


def test_a_narrow_value_is_a_fault_where_the_target_keeps_none(tpu: Target) -> None:
    schedule = schedule_of(chain(), tpu)
    assert tpu.padding is not None
    plain = replace(tpu, padding=replace(tpu.padding, narrowed=()))
    assert any("134,217,728 bytes" in f for f in faults(schedule, plain))
    assert Schedule.from_json(schedule.to_json()) == schedule


def test_an_arena_has_narrow_values_beside_it(tpu: Target) -> None:
    small = chain().replace(str(ROWS), "16").replace("2048", "128").replace("512", "64")
    run = eqsat.optimize(
        parse_program(small), target=replace(tpu, executor="arena"), rules=("policy/keep",),
        threads=1, time_limit=20,
    )  # fmt: skip
    assert run.schedule is not None
    assert dict(run.schedule.narrowed)
    assert run.verify(samples=1).ok


# ---- what shares a kernel with a product ---------------------------------------------------------
REDUCED = (
    f"input x: bf16[{ROWS}, 512]\ninput a: bf16[512, 1024]\ny = matmul(x, a)\n"
    f"s = generic(y, loops=[{ROWS}, 1024], rank=1, maps=[[d0, d1]], body=x0, combine=add)\n"
    "return s\n"
)


def test_a_reduction_behind_a_product_is_in_its_kernel(tpu: Target) -> None:
    schedule = schedule_of(REDUCED, tpu)
    assert [kinds(d.ops) for d in schedule.dispatches] == [["contraction", "reduction"]]
    alone = override(tpu, ["fusion.output_reductions=0"])
    assert len(schedule_of(REDUCED, alone).dispatches) == 2
    assert any("fusion.roots" in f for f in faults(schedule, alone))


def test_two_products_do_not_share_a_kernel(tpu: Target) -> None:
    text = REDUCED.replace("return s", "input b: bf16[512, 1024]\nt = matmul(x, b)\nreturn s, t")
    assert len(schedule_of(text, tpu).dispatches) == 2


FRONT = (
    f"input x: bf16[{ROWS}, 512]\ninput a: bf16[512, 1024]\ninput b: bf16[512, 1024]\n"
    f"r = {RELU.format(x='x', m=ROWS, n=512)}\ny = matmul(r, a)\nz = matmul(r, b)\nreturn y, z\n"
)


def test_what_is_in_front_of_products_is_computed_in_each(tpu: Target) -> None:
    schedule = schedule_of(FRONT, tpu)
    ops = [d.ops for d in schedule.dispatches]
    assert [o.startswith("elementwise+contraction") for o in ops] == [True, True]
    assert not schedule.temporaries
    every = override(tpu, ["fusion.staged=0"])
    assert len(schedule_of(FRONT, every).temporaries) == 1


def test_what_a_product_stages_is_no_result(tpu: Target) -> None:
    schedule = schedule_of(FRONT, tpu)
    first, second = schedule.dispatches
    made = first.members[0]
    wrong = replace(schedule, dispatches=(replace(first, writes=(*first.writes, made)), second))
    buffer = replace(schedule.buffers[0], node=made, role="temporary", first=0, last=0)
    wrong = replace(wrong, buffers=(*schedule.buffers, buffer))
    assert any("staged in scratch" in f for f in faults(wrong, tpu))


PADDED = """input x: bf16[8, 30, 30, 128]
input f: bf16[3, 3, 128, 128]
p = pad(x, low=[0, 1, 1, 0], high=[0, 1, 1, 0], value={value})
y = generic(p, f, loops=[8, 30, 30, 128, 3, 3, 128], rank=4, maps=[[d0, d1 + d4, d2 + d5, d6], [d4, d5, d6, d3]], body=mul(x0, x1), combine=add)
return y
"""  # noqa: E501


def test_a_pad_of_zeros_is_a_convolution_s_own(tpu: Target) -> None:
    assert len(schedule_of(PADDED.format(value=0), tpu).dispatches) == 1
    assert len(schedule_of(PADDED.format(value=1), tpu).dispatches) == 2
    alone = override(tpu, ["fusion.pads=false"])
    schedule = schedule_of(PADDED.format(value=0), tpu)
    assert any("by no permutation of its loops" in f for f in faults(schedule, alone))


# ---- where temporaries lie -----------------------------------------------------------------------
def gated(rows: int, width: int = 4096, body: str = "mul(x0, x1)", more: str = "") -> str:
    both = BOTH.format(x="g", z="u", m=rows, n=width, body=body)
    return (
        f"input x: bf16[{rows}, 1024]\ninput a: bf16[1024, {width}]\ninput b: bf16[1024, {width}]\n"
        f"input c: bf16[{width}, 1024]\ng = matmul(x, a)\nu = matmul(x, b)\n"
        f"m = {both}\no = matmul(m, c)\n{more}return o\n"
    )


def brought(schedule: Schedule) -> int:
    return sum(b.nbytes for b in schedule.buffers if b.role != "temporary")


def test_an_elementwise_step_writes_over_its_operand(tpu: Target) -> None:
    """XLA:TPU states 268,435,456 bytes of temporaries for a gate of this size."""
    schedule = schedule_of(gated(ROWS), tpu)
    assert placed_peak_bytes(schedule, tpu) == brought(schedule) + ROWS * 4096 * 2
    apart = override(tpu, ["placing.in_place=false"])
    assert placed_peak_bytes(schedule, apart) == schedule.peak_bytes
    assert predicted(schedule, tpu).peak_bytes < schedule.peak_bytes


def test_a_product_does_not_write_over_what_it_reads(tpu: Target) -> None:
    """XLA:TPU states both temporaries: the product reads rows that others would have written."""
    both = BOTH.format(x="y", z="t", m=65536, n=2048, body="add(x0, x1)")
    text = (
        "input x: bf16[65536, 1024]\ninput a: bf16[1024, 2048]\ninput b: bf16[2048, 2048]\n"
        f"input c: bf16[2048, 1024]\ny = matmul(x, a)\nt = matmul(y, b)\nz = {both}\n"
        "o = matmul(z, c)\nreturn o\n"
    )
    schedule = schedule_of(text, tpu)
    assert placed_peak_bytes(schedule, tpu) == schedule.peak_bytes == brought(schedule) + 2**29


@pytest.mark.parametrize(("rows", "kept"), [(8192, 0), (10240, 0), (11264, 1), (24576, 1)])
def test_temporaries_are_beside_main_memory_while_all_fits(
    rows: int, kept: int, tpu: Target
) -> None:
    """As XLA:TPU has it of a gate of 2,048 columns: how many of both lie in HBM."""
    schedule = schedule_of(gated(rows, 2048), tpu)
    assert placed_peak_bytes(schedule, tpu) == brought(schedule) + kept * rows * 2048 * 2
    none = override(tpu, ["placing.scratchpad=0 B", "placing.in_place=false"])
    assert placed_peak_bytes(schedule, none) == schedule.peak_bytes


# ---- contradictions ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("padding: {narrowed: {f32: bf16}}", "names no precision"),
        ("padding: {narrowed: {bf16/default: f32}}", "is not narrower than"),
        ("fusion: {row_reductions: 2}", "`staged` computes again"),
        ("fusion: {row_block: 8}", "rows in scratch hold"),
    ],
)
def test_what_contradicts_is_refused(line: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_text(f"target: other\nextends: tpu-v5e\ndoc: Another.\nsource: Invented.\n{line}\n")
    with pytest.raises(EqsatError) as refused:
        load_target(file)
    assert any(words in d.message for d in refused.value.diagnostics)
    assert {d.code for d in refused.value.diagnostics} == {"E221"}


def test_a_slice_of_a_product_is_narrow_as_the_product_is(tpu: Target) -> None:
    """Rules that stack weights make slices of products; the price of what was there stays."""
    lines = ["input x: f32[512, 256]", *(f"weight {w}: f32[256, 256]" for w in "ab")]
    lines += ["p = matmul(x, a)", "q = matmul(x, b)", "t = transpose(q, perm=[1, 0])"]
    program = parse_program("\n".join([*lines, "s = matmul(p, t)", "return s"]))
    narrow: list[set[int]] = []
    for rules in ("default", "full"):
        found = eqsat.optimize(program, target=tpu, rules=rules, stop_after="egraph").egraph
        assert found is not None
        assert tpu.padding is not None
        kept = narrowed_types(found, tpu.padding, weight_classes(found))
        narrow.append({i for i, c in enumerate(found.values) if c in kept})
    assert any(n.op == "slice" for n in found.nodes)
    assert narrow[0] == narrow[1] == {3, 4, 5}  # both products and the transpose
