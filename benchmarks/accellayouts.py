"""What it is worth to choose in which order arguments, results and state lie in memory.

    python benchmarks/accellayouts.py [--no-tpu] [--no-cpu]

`tpu`: cycles that the compiler of a v5e states for four programs, without the device: the function
itself by `jax.jit` and the answer of eqsat, each with plain arguments, and with orders that are
free: the compiler's alone, and `layouts="auto"`. `cpu`: programs that read an argument transposed,
and a decode step whose cache is donated, timed here on one core: `jax.jit`, eqsat, and eqsat with
`layouts="auto"`, round by round, CPU time. Prints one JSON object, with `ok` if no answer of
`layouts="auto"` is above that with plain arguments by the compiler's count, and on the clock by
more than 3 %.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

NEEDS = ("libtpu",)
MINUTES = 2
ALONE = True  # what it times on the CPU is read within a few percent
LEEWAY = 1.03  # on the clock
SECONDS = 30.0  # of a search
CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
Row = dict[str, Any]
Made = tuple[Callable[..., Any], tuple[Any, ...], tuple[str, ...]]  # function, shapes, donated


def measured() -> Row:
    """The object that is printed."""
    tpu, cpu = tpu_rows(), cpu_rows()
    return {"tpu": tpu, "cpu": cpu, "ok": _is_ok(tpu, cpu)}


def _is_ok(tpu: Mapping[str, Row], cpu: Mapping[str, Row]) -> bool:
    cycles = all(r["eqsat_auto"]["cycles"] <= r["eqsat"]["cycles"] for r in tpu.values())
    return cycles and all(r["auto_to_eqsat"][0] <= LEEWAY for r in cpu.values())


# ---- programs ------------------------------------------------------------------------------------
def _shape(*dims: int, dtype: str = "float32") -> Any:
    import jax

    return jax.ShapeDtypeStruct(dims, dtype)


def _convolutions(order: str) -> Made:
    """Two convolutions of 3 x 3 with a relu between them, of images in this order."""
    import jax

    def convolutions(x: Any, v: Any, w: Any) -> Any:
        spec = (order, "HWIO", order)
        options = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": spec}
        h = jax.nn.relu(jax.lax.conv_general_dilated(x, v, **options))
        return jax.lax.conv_general_dilated(h, w, **options)

    sizes = {"N": 8, "H": 56, "W": 56, "C": 64}
    images = _shape(*(sizes[d] for d in order))
    return convolutions, (images, _shape(3, 3, 64, 64), _shape(3, 3, 64, 64)), ()


def _attention() -> Made:
    """Attention of [batch, tokens, heads, size], as models hold it."""
    import jax
    import jax.numpy as jnp

    def attention(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (jnp.transpose(x, (0, 2, 1, 3)) for x in (q, k, v))
        scores = jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) / 8)
        return jnp.transpose(scores @ v, (0, 2, 1, 3))

    return attention, (_shape(8, 128, 12, 64),) * 3, ()


def _decode(tokens: int = 2048, heads: int = 16) -> Made:
    """One token of attention: rows are written into two caches [tokens, heads, size]."""
    import jax
    import jax.numpy as jnp

    def decode(q: Any, k: Any, v: Any, keys: Any, values: Any, at: Any) -> Any:
        keys = jax.lax.dynamic_update_slice(keys, k[None], (at, 0, 0))
        values = jax.lax.dynamic_update_slice(values, v[None], (at, 0, 0))
        scores = jax.nn.softmax(jnp.einsum("hd,shd->hs", q, keys) / 8)
        return jnp.einsum("hs,shd->hd", scores, values), keys, values

    row, cache = _shape(heads, 64), _shape(tokens, heads, 64)
    args = (row, row, row, cache, cache, _shape(dtype="int32"))
    return decode, args, ("keys", "values")


def _turned() -> Made:
    import jax.numpy as jnp

    return (lambda x, b: jnp.tanh(x.T + b)), (_shape(2048, 1024), _shape(2048)), ()


def _softmax() -> Made:
    """Probabilities along the first dim."""
    import jax

    return (lambda x: jax.nn.softmax(x, axis=0)), (_shape(1024, 1024),), ()


def _layer() -> Made:
    """Weights stored [out, in], as PyTorch has them."""
    import jax

    def layer(x: Any, v: Any, w: Any) -> Any:
        return jax.nn.relu(x @ v.T) @ w.T

    return layer, (_shape(64, 512), _shape(2048, 512), _shape(512, 2048)), ()


# ---- cycles of a TPU's compiler ------------------------------------------------------------------
def tpu_rows() -> dict[str, Row]:
    """Per program, what compiler and eqsat make of it, with plain arguments and free orders."""
    os.environ |= {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-4",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # another process may ask it as well
    }
    import jax

    jax.config.update("jax_platforms", "cpu")
    from jax.experimental import topologies

    device = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices[0]
    sharding = jax.sharding.SingleDeviceSharding(device)
    programs = {
        "convolutions_nhwc": _convolutions("NHWC"),
        "convolutions_nchw": _convolutions("NCHW"),
        "attention": _attention(),
        "decode": _decode(),
    }
    return {name: _tpu_row(made, sharding) for name, made in programs.items()}


def _tpu_row(made: Made, sharding: Any) -> Row:
    from jax.experimental.layout import Format, Layout

    function, shapes, donate = made
    target = _tpu_target()
    auto = Format(Layout.AUTO, sharding)
    row: Row = {
        "jax": _cycles(_jitted(function, shapes, donate, sharding, None)),
        "jax_auto": _cycles(_jitted(function, shapes, donate, sharding, auto)),
        "target": target,
    }
    for name, layouts in (("eqsat", None), ("eqsat_auto", "auto")):
        row[name] = _eqsat(made, target, layouts, sharding)
    return row


def _tpu_target() -> str:
    """The target of a v5e, or else one for XLA."""
    import eqsat
    from eqsat.model.diag import EqsatError

    try:
        return eqsat.target("tpu-v5e").name
    except EqsatError:
        return "avx512-xla"


def _jitted(
    function: Any, shapes: Sequence[Any], donate: Sequence[str], sharding: Any, every: Any
) -> Any:
    """The function compiled for a device, with one format for all arguments and results."""
    import jax

    ins: Any = tuple(every or sharding for _ in shapes)
    numbers = _numbers(function, donate)
    jitted = jax.jit(function, in_shardings=ins, out_shardings=every, donate_argnums=numbers)
    return jitted.trace(*shapes).lower(lowering_platforms=("tpu",)).compile()


def _numbers(function: Any, names: Sequence[str]) -> tuple[int, ...]:
    """Which arguments these are."""
    known = list(inspect.signature(function).parameters)
    return tuple(known.index(name) for name in names)


def _eqsat(made: Made, target: str, layouts: str | None, sharding: Any) -> Row:
    """The answer's cycles, the orders of the search, and those that the compiler chose."""
    import jax

    import eqsat
    from eqsat.execute.formats import Formatted

    function, shapes, donate = made
    run = eqsat.optimize(
        function, *shapes, target=target, donate=donate, layouts=layouts, time_limit=SECONDS
    )
    assert run.callee is not None
    tree = jax.tree.structure((shapes, {}))
    donated = _numbers(function, donate)
    found = Formatted(run.callee, tree, donated, sharding, choosing=layouts is not None)
    compiled = found.compile(run.executable.packed if run.callee.packs_arguments else None, shapes)
    row = _cycles(compiled)
    if run.orders is not None:
        row["by_search"] = {o.name: list(o.order) for o in run.orders.chosen}
    return row


def _cycles(compiled: Any) -> Row:
    """The sum of what the compiler states for the entry, and the layouts it takes and gives."""
    import jax

    text = compiled.as_text()
    entry = text[text.index("\nENTRY ") :]
    formats = jax.tree.leaves((compiled.input_formats, compiled.output_formats))
    orders = [list(f.layout.major_to_minor) for f in formats]
    return {
        "cycles": sum(map(int, CYCLES.findall(entry))),
        "copies": len(re.findall(r" copy\(", entry)),
        "orders": orders,
        "aliases": len(re.findall(r"(?:may|must)-alias", text.splitlines()[0])),
    }


# ---- the clock of this machine -------------------------------------------------------------------
def cpu_rows() -> dict[str, Row]:
    """Per program: `jax.jit`, eqsat, and eqsat in the orders it chooses, round by round."""
    from clock import pin

    pin(None)
    programs = {
        "turned": _turned(),
        "softmax": _softmax(),
        "layer": _layer(),
        "decode": _decode(),
    }
    return {name: _cpu_row(made) for name, made in programs.items()}


def _cpu_row(made: Made) -> Row:
    import jax
    import numpy as np

    import eqsat
    from eqsat.execute.timing import interleave

    function, shapes, donate = made
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(s.shape, np.float32) if s.shape else np.int32(7) for s in shapes]
    options = {"target": "avx512", "donate": donate, "time_limit": SECONDS}
    plain = eqsat.jit(function, check="never", **options)
    auto = eqsat.jit(function, check="never", layouts="auto", **options)
    sides = {
        "jax": _called(jax.jit(function, donate_argnames=donate), given, donate, shapes),
        "eqsat": _called(plain, given, donate, shapes),
        "auto": _called(auto, auto.put(*given), donate, shapes),
    }
    calls, times = interleave(sides)
    cpu = {k: [c / calls for _, c in each] for k, each in times.items()}
    orders = auto.optimize(*shapes).orders
    assert orders is not None and orders.plain is not None and orders.value is not None
    (want, *_), (got, *_) = (jax.tree.leaves(f(*_fresh(given))) for f in (function, auto))
    return {
        "us": {k: round(1e6 * statistics.median(v), 2) for k, v in cpu.items()},
        "auto_to_eqsat": _ratio(cpu["auto"], cpu["eqsat"]),
        "auto_to_jax": _ratio(cpu["auto"], cpu["jax"]),
        "rounds": len(cpu["jax"]),
        "orders": {o.name: list(o.order) for o in orders.chosen},
        "model_us": [round(v / 1e6, 2) for v in (orders.plain, orders.value)],
        "bound_us": None if orders.bound is None else round(orders.bound / 1e6, 2),
        "choices_looked_at": orders.tried,
        "error": float(np.abs(np.asarray(want) - np.asarray(got)).max()),
    }


def _fresh(given: Sequence[Any]) -> list[Any]:
    import jax.numpy as jnp
    import numpy as np

    return [jnp.array(np.asarray(x)) for x in given]


def _called(
    function: Any, given: Sequence[Any], donate: Sequence[str], shapes: Sequence[Any]
) -> Callable[[], Any]:
    """A call without arguments; donated ones are what the call before it returned."""
    import jax
    import jax.numpy as jnp

    args = [jax.device_put(x) if isinstance(x, jax.Array) else jnp.asarray(x) for x in given]
    if not donate:
        return lambda: function(*args)
    held = [i for i, s in enumerate(shapes) if len(s.shape) == 3]

    def call() -> Any:
        results = function(*args)
        for i, r in zip(held, results[1:], strict=True):
            args[i] = r
        return results

    return call


def _ratio(left: Sequence[float], right: Sequence[float]) -> list[float]:
    """The median of the rounds' ratios, with its 95 % interval."""
    from eqsat.execute.timing import interval

    return [round(x, 3) for x in interval([a / b for a, b in zip(left, right, strict=True)])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--no-tpu", action="store_true")
    parser.add_argument("--no-cpu", action="store_true")
    args = parser.parse_args()
    tpu = {} if args.no_tpu else tpu_rows()
    cpu = {} if args.no_cpu else cpu_rows()
    print(json.dumps({"tpu": tpu, "cpu": cpu, "ok": _is_ok(tpu, cpu)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
