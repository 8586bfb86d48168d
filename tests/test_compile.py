"""Compilers of devices that are not here: what their answers are read as, and how they fail."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from seeds import seeds

import eqsat
from eqsat.cli import run as command
from eqsat.execute.compilers import ask, hlo
from eqsat.execute.compilers.ask import NVIDIA, TPUS, description
from eqsat.execute.executable import XlaExecutable
from eqsat.execute.expressions import lowered_for
from eqsat.export.write import merged
from eqsat.model.compiled import Compiled, Figures
from eqsat.model.diag import EqsatError
from eqsat.model.oracle import COMPILERS, Oracle, oracle_of, parse_oracle
from eqsat.model.schedule import Schedule
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.report.text import summary_text

TPU = """HloModule jit_f, entry_computation_layout={(f32[8,128]{1,0:T(8,128)})->f32[8,128]{1,0}}

%body (p: (f32[8,128])) -> (f32[8,128]) {
  %p = (f32[8,128]{1,0}) parameter(0)
  %g = f32[8,128]{1,0} get-tuple-element(%p), index=0
  %inner = f32[8,128]{1,0} fusion(%g), kind=kLoop, backend_config={"estimated_cycles":"7"}
  ROOT %t = (f32[8,128]{1,0}) tuple(%inner)
}

%condition (p: (f32[8,128])) -> pred[] {
  %p = (f32[8,128]{1,0}) parameter(0)
  ROOT %c = pred[] constant(true)
}

ENTRY %main (x: f32[8,128]) -> f32[8,128] {
  %x = f32[8,128]{1,0:T(8,128)} parameter(0)
  %copy-start = (f32[8,128]{1,0:T(8,128)S(1)}, f32[8,128]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%x)
  %copy-done = f32[8,128]{1,0:T(8,128)S(1)} copy-done(%copy-start)
  %near = f32[8,128]{1,0:T(8,128)} copy(%copy-done), backend_config={"estimated_cycles":"100"}
  %turned = f32[8,128]{0,1:T(8,128)S(1)} copy(%near), backend_config={"estimated_cycles":"30"}
  %f = (f32[8,128]{1,0}, f32[8]{0}) fusion(%turned, %x), kind=kOutput, calls=%fused, backend_config={"window_config":{"estimated_cycles":"3569"},"used_scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"2883584"}]}
  %one = f32[8,128]{1,0} get-tuple-element(%f), index=0
  %both = f32[8,128]{1,0} custom-call(%one), custom_call_target="ConcatBitcast", backend_config={}
  %soft = f32[8,128]{1,0:T(8,128)} custom-call(%both), custom_call_target="tpu_custom_call", backend_config={"custom_call_config":{"body":"bW9k(=="}}
  ROOT %done = f32[8,128]{1,0} fusion(%soft), kind=kLoop, backend_config={"estimated_cycles":"1"}
}
"""  # noqa: E501 - as XLA writes it
LOOPED = TPU.replace(
    "  ROOT %done",
    "  %i = (f32[8,128]{1,0}) tuple(%soft)\n"
    "  %w = (f32[8,128]{1,0}) while(%i), condition=%condition, body=%body\n  ROOT %done",
)
PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'a' for 'sm_90a'
ptxas info    : Function properties for a
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 42 registers, used 1 barriers
ptxas info    : Function properties for b
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, 528 bytes smem
"""
THUNKS = """000: kCommandBuffer [source | sink]
001: kCustomKernel [source | next=002 (1)] gemm grid: [4608, 1, 1] threads: [64, 1, 1]  shared_memory: 1024 bytes
002: kGemm [prev=001 (1) | sink ] cublas
003: kCustomKernel [prev=002 (1) | sink ] fusion_32 grid: [128, 1, 1] threads: [256, 1, 1]  shared_memory: 4096 bytes
"""  # noqa: E501 - as XLA writes it
ROCM = """
    .amdhsa_group_segment_fixed_size 7
  - .agpr_count:     0
    .group_segment_fixed_size: 50688
    .name:           one
    .sgpr_spill_count: 3
    .vgpr_count:     96
    .vgpr_spill_count: 2
  - .agpr_count:     0
    .group_segment_fixed_size: 0
    .vgpr_count:     110
    .vgpr_spill_count: 0
"""
IREE = {
    "stream-aggregate": {
        "global": {"constant-count": 1, "constant-size": 180736, "variable-size": 0},
        "execution": {"transient-memory-size": 5735424, "fill-count": 1, "dispatch-count": 5},
    }
}
V5E = Oracle("libtpu", "v5e")


# -- what compilers write -------------------------------------------------------------------------


def test_kernels_cycles_scratch_and_copies_of_optimised_hlo():
    found = hlo.module_figures(TPU, 4096, counts_cycles=True)
    assert found == Figures(
        kernels=5, peak_bytes=4096, scratch_bytes=2883584, cycles=100 + 30 + 3569 + 1,
        uncounted=("tpu_custom_call f32[8,128]",), relayout_copies=1,
    )  # fmt: skip


def test_a_loop_runs_unknown_times_so_cycles_are_a_lower_bound():
    found = hlo.module_figures(LOOPED, 1, counts_cycles=True)
    assert found.kernels == 6
    assert found.uncounted == ("tpu_custom_call f32[8,128]", "while (f32[8,128])")


def test_a_text_without_an_entry_is_refused():
    with pytest.raises(EqsatError, match="no ENTRY computation"):
        hlo.module_figures("HloModule m", 1, counts_cycles=True)


def test_registers_spills_and_shared_memory_of_ptxas_and_of_xlas_steps():
    assert hlo.most(hlo.assembled(PTXAS)) == (255, 20)
    assert hlo.launches(THUNKS) == (3, 4096)
    assert hlo.most(()) == (None, None)


def test_figures_of_iree():
    found = ask.figures_of(IREE, ROCM, "gfx942", 1000)
    assert found.kernels == 5
    assert found.peak_bytes == 1000 + 180736 + 5735424
    assert (found.scratch_bytes, found.registers) == (50688, 110)
    assert found.spill_bytes == 4 * (64 * 2 + 3)
    assert ask.refusal("x.mlir:3:1: error: no such op\nnote: y") == "no such op"


def test_the_peak_is_of_main_memory():
    sizes = {"argument": 100, "output": 10, "temp": 0, "alias": 10}
    assert ask.main_memory_bytes(sizes | {"peak": 900}) == 100  # 800 are in VMEM
    assert ask.main_memory_bytes(sizes | {"temp": 64, "peak": 130}) == 130
    assert ask.main_memory_bytes(sizes | {"peak": 0}) == 100


def test_every_device_has_one_compiler_and_what_that_calls_it():
    assert set(COMPILERS["libtpu"]) == TPUS.keys()
    assert set(COMPILERS["xla-cuda"]) == NVIDIA.keys()
    for chip in NVIDIA:
        assert "gpu_device_info {" in description(chip)
        assert "#" not in description(chip)
    for compiler, devices in COMPILERS.items():
        for device in devices:
            assert parse_oracle(str(oracle_of(device))) == Oracle(compiler, device)


def test_kernels_without_cycles_never_make_an_answer_better():
    plain = Figures(cycles=100, uncounted=("softmax",))
    assert Figures(cycles=90).is_better(plain, "cycles")
    assert Figures(cycles=90, uncounted=("softmax",)).is_better(plain, "cycles")
    assert not Figures(cycles=90, uncounted=("softmax", "softmax")).is_better(plain, "cycles")
    assert not Figures(cycles=90, refused="no").is_better(plain, "cycles")
    assert not Figures().is_better(plain, "cycles")


# -- how a compiler ends --------------------------------------------------------------------------


def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """A compiler for TPUs that does this; `answer` is where it writes."""
    script = tmp_path / "fake.py"
    script.write_text(
        f"import json, os, sys, time\nfrom pathlib import Path\nanswer = Path(sys.argv[2])\n{body}"
    )
    monkeypatch.setattr(ask, "CHILD", script)
    monkeypatch.setattr(ask, "is_installed", lambda _: True)


def answering(**answer: Any) -> str:
    return f"answer.write_text({json.dumps(json.dumps(answer))})\n"


MEMORY = {"argument": 4096, "output": 4096, "temp": 0, "alias": 0, "peak": 9000}


@pytest.mark.parametrize(
    ("body", "code", "exit_code", "said"),
    [
        ("time.sleep(60)", "E463", 3, "libtpu for v5e was not done in 0.5 s"),
        ("os.abort()", "E462", 3, "was ended by SIGABRT"),
        ("sys.exit('no chip\\nat all')", "E462", 3, "exit code 1; it wrote: no chip | at all"),
        ("pass", "E462", 3, "exit code 0"),
    ],
)
def test_a_compiler_that_hangs_or_crashes_is_a_sentence(
    body: str, code: str, exit_code: int, said: str, tmp_path: Path, monkeypatch: Any
):
    fake(tmp_path, monkeypatch, body)
    with pytest.raises(EqsatError) as caught:
        ask.ask_xla(V5E, b"module", 0.5 if code == "E463" else 20.0)
    assert caught.value.diagnostics[0].code == code
    assert caught.value.exit_code == exit_code
    assert said in caught.value.diagnostics[0].message


def test_what_a_compiler_refuses_is_quoted(tmp_path: Path, monkeypatch: Any):
    fake(tmp_path, monkeypatch, answering(refused="size 18.00M\n and limit 16.00M"))
    found = ask.ask_xla(V5E, b"module")
    assert found == Figures(refused="size 18.00M and limit 16.00M")


def test_a_missing_package_says_what_to_install(monkeypatch: Any, tmp_path: Path):
    monkeypatch.setattr(ask, "is_installed", lambda _: False)
    for device, extra in (("v5e", "tpu"), ("h100", "cuda")):
        with pytest.raises(EqsatError, match=rf"E461.*{device}[\s\S]*eqsat\[{extra}\]"):
            ask.need_compiler(oracle_of(device))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(EqsatError, match=r"E461.*iree-compile[\s\S]*eqsat\[mlir\]"):
        ask.need_compiler(oracle_of("gfx942"))


# -- a run and its compilers ----------------------------------------------------------------------

W = np.random.default_rng(0).standard_normal((64, 96)).astype("f4")
X = jax.ShapeDtypeStruct((32, 64), "float32")


def layer(x: Any) -> Any:
    return jax.nn.relu(x @ W + 1) @ W.T


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = eqsat.optimize(layer, X, target="sm_90", time_limit=10)
    return run.save(tmp_path_factory.mktemp("compile") / "run")


def test_compile_prints_both_sides_and_keeps_them(
    folder: Path, tmp_path: Path, monkeypatch: Any, capsys: Any
):
    place = Path(shutil.copytree(folder, tmp_path / "run"))
    fake(tmp_path, monkeypatch, answering(text=TPU, memory=MEMORY))
    assert command(["compile", str(place), "--for", "v5e", "--json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)
    wanted = {
        "device", "kernels", "peak_bytes", "scratch_bytes", "registers", "cycles",
        "relayout_copies", "refused", "predicted", "plain",
    }  # fmt: skip
    assert wanted <= found.keys()
    assert (found["device"], found["cycles"], found["registers"]) == ("v5e", 3700, None)
    assert found["peak_bytes"] == 8192
    assert found["plain"]["is"] == "program"
    assert found["predicted"]["dispatches"] == 2
    again = eqsat.load(place)
    assert again.compiled is not None
    assert again.compiled.told[0].summary() == found
    assert again.summary()["compiled"]["v5e"] == found
    assert Compiled.from_json(again.compiled.to_json()) == again.compiled
    assert command(["compile", str(place), "--for", "v5e"]) == 0
    told = capsys.readouterr().out
    assert "v5e, by libtpu" in told
    assert "≥ 3,700" in told
    page = again.report(tmp_path / "page.html").read_text()
    assert "compilers" in page and "≥ 3,700" in page


def test_compile_of_what_is_refused_or_unknown(
    folder: Path, tmp_path: Path, monkeypatch: Any, capsys: Any
):
    place = Path(shutil.copytree(folder, tmp_path / "run"))
    fake(tmp_path, monkeypatch, answering(refused="Ran out of memory in memory space hbm"))
    assert command(["compile", str(place), "--for", "v5e"]) == 3
    assert "refuses the answer: Ran out of memory" in capsys.readouterr().out
    assert command(["compile", str(place), "--for", "v5"]) == 2
    assert "E460" in capsys.readouterr().err
    assert command(["compile", str(place), "--for", "v5e", "--weights", "x"]) == 2
    assert "E383" in capsys.readouterr().err


def test_a_damaged_run_is_not_sealed_again(folder: Path, tmp_path: Path):
    from eqsat.run import artefact

    place = Path(shutil.copytree(folder, tmp_path / "run"))
    (place / "4-schedule.json").write_text("{}")
    with pytest.raises(EqsatError, match="E309"):
        artefact.keep(place, {"compiled": {}})


CYCLES = """
request = json.loads(Path(sys.argv[1]).read_text())
module = Path(request["module"]).read_bytes()
folder = Path({folder!r})
seen = sorted(p.name for p in folder.glob("*.module"))
import hashlib
key = hashlib.sha256(module).hexdigest()[:8]
(folder / f"{{len(seen)}}.module").write_bytes(module)
text = {text!r}.replace("3569", str(({cycles})[len(seen)]))
answer.write_text(json.dumps({{"text": text, "memory": {memory!r}}}))
"""


def checked_by(
    tmp_path: Path,
    monkeypatch: Any,
    cycles: list[int],
    function: Callable[..., Any] = layer,
    argument: Any = X,
) -> eqsat.Run:
    """A function, searched with a compiler that counts so many cycles, in the order of asking."""
    text = "\n".join(line for line in TPU.splitlines() if "tpu_custom_call" not in line)
    body = CYCLES.format(folder=str(tmp_path), text=text, cycles=cycles, memory=MEMORY)
    fake(tmp_path, monkeypatch, body)
    return eqsat.optimize(
        function, argument, target="avx512-xla", settings=("oracle='libtpu v5e'",),
        check_compile=True, time_limit=10,
    )  # fmt: skip


def test_what_the_compiler_counts_best_as_products_runs_so(tmp_path: Path, monkeypatch: Any):
    filters = jnp.asarray(np.random.default_rng(0).standard_normal((3, 3, 6, 5)), "float32")

    def convolved(x: Any) -> Any:
        form = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, filters, (1, 1), "SAME", dimension_numbers=form)

    x = np.random.default_rng(1).standard_normal((1, 8, 6, 6)).astype("f4")
    run = checked_by(tmp_path, monkeypatch, [3000, 1000, *[2000] * 8], convolved, x)
    told = run.checked
    assert told is not None and told.programs[told.kept].name == "chosen, as products"
    for one in (run, eqsat.load(run.save(tmp_path / "run"))):
        assert one.checked is not None and one.checked.spelling == "products"
        assert one.runs_on.spelling == "products"
    assert run.callee is not None and not run.callee.is_input
    np.testing.assert_allclose(run.compile()(x), convolved(x), rtol=1e-4, atol=1e-4)
    with lowered_for("tpu"):
        text = str(jax.make_jaxpr(run.callee)((x,), {}))
    assert text.count("dot_general[") == 9 and "conv_general" not in text


def test_the_answer_that_the_compiler_counts_best_is_kept(tmp_path: Path, monkeypatch: Any):
    run = checked_by(tmp_path, monkeypatch, [3000, 1000, 2000, 2500, 2600, 2700])
    told = run.checked
    assert told is not None and told.oracle == "libtpu v5e" and told.count == "cycles"
    counted = [p.figures.cycles for p in told.programs]
    assert None not in counted
    assert told.programs[told.kept].figures.cycles == min(c for c in counted if c is not None)
    assert told.programs[0].origin == "chosen"
    assert told.programs[-1].origin == "input by XLA"
    assert run.summary()["checked"]["kept"] == told.kept
    assert "kept by libtpu v5e" in summary_text(run)
    assert "kept by libtpu v5e" in run.explain(price=False).to_text()
    again = eqsat.load(run.save(tmp_path / "run"))
    assert again.checked == told


LYING = """
request = json.loads(Path(sys.argv[1]).read_text())
asked = request.get("ways", [[{{}}, {{}}]])
text = {text!r}
def cycles(way):  # a module whose only argument is the compiler's to lay out is the quickest
    return str(2000 - 500 * ("auto" in way[0].values()))
told = [{{"text": text.replace("3569", cycles(w)), "memory": {memory!r}}} for w in asked]
answer.write_text(json.dumps(told if "ways" in request else told[0]))
"""


@pytest.mark.slow  # 7 s
def test_free_layouts_are_part_of_what_is_compared(tmp_path: Path, monkeypatch: Any):
    text = "\n".join(line for line in TPU.splitlines() if "tpu_custom_call" not in line)
    fake(tmp_path, monkeypatch, LYING.format(text=text, memory=MEMORY))
    run = eqsat.optimize(
        layer, X, target="avx512-xla", settings=("oracle='libtpu v5e'",), check_compile=True,
        time_limit=10, layouts="auto",
    )  # fmt: skip
    told = run.checked
    assert told is not None and told.plain_cycles is not None and told.auto_cycles is not None
    assert told.plain_cycles - told.auto_cycles == 500
    assert told.programs[-1].layouts == "plain"
    assert told.programs[told.kept].layouts == "compiler's"
    assert "the compiler's layouts" in summary_text(run)
    assert eqsat.load(run.save(tmp_path / "run")).checked == told


def test_a_target_without_an_oracle_or_both_ways_to_choose_are_refused():
    with pytest.raises(EqsatError, match="E465"):
        eqsat.optimize(layer, X, target="avx512-xla", check_compile=True)
    with pytest.raises(EqsatError, match="E400"):
        eqsat.optimize(layer, X, target="avx512-xla", check_compile=True, measure=2)


@pytest.mark.slow  # an interpreter that starts JAX
def test_jax_here_stays_on_the_cpu_beside_these_compilers():
    code = "import jax, eqsat; eqsat.read; print(jax.default_backend())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "cpu"


# -- what an export hands over --------------------------------------------------------------------


def rounded(x: Any, y: Any) -> Any:
    """A product and a sum, each rounded to multiples of 1/64 by way of i8."""
    quantise = [jnp.clip(jnp.round(v * 64), -128, 127).astype("int8") for v in (x @ W, y)]
    a, b = (q.astype("float32") / 64 for q in quantise)
    return jax.nn.relu(a + b)


def test_elementwise_ops_of_a_dispatch_are_one_op_of_an_export():
    run = eqsat.optimize(
        rounded, X, jax.ShapeDtypeStruct((32, 96), "float32"), target="gfx942-unpadded",
        rules=(), time_limit=10,
    )  # fmt: skip
    schedule = run.schedule
    assert schedule is not None
    found = merged(schedule)
    assert found.program.op_count < schedule.program.op_count
    assert len(found.dispatches) == len(schedule.dispatches)
    given = [np.random.default_rng(i).standard_normal(s).astype("f4") for i, s in
             enumerate(((32, 64), (32, 96)))]  # fmt: skip
    one, other = (evaluate_program(s.program, given, run.weights, {})[0] for s in (found, schedule))
    np.testing.assert_array_equal(one, other)
    text = run.export("mlir").data.decode()
    assert text.count("arith.fptosi") == 2 * text.count('iterator_types = ["parallel", "parallel"]')


# -- forms for TPUs -------------------------------------------------------------------------------


def shortcut(x: Any, w: Any, f: Any) -> Any:
    """A 1x1 convolution, one in steps of two, and the sum over their channels."""
    numbers = ("NCHW", "OIHW", "NCHW")
    y = jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=numbers)
    z = jax.lax.conv_general_dilated(x, f, (2, 2), "VALID", dimension_numbers=numbers)
    return y, z, jnp.einsum("oc,nchw->nohw", f[:, :, 0, 0], x)


@pytest.mark.parametrize("size", seeds(1, [15, 14]))
def test_products_over_several_rows_mean_the_same_as_convolutions(size: int):
    rng = np.random.default_rng(0)
    shapes = ((2, 8, size, size), (16, 8, 1, 1), (4, 8, 1, 1))
    x, w, f = (rng.standard_normal(s).astype("f4") for s in shapes)
    program = eqsat.optimize(shortcut, x, w, f, stop_after="program").program
    run = XlaExecutable(Schedule(program, (), (), (), ""), {}, {}).run
    wanted = shortcut(x, w, f)
    with lowered_for("tpu"):
        text = str(jax.make_jaxpr(run)({}, x, w, f))
        found = run({}, x, w, f)
    assert text.count("conv_general_dilated") >= 3
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
