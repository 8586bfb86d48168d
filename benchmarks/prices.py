"""Prices against the clock: dispatches of every kind that no fit has seen; variants of programs.

    python benchmarks/prices.py [--target auto] [--scale] [--only KIND | models | NAME] [--out FILE]

Kinds: contractions, rows, row blocks, copies, windows (convolutions, pools and pads), points (what
is read by position), loops, and what XLA runs as it has no plan; shapes and forms that `eqsat
calibrate` does not measure. Each dispatch is timed alone on one pinned core (CPU time, medians of
interleaved rounds) beside what the target predicts. Told are, by kind and of all, the median error,
nine of ten errors, the share within 0.8 and 1.25, Kendall's tau, and of the pairs of one shape that
are more than 5 % apart how many are ordered right. `models`: every dispatch of the answers for
whole programs. Programs: `optimize --measure`, so that every variant is timed interleaved with the
chosen one; the regret is how much slower the one that is predicted best is than the fastest. The
input as XLA runs it is no variant. --scale: a shipped target is scaled by figures that are measured
here, as `auto` does for this CPU; `--target avx2 --scale` is a machine that nothing was fitted to.
Exit code 1 if a bound is not kept.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clock import pin
from kernels import WANTED, _closing, _read
from seeded import tell

from eqsat import host

if TYPE_CHECKING:
    from eqsat.lab.calibrate.kernelprograms import ProbedProgram
    from eqsat.lab.calibrate.kernels import Priced
    from eqsat.model.target import Target

MEDIAN_ERROR, NEAR, TAU, ORDERED, REGRET = 0.10, 0.9, 0.9, 0.8, 0.03
VARIANTS = 22  # of a program, the input by the target's executor and by XLA among them
# rows, reduction, columns; none of them is measured by `eqsat calibrate`
PRODUCTS = (
    (192, 192, 192), (320, 320, 320), (96, 640, 640), (160, 256, 1024), (64, 1024, 256),
    (200, 500, 120), (48, 768, 768), (128, 512, 2048), (16, 1024, 1024), (6, 640, 2560),
    (2, 1024, 3072), (1, 1536, 1536),
)  # fmt: skip
ROWS = ((96, 640), (300, 256), (40, 2000))
# channels, filters, rows and columns of an image, window, stride
CONVOLVED = ((48, 96, 20, 3, 1), (256, 64, 12, 3, 1), (16, 24, 40, 5, 2), (64, 256, 20, 1, 1))
BY_CHANNEL = ((64, 20, 3, 1), (128, 16, 5, 1))
POOLED = ((96, 30, 3, 2), (32, 64, 2, 2))
MODELS = ("gnn", "dlrm", "stencil", "kmeans", "fir", "gru", "lstm8")
SMALL = (
    "layernorm_128x512", "gelu_bias_256x1024", "mlp_16x256", "transpose_512", "logsumexp0_512x256",
    "cumsum_64x1024", "gather_sum", "conv3x3_16c_28", "pairdist_128x16", "bilinear_32",
    "covariance_512x64", "where_log_sum", "dct_64",
)  # fmt: skip


def contractions() -> Iterator[ProbedProgram]:
    """All forms of a shape one after the other."""
    from eqsat.lab.calibrate.kernelprograms import product_program

    for sizes in PRODUCTS:
        for form in ("kn", "nk", "panels"):
            yield product_program(sizes, form, "")
        yield product_program(sizes, "panels", "bias")


def rows() -> Iterator[ProbedProgram]:
    import jax
    from jax import numpy as jnp

    from eqsat.lab.calibrate.kernelprograms import traced

    for shape in ROWS:
        yield traced("gelu", jax.nn.gelu, shape)
        yield traced("relu of a sum", lambda x, b: jax.nn.relu(x + b), shape, shape[1:])
        yield traced("softmax", lambda x: jax.nn.softmax(x, axis=-1), shape)
        yield traced("sum of rows", lambda x: x.sum(1), shape)
        yield traced("sum of columns", lambda x: x.sum(0), shape)
        yield traced("softmax of columns", lambda x: jax.nn.softmax(x, axis=0), shape)
        yield traced("places of the largest", lambda x: jnp.argmax(x, 1), shape)
        yield traced("variance", lambda x: x.var(-1), shape)


def row_blocks() -> Iterator[ProbedProgram]:
    import jax
    from jax import numpy as jnp

    from eqsat.lab.calibrate.kernelprograms import traced

    def attention(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(jnp.einsum("hid,hjd->hij", q, k) / 8) @ v

    for heads, queries, keys, depth in ((8, 96, 96, 64), (4, 200, 150, 32), (12, 1, 256, 64)):
        shapes = (heads, queries, depth), (heads, keys, depth), (heads, keys, depth)
        yield traced("attention", attention, *shapes)
    for m, k, n in ((96, 200, 320), (40, 512, 256)):
        normal = traced("norm and product", lambda x, w: _normal(x) @ w, (m, k), (k, n))
        yield normal


def _normal(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / (x.var(-1, keepdims=True) + 1e-5) ** 0.5


def copies() -> Iterator[ProbedProgram]:
    from jax import numpy as jnp

    from eqsat.lab.calibrate.kernelprograms import traced

    for shape in ROWS:
        yield traced("transpose", jnp.transpose, shape)
        yield traced("both beside", lambda x, y: jnp.concatenate([x, y], 1), shape, shape)
        yield traced("every other", lambda x: x[::2], shape)
        yield traced("backwards", lambda x: x[:, ::-1], shape)
        yield traced("as integers", lambda x: x.astype("int8"), shape)
    for shape in ((1, 64, 40, 40), (1, 256, 14, 14)):
        yield traced("channels last", lambda x: x.transpose(0, 2, 3, 1), shape)
        yield traced("channels first", lambda x: x.transpose(0, 3, 1, 2), shape)


def windows() -> Iterator[ProbedProgram]:
    from jax import numpy as jnp

    from eqsat.lab.calibrate import kernelprograms as k

    for n in (k.NHWC, k.NCHW):
        for c, f, size, window, stride in CONVOLVED:
            shapes = k.image(n, c, size), k.filters(n, f, c, window)
            yield k.traced(f"{n[0]} {f} x {window}x{window}", k.convolved(n, stride), *shapes)
        for c, size, window, stride in BY_CHANNEL:
            shapes = k.image(n, c, size), k.filters(n, c, 1, window)
            name = f"{n[0]} by channel {window}x{window}"
            yield k.traced(name, k.convolved(n, stride, c), *shapes)
        for c, size, window, stride in POOLED:
            for mean in (False, True):
                name = f"{n[0]} {'mean' if mean else 'largest'} of {window}x{window}"
                yield k.traced(name, k.pooled(n, window, stride, mean), k.image(n, c, size))
        around = [(0, 0) if letter in "NC" else (2, 2) for letter in n[0]]
        for mode in ("constant", "reflect"):
            pad = partial(jnp.pad, pad_width=around, mode=mode)
            yield k.traced(f"{n[0]} pad {mode}", pad, k.image(n, 48, 40))
    shapes = (1, 300, 96), (15, 1, 96)
    yield k.traced("NWC by channel 15", k.convolved(("NWC", "WIO", "NWC"), 1, 96), *shapes)


def points() -> Iterator[ProbedProgram]:
    import jax
    from jax import numpy as jnp

    from eqsat.lab.calibrate.kernelprograms import traced

    def picked(table: Any, at: Any) -> Any:
        return table.at[at].get(mode="promise_in_bounds")

    def along(x: Any, at: Any) -> Any:
        return jnp.take_along_axis(x, at, 1, mode="promise_in_bounds")

    for rows, width, count in ((5000, 256, 200), (300, 48, 1000)):
        ids = jax.ShapeDtypeStruct((count,), "int32")
        yield traced("rows of a table", picked, (rows, width), ids)
        yield traced("sum of rows", lambda t, i: picked(t, i).sum(0), (rows, width), ids)
    yield traced("along rows", along, (200, 500), jax.ShapeDtypeStruct((200, 64), "int32"))


def loops() -> Iterator[ProbedProgram]:
    import jax
    from jax import numpy as jnp

    from eqsat.lab.calibrate.kernelprograms import traced

    def gated(xs: Any, w: Any) -> Any:
        def step(h: Any, x: Any) -> tuple[Any, Any]:
            z = jax.nn.sigmoid(x + h @ w)
            h = z * h + (1 - z) * jnp.tanh(x)
            return h, h

        return jax.lax.scan(step, jnp.zeros_like(xs[0]), xs)[1]

    for steps, batch, width in ((48, 4, 192), (24, 16, 96)):
        yield traced("gated", gated, (steps, batch, width), (width, width))
    yield traced(
        "halved", lambda x: jax.lax.fori_loop(0, 30, lambda _, y: y * 0.5 + x, x), (50, 300)
    )


def by_xla() -> Iterator[ProbedProgram]:
    """What has no plan but a meaning; opaque ops have no price at all."""
    from jax import numpy as jnp

    from eqsat.lab.calibrate.kernelprograms import traced

    def shuffled(x: Any) -> Any:
        b, h, w, c = x.shape
        return jnp.tanh(x).reshape(b, h, w, 4, c // 4).swapaxes(3, 4).reshape(b, h, w, c)

    yield traced("shuffle", shuffled, (1, 20, 20, 64))
    yield traced("in larger pixels", lambda x: x.repeat(2, 1).repeat(2, 2), (1, 20, 20, 32))


KINDS: dict[str, Callable[[], Iterator[ProbedProgram]]] = {
    "contractions": contractions,
    "rows": rows,
    "row blocks": row_blocks,
    "copies": copies,
    "windows": windows,
    "points": points,
    "loops": loops,
    "by XLA": by_xla,
}


def kind(name: str, target: Target, rounds: int) -> dict[str, Any]:
    """Predicted and measured times of the dispatches of one kind, and how far they are apart."""
    from eqsat.lab.calibrate.kernels import observe

    return errors(observe(tuple(KINDS[name]()), target, rounds))


def models(target: Target, time_limit: float) -> dict[str, Any]:
    """The dispatches of the answers for whole programs, by the process's own time."""
    from unseenprograms import models as large
    from unseenprograms import small

    import eqsat
    from eqsat.lab.bench import bench
    from eqsat.lab.calibrate.kernels import Priced

    every = small() | large()
    found: list[Priced] = []
    for name in (*SMALL, *MODELS):
        sys.stderr.write(f"  {name}\n")
        timed = every[name]
        run = eqsat.optimize(timed.function, *timed.args, target=target, time_limit=time_limit)
        assert run.schedule is not None, "a program as it stands is admissible"
        declined = dict(run.execution.declined)
        every_dispatch = range(len(run.schedule.dispatches))
        for t in bench({name: run}, every_dispatch).dispatches:
            assert t.dispatch is not None, "dispatches alone"
            why = declined.get(t.dispatch, "")
            label = f"{name} {t.dispatch}: {t.name}"
            found.append(Priced(label, name, t.predicted_us * 1e6, t.cpu_us * 1e6, why))
    return errors(found)


def errors(found: Sequence[Priced]) -> dict[str, Any]:
    """How far predictions are from the clock, and which bounds they do not keep."""
    from eqsat.lab.calibrate.fit import quality

    q = quality(found, [p.predicted_ps for p in found])
    kept = {
        "median_error": q.median_error <= MEDIAN_ERROR,
        "near": q.near >= NEAR,
        "kendall_tau": q.kendall_tau >= TAU,
        "ordered": q.ordered >= ORDERED * q.pairs,
    }
    return {
        "count": len(found),
        "quality": q.to_json(),
        "dispatches": [
            {
                "name": p.name,
                "measured_us": round(p.time_ps / 1e6, 3),
                "predicted_us": round(p.predicted_ps / 1e6, 3),
                "predicted_over_measured": round(p.predicted_ps / p.time_ps, 3),
                **({"no_kernel": p.why} if p.why else {}),
            }
            for p in found
        ],
        "missed": [name for name, is_kept in kept.items() if not is_kept],
    }


def program(name: str, target: str, time_limit: float) -> dict[str, Any]:
    """The variants of a program, and the regret of following the model."""
    import eqsat
    from eqsat.model.measured import INPUT_BY_XLA

    function, args, weights = _read(WANTED[name])
    xs = [a for a, w in zip(args, weights, strict=True) if not w]
    run = eqsat.optimize(
        _closing(function, args, weights), *xs,
        target=target, measure=VARIANTS, time_limit=time_limit,
    )  # fmt: skip
    assert run.measured is not None, "it was asked for"
    timed = [p for p in run.measured.programs if p.origin != INPUT_BY_XLA]
    # ratio: the time of the chosen one, which is predicted best, over this one's
    regret = max(p.ratio[0] for p in timed) - 1
    return {
        "variants": len(timed),
        "rounds": run.measured.rounds,
        "regret": round(regret, 4),
        "programs": [vars(p) for p in timed],
        "missed": ["regret"] if regret > REGRET else [],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="auto")
    parser.add_argument("--only", choices=(*KINDS, "models", *WANTED), action="append")
    parser.add_argument("--scale", action="store_true", help="by figures that are measured here")
    parser.add_argument("--rounds", type=int, default=15, help="of the dispatches")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds of a search")
    parser.add_argument("--core", type=int, help="the first that may be used")
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    options = parser.parse_args()
    cores = pin(options.core)
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    target = machine(options.target, options.scale)
    assert target.kernels is not None, "a target with kernels is asked for"
    found: dict[str, Any] = {
        "target": target.name,
        "source": target.kernels.source,
        "measured_on": target.measured_on and vars(target.measured_on),
        "cores": cores,
        "processor": host.processor(),
    }
    for name in options.only or (*KINDS, "models", *WANTED):
        sys.stderr.write(f"{name}\n")
        if name in KINDS:
            found[name] = kind(name, target, options.rounds)
        elif name == "models":
            found[name] = models(target, options.time_limit)
        else:
            found[name] = program(name, options.target, options.time_limit)
    tell(found, options.out)
    return int(any(v["missed"] for v in found.values() if isinstance(v, dict) and "missed" in v))


def machine(name: str, is_scaled: bool) -> Target:
    """The target, scaled by figures that are measured here if that is asked for."""
    from eqsat.execute.kernels import scale
    from eqsat.lang.targets import load_target

    found = load_target(name)
    if not is_scaled:
        return found
    here = scale.here(found)
    return scale.scaled_target(here, scale.measure(here))


if __name__ == "__main__":
    sys.exit(main())
