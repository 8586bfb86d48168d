"""Contraction kernels against the peak of multiply-adds, streaming bandwidth, XLA and onnxruntime.

    python benchmarks/contractions.py [--only TEXT …] [--machine avx2] [--core N] [--out FILE]

One pinned core; the sides of a shape take turns, at least 30 rounds, medians with 95 % intervals.
`peak`: share of a loop of independent multiply-adds. `stream`: share of a loop that reads as many
bytes as the larger operand has. `jax`, `onnxruntime`: their time over the kernel's; theirs include
a call from Python. Forms: `kn` as `jnp.matmul` reads it, `nk` both contiguous along k, `packed`
panels of 32 columns, with `bias` and `gelu` behind it. Exit code 1 if a bound is not kept: 0.9 of
the peak (0.82 at 128³), and for m <= 8 0.85 of the stream or as fast as the best of the others.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from clock import pin
from seeded import tell

from eqsat.execute.timing import LEAST_ROUNDS, batch, interval, seconds_per_call

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

FEW = 8  # rows up to which the weights' bytes bound the time
PANEL = 32
BATCH_SECONDS = 0.002  # one round of one side takes about this long
CHAINS = 24  # independent multiply-adds of the peak loop


@dataclass(frozen=True)
class Shape:
    """m, k, n and the form of the second operand; tuned: the planner was made while looking."""

    m: int
    k: int
    n: int
    form: str = "kn"
    tuned: bool = True

    @property
    def name(self) -> str:
        return f"{self.m}x{self.k}x{self.n} {self.form}"

    @property
    def flops(self) -> int:
        return 2 * self.m * self.k * self.n

    @property
    def least_peak(self) -> float:
        return 0.82 if max(self.m, self.k, self.n) <= 128 else 0.9


SHAPES = [
    *(Shape(n, n, n, form) for n in (128, 256, 512) for form in ("kn", "nk", "packed")),
    Shape(1024, 1024, 1024, "packed"),
    *(Shape(128, 384, 384, form) for form in ("kn", "packed", "packed bias")),
    *(Shape(128, 384, 1536, form) for form in ("kn", "packed", "packed gelu")),
    *(Shape(128, 1536, 384, form) for form in ("kn", "nk", "packed")),
    *(Shape(128, 1024, 1024, form) for form in ("kn", "nk", "packed")),
    *(Shape(m, 768, 3072, form) for m in (1, 8) for form in ("kn", "nk", "packed")),
    Shape(64, 768, 768, "kn", False),
    Shape(64, 768, 2304, "packed", False),
    Shape(100, 300, 500, "kn", False),
    Shape(197, 768, 768, "kn", False),
    Shape(256, 640, 2560, "packed", False),
    Shape(320, 1280, 1280, "nk", False),
    Shape(512, 320, 960, "kn", False),
    *(Shape(m, 2048, 2048, form, False) for m in (1, 4) for form in ("kn", "nk")),
    Shape(2, 3072, 768, "kn", False),
    Shape(1, 384, 1536, "packed", False),
]


def nest_of(shape: Shape) -> Any:
    """The nest of a shape."""
    from contracted import BIAS, PRODUCT, RESULT, A, B, matmul

    from eqsat.model.expr import arg, call, const
    from eqsat.model.nest import Access, Nest, Stage, Store

    form, *more = shape.form.split()
    m, k, n = shape.m, shape.k, shape.n
    if form != "packed":
        return matmul(m, k, n, b=form, bias="bias" in more)
    access = Access(A, "f32", (k, 0, 0, 1)), Access(B, "f32", (0, k * PANEL, 1, PANEL))
    stages = [Stage(3, (0, 1, 2), PRODUCT, access, "f32", "add", (3,))]
    if more:
        x = call("add", arg(0), arg(1))
        if more == ["gelu"]:
            cube = call("mul", call("mul", x, x), x)
            inner = call("add", x, call("mul", cube, const(0.044715)))
            tanh = call("tanh", call("mul", inner, const(0.7978845608)))
            x = call("mul", call("mul", x, const(0.5)), call("add", tanh, const(1.0)))
        bias = Access(BIAS, "f32", (0, PANEL, 1, 0))
        stages.append(Stage(4, (0, 1, 2), x, (0, bias), "f32"))
    store = Store(Access(RESULT, "f32", (n, PANEL, 1, 0)), len(stages) - 1, (0, 1, 2))
    return Nest((m, n // PANEL, PANEL, k), tuple(stages), (store,))


# ---- code ----------------------------------------------------------------------------------------
def loaded(name: str, ir: str, machine: Any) -> Any:
    """`name` of a module as a ctypes function of a count and pointers."""
    from eqsat.execute.kernels import jit

    address = jit.load_kernels({name: ir}, machine)[name]
    if not isinstance(address, int):
        raise SystemExit(str(address))
    return ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * 8)(address)


def repeated(kernel: Any) -> str:
    """The kernel's module with a function that calls it so many times, all items each."""
    pointers = len(kernel.reads) + len(kernel.writes) + 1
    own = ", ".join(f"ptr %p{i}" for i in range(pointers))
    every = ", ".join(f"ptr %p{i}" for i in range(8))
    return (
        kernel.ir
        + f"""
define void @{kernel.name}_repeated(i64 %count, {every}) {{
entry:
  br label %turn
turn:
  %i = phi i64 [0, %entry], [%next, %turn]
  call void @{kernel.name}(i64 0, i64 {kernel.items}, {own})
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %turn, label %done
done:
  ret void
}}
"""
    )


def loop_of(name: str, lanes: int, reads: bool) -> str:
    """A loop of multiply-adds in registers, or of additions of every vector of a buffer."""
    from eqsat.execute.kernels.ir import Code, new_module
    from eqsat.execute.kernels.kinds import I64, POINTER, TYPES

    f32 = TYPES["f32"]
    code, (count, x, *_) = Code.begin(new_module(name), name, [I64, *[POINTER] * 8])
    one = code.load(x, f32, lanes)
    start = [code.load(x, f32, lanes)] * CHAINS

    def turn(i: Any, *sums: Any) -> list[Any]:
        if not reads:
            return [code.fma(one, one, s) for s in sums]
        at = code.mul(i, CHAINS * lanes)
        vectors = (
            code.load(code.at(x, f32, code.add(at, j * lanes)), f32, lanes) for j in range(CHAINS)
        )
        return [code.builder.fadd(s, v) for s, v in zip(sums, vectors, strict=True)]

    total, *others = code.loop(0, count, 1, start, turn)
    for s in others:
        total = code.builder.fadd(total, s)
    code.store(total, x, f32)
    code.end()
    return str(code.module)


def array(shape: Sequence[int], rng: Any = None) -> Any:
    """An array that starts at a cache line."""
    count = math.prod(shape)
    raw = np.zeros(count + 32, np.float32)
    start = -raw.ctypes.data % 64 // 4
    found = raw[start : start + count].reshape(shape)
    if rng is not None:
        found[...] = rng.standard_normal(shape, np.float32)
    return found


# ---- one shape -----------------------------------------------------------------------------------
def measure(shape: Shape, machine: Any, most: int) -> dict[str, Any]:
    """Figures of a shape: shares of peak and stream, ratios to the other libraries."""
    from eqsat.execute.kernels.kernel import generate
    from eqsat.plan.planner import plan

    rng = np.random.default_rng(0)
    nest = nest_of(shape)
    chosen = plan(nest, machine)
    kernel = generate(nest, chosen, machine, "contraction")
    call = loaded(f"{kernel.name}_repeated", repeated(kernel), machine)
    lanes = machine.lanes(4)
    inputs = [array((shape.m, shape.k), rng), array((shape.k, shape.n), rng)]
    inputs += [array((shape.n,), rng)] if len(kernel.reads) > 2 else []
    buffers = [*inputs, array((shape.m, shape.n)), array((kernel.scratch_bytes // 4 + 16,))]
    pointers = [b.ctypes.data for b in buffers]
    pointers += [0] * (8 - len(pointers))
    turns = max(1, round(shape.flops / (2 * CHAINS * lanes)))
    peak = loaded("peak", loop_of("peak", lanes, False), machine)
    larger = array((-(-max(x.size for x in inputs) // (CHAINS * lanes)) * CHAINS * lanes,))
    stream = loaded("stream", loop_of("stream", lanes, True), machine)
    at = array((lanes,)).ctypes.data, larger.ctypes.data
    sides: dict[str, Callable[[], Any]] = {
        "kernel": lambda: call(1, *pointers),
        "peak": lambda: peak(turns, at[0], *[0] * 7),
        "stream": lambda: stream(larger.size // (CHAINS * lanes), at[1], *[0] * 7),
    } | others(shape, inputs)
    seconds = take_turns(sides, most)
    return figures(shape, seconds) | {"plan": chosen.to_text()}


def take_turns(sides: dict[str, Callable[[], Any]], most: int) -> dict[str, list[float]]:
    """Process seconds of a call, one batch of each side a round; batches take about as long."""
    counts = {k: max(1, round(BATCH_SECONDS / seconds_per_call(call))) for k, call in sides.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for i in range(max(LEAST_ROUNDS, most)):
        order = list(sides)[i % len(sides) :] + list(sides)[: i % len(sides)]
        for name in order:
            seconds[name].append(batch(sides[name], counts[name])[1] / counts[name])
    return seconds


def others(shape: Shape, inputs: Sequence[Any]) -> dict[str, Callable[[], Any]]:
    """The product (with its epilogue left out) by XLA and, if it is here, onnxruntime."""
    import jax

    x, y = inputs[0], inputs[1]
    y = y.reshape(shape.n, shape.k).T if shape.form == "nk" else y
    a, b = jax.device_put(x), jax.device_put(np.ascontiguousarray(y))
    product = jax.jit(lambda a, b: a @ b)
    found: dict[str, Callable[[], Any]] = {"jax": lambda: product(a, b)}
    try:
        session = onnx_matmul(np.ascontiguousarray(y))
    except ImportError:
        return found
    return found | {"onnxruntime": lambda: session.run(None, {"x": x})}


def onnx_matmul(y: Any) -> Any:
    """A session that multiplies by a constant, which onnxruntime packs; one thread."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, y.shape[0]])
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, [None, y.shape[1]])
    node = helper.make_node("MatMul", ["x", "y"], ["z"])
    graph = helper.make_graph([node], "g", [x], [z], [numpy_helper.from_array(y, "y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def figures(shape: Shape, seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Shares and ratios by process time, and whether the bound is kept."""
    own = seconds.pop("kernel")
    found: dict[str, Any] = {"shape": shape.name, "tuned": shape.tuned, "rounds": len(own)}
    lows: dict[str, float] = {}
    for name, rounds in seconds.items():
        ratios = [theirs / mine for theirs, mine in zip(rounds, own, strict=True)]
        middle, low, high = interval(ratios)
        found[name] = [round(v, 3) for v in (middle, low, high)]
        lows[name] = middle
    rivals = [lows[n] for n in ("jax", "onnxruntime") if n in lows]
    if shape.m <= FEW:
        kept = lows["stream"] >= 0.85 or min(rivals) >= 1
    else:
        kept = lows["peak"] >= shape.least_peak
    return found | {"kept": kept}


def main() -> int:
    """Print the figures as JSON; 1 if a bound is not kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", help="shapes whose names contain one of these")
    parser.add_argument("--machine", choices=("avx512", "avx2"), default="avx512")
    parser.add_argument("--core", type=int, help="the core to run on; the first allowed one")
    parser.add_argument("--rounds", type=int, default=60, help="never fewer than 30")
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    options = parser.parse_args()
    core = pin(options.core)[0]
    from contracted import AVX2, AVX512

    from eqsat.execute.kernels import jit

    machine = {"avx512": AVX512, "avx2": AVX2}[options.machine]
    if why := jit.why_not(machine):
        raise SystemExit(why)
    rows = []
    for shape in SHAPES:
        if not options.only or any(t in shape.name for t in options.only):
            rows.append(measure(shape, machine, options.rounds))
            print(rows[-1], file=sys.stderr)
    head = {"machine": options.machine, "core": core, "cpu": jit.host()[0]}
    tell(head | {"python": platform.python_version(), "shapes": rows}, options.out)
    return 0 if all(r["kept"] for r in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
