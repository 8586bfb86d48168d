"""Convolutions as the search answers them, against the peak of multiply-adds and XLA; JSON.

    python benchmarks/convolutions.py [--only TEXT …] [--layout NHWC|NCHW] [--core N] [--out FILE]

Every shape is a JAX function of an image, with its weights closed over, a bias and a ReLU behind
it. It is searched freely, and the dispatches of the answer are called in a loop on one pinned core.
The sides of a shape take turns, at least 30 rounds, medians with 95 % intervals. `peak`: share of a
loop of independent multiply-adds. `copy`: share of NumPy's copy that reads and writes as many bytes
as image, weights and result have. `jax_closed`: the time of `jax.jit` of the same function over the
dispatches'; `jax`: with the weights as arguments. Exit code 1 if a bound is not kept: 0.88 of the
peak, for depthwise ones 0.8 of the peak or of the copy.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from clock import pin
from contractions import CHAINS, array, loaded, loop_of, take_turns
from seeded import tell

from eqsat.execute.timing import interval

LEAST, LEAST_DEPTHWISE = 0.88, 0.8
SEARCH_SECONDS = 30.0
KERNEL_SECONDS = 0.002  # turns of a call last so long, so that the call itself does not count


@dataclass(frozen=True)
class Shape:
    """side x side images of so many channels, k x k windows; pads keep the size at stride 1."""

    side: int
    channels: int
    features: int
    k: int = 1
    stride: int = 1
    groups: int = 1

    @property
    def out(self) -> int:
        return (self.side + 2 * (self.k // 2) - self.k) // self.stride + 1

    @property
    def is_depthwise(self) -> bool:
        return self.groups == self.channels

    @property
    def name(self) -> str:
        kind = f"{self.k}x{self.k}" + (f" s{self.stride}" if self.stride > 1 else "")
        more = " depthwise" if self.is_depthwise else ""
        more = more or (f" groups {self.groups}" if self.groups > 1 else "")
        return f"{kind} {self.side}^2 {self.channels}-{self.features}{more}"

    @property
    def flops(self) -> int:
        taps = self.k**2 * self.channels // self.groups
        return 2 * self.out**2 * self.features * taps

    @property
    def filters(self) -> tuple[int, ...]:
        """As HWIO."""
        return (self.k, self.k, self.channels // self.groups, self.features)

    @property
    def elements(self) -> int:
        """Of image, weights and result."""
        image, result = self.side**2 * self.channels, self.out**2 * self.features
        return image + result + int(np.prod(self.filters))


RESNET50 = [
    Shape(224, 3, 64, 7, 2),
    *(Shape(56, c, f) for c, f in ((64, 64), (64, 256), (256, 64), (256, 128))),
    *(Shape(28, c, f) for c, f in ((128, 512), (512, 128), (512, 256))),
    *(Shape(14, c, f) for c, f in ((256, 1024), (1024, 256), (1024, 512))),
    *(Shape(7, c, f) for c, f in ((512, 2048), (2048, 512))),
    *(Shape(s, c, 2 * c, 1, 2) for s, c in ((56, 256), (28, 512), (14, 1024))),
    *(Shape(s, c, c, 3) for s, c in ((56, 64), (28, 128), (14, 256), (7, 512))),
    *(Shape(s, c, c, 3, 2) for s, c in ((56, 128), (28, 256), (14, 512))),
]
OTHERS = [  # shapes that no planner was made for
    Shape(35, 96, 80, 3),
    Shape(17, 48, 64, 5),
    Shape(20, 320, 320, 3),
    Shape(14, 512, 512, 3, groups=32),
    *(Shape(s, c, c, 3, groups=c) for s, c in ((112, 64), (28, 192))),
    Shape(112, 96, 96, 3, 2, 96),
    Shape(14, 240, 240, 5, groups=240),
    *(Shape(s, c, c, 7, groups=c) for s, c in ((56, 96), (14, 384), (7, 768))),
]


def measure(shape: Shape, layout: str, target: str, most: int) -> dict[str, Any]:
    """Figures of a shape: shares of peak and copy, ratios to XLA."""
    import jax

    import eqsat

    f, x, weights = program(shape, layout)
    run = eqsat.optimize(lambda x: f(x, *weights), x, target=target, time_limit=SEARCH_SECONDS)
    machine, schedule = run.target.machine, run.schedule
    assert machine is not None and schedule is not None, "the target has kernels"
    lanes = machine.lanes(4)
    peak = loaded("peak", loop_of("peak", lanes, False), machine)
    vectors = CHAINS * lanes
    one, half = array((lanes,)), array((-(-shape.elements // 2),))
    other = np.zeros_like(half)
    jitted, held = jax.jit(f), jax.device_put((x, *weights))
    closed = jax.jit(lambda x: f(x, *weights))
    turns = max(1, round(KERNEL_SECONDS * 1e12 / schedule.time_ps))
    sides: dict[str, Callable[[], Any]] = {
        "kernel": dispatches_of(run, turns),
        "peak": lambda: peak(round(shape.flops / (2 * vectors)), one.ctypes.data, *[0] * 7),
        "copy": lambda: np.copyto(other, half),
        "jax": lambda: jax.block_until_ready(jitted(*held)),
        "jax_closed": lambda: jax.block_until_ready(closed(held[0])),
    }  # fmt: skip
    seconds = take_turns(sides, most)
    seconds["kernel"] = [s / turns for s in seconds["kernel"]]
    return figures(shape, seconds) | {
        "predicted_us": round(schedule.time_ps / 1e6, 1),
        "dispatches": len(schedule.dispatches),
    }


def program(shape: Shape, layout: str) -> tuple[Callable[..., Any], Any, tuple[Any, ...]]:
    """A function of image, weights and bias, and their values."""
    import jax

    rng = np.random.default_rng(0)
    weights = rng.standard_normal(shape.filters, np.float32)
    bias, numbers = rng.standard_normal(shape.features, np.float32), (layout, "HWIO", layout)
    image = (1, shape.side, shape.side, shape.channels)
    if layout == "NCHW":
        image, numbers = (1, image[3], *image[1:3]), (layout, "OIHW", layout)
        weights, bias = np.ascontiguousarray(weights.transpose(3, 2, 0, 1)), bias[:, None, None]
    pads = [(shape.k // 2, shape.k // 2)] * 2

    def f(x: Any, w: Any, b: Any) -> Any:
        y = jax.lax.conv_general_dilated(
            x, w, (shape.stride,) * 2, pads, dimension_numbers=numbers,
            feature_group_count=shape.groups,
        )  # fmt: skip
        return jax.nn.relu(y + b)

    return f, rng.standard_normal(image, np.float32), (weights, bias)


def dispatches_of(run: Any, turns: int) -> Callable[[], None]:
    """Each dispatch of an answer so many times, without the calls from Python between them."""
    from eqsat.lab.dispatches import operand_arrays, repeated

    operands, executable = operand_arrays(run), run.executable
    calls = [
        repeated(executable.dispatch(i), operands[i]) for i in range(len(run.schedule.dispatches))
    ]

    def call() -> None:
        for each in calls:
            each(turns)

    return call


def figures(shape: Shape, seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Shares and ratios by process time, and whether the bound is kept."""
    own = seconds.pop("kernel")
    us = [round(1e6 * v, 1) for v in interval(own)]
    found: dict[str, Any] = {"shape": shape.name, "us": us, "rounds": len(own)}
    for name, rounds in seconds.items():
        ratios = [theirs / mine for theirs, mine in zip(rounds, own, strict=True)]
        found[name] = [round(v, 3) for v in interval(ratios)]
    best = max(found["peak"][0], found["copy"][0]) if shape.is_depthwise else found["peak"][0]
    return found | {"kept": best >= (LEAST_DEPTHWISE if shape.is_depthwise else LEAST)}


def main() -> int:
    """Print the figures as JSON; 1 if a bound is not kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", help="shapes whose names contain one of these")
    parser.add_argument("--layout", choices=("NHWC", "NCHW"), default="NHWC", help="of images")
    parser.add_argument("--target", default="avx512", help="one with kernels")
    parser.add_argument("--core", type=int, help="the core to run on; the first allowed one")
    parser.add_argument("--rounds", type=int, default=30, help="never fewer than 30")
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    options = parser.parse_args()
    core = pin(options.core)[0]
    rows: list[dict[str, Any]] = []
    for shape in (*RESNET50, *OTHERS):
        if not options.only or any(t in shape.name for t in options.only):
            rows.append(measure(shape, options.layout, options.target, options.rounds))
            print(rows[-1], file=sys.stderr)
    head = {"target": options.target, "layout": options.layout, "core": core}
    tell(head | {"python": platform.python_version(), "shapes": rows}, options.out)
    return 0 if all(r["kept"] for r in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
