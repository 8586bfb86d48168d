"""Lines of target files that a calibration writes."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping

from eqsat import host

WIDTH = 96


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


def measured_on(versions: Mapping[str, str]) -> list[str]:
    """The lines of a target file that say which machine its figures are of."""
    listed = ", ".join(f"{k}: {v}" for k, v in versions.items())
    caches = ", ".join(f"{size} B" for size in host.caches().values())
    return [
        "measured_on:",
        f"  processor: {json.dumps(host.processor())}",
        f"  features: [{', '.join(host.features())}]",
        f"  caches: [{caches}]",
        f"  cores: {host.cores()}",
        f"  versions: {{{listed}}}",
    ]
