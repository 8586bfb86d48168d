"""Machine code of kernels: its inner loops, what they do, and what the price assumed of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

import eqsat
from eqsat.cli import run as cli
from eqsat.execute.kernels.machinecode import innermost_loops, kernel_code
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError
from eqsat.plan.innerloop import CodeLoop, MachineCode, PricedLoop
from eqsat.run.kernelcode import machine_codes

X86 = """
kernel:
	xorl	%eax, %eax
.LBB0_1:
	movq	%rdi, %rcx
.LBB0_2:                                # =>  inner
	vmovups	(%rsi,%rcx), %ymm0
	vbroadcastss	4(%rdx), %ymm1
	vfmadd231ps	%ymm0, %ymm1, %ymm2
	vfmadd231ps	32(%rsi,%rcx), %ymm1, %ymm3
	vmulps	(%rsp), %ymm2, %ymm4          # spilled
	vmovups	%ymm4, (%rdi)
	movq	8(%rsp), %r8
	prefetcht0	(%r8)
	addq	$8, %rcx
	jne	.LBB0_2
	vaddps	(%rsi), %ymm2, %ymm2
	decq	%rax
	jne	.LBB0_1
	retq
"""
ARM = """
kernel:
.LBB0_1:
	ldp	q0, q1, [x1], #32
	ldr	q2, [sp, #16]
	ldr	x9, [x2]
	fmla	v4.4s, v0.4s, v2.s[0]
	fmla	v5.4s, v1.4s, v2.s[1]
	str	q4, [x3]
	subs	x8, x8, #1
	b.ne	.LBB0_1
	ret
"""


def test_loops_that_hold_no_other_are_counted():
    (x86,) = innermost_loops(X86, "x86_64")
    counts = (x86.instructions, x86.multiply_adds, x86.loads, x86.stores, x86.on_stack)
    assert (x86.label, *counts) == (".LBB0_2", 10, 2, 4, 1, 1)
    assert x86.text.splitlines()[0].startswith(".LBB0_2") and "retq" not in x86.text
    (arm,) = innermost_loops(ARM, "aarch64")
    assert (arm.instructions, arm.multiply_adds, arm.loads, arm.stores, arm.on_stack) == (
        8, 2, 3, 1, 1,
    )  # fmt: skip
    assert innermost_loops("kernel:\n\tretq\n", "x86_64") == ()


def test_a_price_stands_behind_the_loop_that_it_is_of():
    loops = (CodeLoop(".L1", 60, 20, 14, 0, 0, ""), CodeLoop(".L2", 40, 12, 8, 2, 2, ""))
    code = MachineCode(0, "a", "", "cpu", "", loops, (PricedLoop("tile 6x2", 12, 8),))
    assert [row[0].strip() for row in code.rows()] == [".L1", ".L2", "price of tile 6x2, 1 points"]
    assert list(code.rows())[2][2:] == ("12", "8", "0", "0")


PROGRAM = """
program layers
input x: f32[48, 256]
weight v: f32[256, 320]
a = matmul(x, v)
b = tanh(a)
return b
"""


def searched(target: str) -> eqsat.Run:
    source = eqsat.Source(parse_program(PROGRAM))
    return eqsat.optimize(source, target=target, rules=(), settings=("fusion.members=1",))


@pytest.mark.parametrize(("target", "register"), [("avx2", "%ymm"), ("avx512", "%zmm")])
def test_the_code_has_the_multiply_adds_and_loads_of_the_price(target: str, register: str):
    """Also of a target that this machine may not run."""
    run = searched(target)
    code = kernel_code(run.schedule, 0, run.target.machine)
    loop, (price,) = code.loops[0], code.priced
    points = loop.multiply_adds / price.multiply_adds
    assert points == int(points) >= 1
    assert (loop.loads, loop.stores, loop.on_stack) == (points * price.loads, 0, 0)
    assert register in loop.text
    assert code.plan == run.schedule.dispatches[0].plan.to_text()
    assert kernel_code(run.schedule, 1, run.target.machine).priced == ()  # of rows: additions


def test_code_is_shown_beside_the_plan_and_on_the_page(tmp_path: Any, capsys: Any):
    run = searched("avx2")
    folder = str(run.save(tmp_path / "run"))
    assert cli(["show", folder, "dispatch", "0"]) == 0
    plain = capsys.readouterr().out
    assert plain.startswith("dispatch 0 contraction (")
    assert plain in run.schedule.to_text() and "machine code" not in plain
    assert cli(["show", folder, "dispatch", "0", "--asm"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(plain + "machine code for ")
    assert "  price of tile " in text and "vfmadd231ps" in text
    assert cli(["show", folder, "dispatch", "0", "--asm", "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["code"]["loops"][0]["multiply_adds"] > 0
    assert found["code"]["plan"] == run.schedule.dispatches[0].plan.to_text()
    page = tmp_path / "page.html"
    assert cli(["report", folder, "--asm", "-o", str(page), "-q"]) == 0
    assert "<h2>Machine code</h2>" in page.read_text(encoding="utf-8")
    assert len(machine_codes(run)) == 2


@pytest.mark.parametrize(
    "wrong", [["schedule", "--asm"], ["dispatch"], ["program", "3"], ["dispatch", "--asm"]]
)
def test_a_number_and_asm_are_of_a_dispatch(wrong: list[str], capsys: Any):
    assert cli(["show", "nowhere", *wrong]) == 2
    assert "a number and `--asm` are of a dispatch" in capsys.readouterr().err


def test_what_is_no_kernel_has_no_code():
    run = searched("reference")
    with pytest.raises(EqsatError, match=r"E428.*reference plans no kernels"):
        eqsat.run.kernelcode.machine_code_of(run, 0, "run")
