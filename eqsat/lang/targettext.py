"""Lines of target files that a measurement of this machine writes, and whose they are."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence

from eqsat import host
from eqsat.model.dispatch import Constants
from eqsat.model.target import MeasuredOn, Memory, Target

WIDTH = 96
# constants of plans, and the keys of `kernels:` that are not their names without _ps
TIMES = ("fma_ps", "load_ps", "scalar_ps", "strided_ps", "page_ps", "tile_ps", "loop_ps")
FIELDS = (*TIMES, "copy_rate")
KEYS = {"copy_rate": "copy"}


def versions() -> dict[str, str]:
    """Of what the figures depend on."""
    from importlib.metadata import version

    return {name: version(name) for name in ("eqsat", "jax", "jaxlib", "llvmlite")}


def three_digits(value: float) -> float:
    """More would claim what a measurement does not know."""
    return float(f"{value:.3g}")


def folded_lines(text: str, indent: str = "  ") -> list[str]:
    """The lines of a folded text (`>-`)."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def measured_on(versions: Mapping[str, str], figures: int = 0) -> list[str]:
    """The lines of a target file that say which machine its figures are of.

    figures: how many were measured, if all others are scaled by them.
    """
    listed = ", ".join(f"{k}: {v}" for k, v in versions.items())
    caches = ", ".join(f"{size} B" for size in host.caches().values())
    return [
        "measured_on:",
        f"  processor: {json.dumps(host.processor())}",
        f"  features: [{', '.join(host.features())}]",
        f"  caches: [{caches}]",
        f"  cores: {host.cores()}",
        f"  versions: {{{listed}}}",
        *([f"  figures: {figures}"] if figures else ()),
    ]


def differences(measured: MeasuredOn) -> list[str]:
    """In what this machine is not the one measured: processor, features, caches, cores."""
    here = {
        "processor": host.processor(),
        "features": host.features(),
        "caches": tuple(host.caches().values()),
        "cores": host.cores(),
    }
    return [key for key, value in here.items() if getattr(measured, key) != value]


def memory_lines(memory: Sequence[Memory], launch_ps: int) -> list[str]:
    """The lines of a target file with its memory and its launch."""
    rates = ((m, three_digits(m.bandwidth / 1e9)) for m in memory)
    lines = [
        f"  - {{name: {m.name}, size: {m.size_bytes} B, bandwidth: {rate} GB/s}}"
        for m, rate in rates
    ]
    return ["memory:", *lines, f"launch: {launch_ps} ps"]


def constant_lines(c: Constants, xla_op_ps: int, source: str) -> list[str]:
    """The lines of a target file with the constants of its kernels, and the start of other ops."""
    lines = ["kernels:"]
    for field in FIELDS:
        key, value = KEYS.get(field, field.removesuffix("_ps")), getattr(c, field)
        scale, unit = (1, "ps") if field.endswith("_ps") else (1e9, "GB/s")
        lines.append(f"  {key}: {three_digits(value / scale)} {unit}")
    lines += [f"  overlap: {three_digits(c.overlap)}", f"  xla_op: {xla_op_ps} ps"]
    return [*lines, "  source: >-", *folded_lines(source, "    ")]


def scaled_text(base: str, target: Target, figures: int) -> str:
    """A file that extends a shipped target with its figures as they are scaled here."""
    k = target.kernels
    assert k is not None, "what is scaled has kernels"
    told = ", ".join(f"{k} {v}" for k, v in versions().items())
    source = (
        f"{figures} figures measured at first use on one core of {host.processor()}; {told}; the "
        f"least of several short tries. All others are those of {base}, scaled by them."
    )
    rates = ", ".join(f"{k}: {three_digits(v / 1e9)} GOP/s" for k, v in target.rates)
    lines = [
        f"target: {base}-here",
        f"extends: {base}",
        "doc: One core of this machine, a shipped target scaled by figures measured at first use.",
        "source: >-",
        *folded_lines(source),
        *measured_on(versions(), figures),
        *memory_lines(target.memory, target.launch_ps),
        f"rates: {{{rates}}}",
    ]
    if target.relayout is not None:
        lines.append(f"relayout: {three_digits(target.relayout / 1e9)} GB/s")
    return "\n".join([*lines, *constant_lines(k.constants, k.xla_op_ps, source)]) + "\n"
