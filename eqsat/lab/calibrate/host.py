"""Measured times → the figures of a target, and the target as YAML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat import host
from eqsat.host import MemoryLevel
from eqsat.lab.calibrate import shapes
from eqsat.lab.calibrate.probes import (
    CoreTimer,
    Probe,
    Progress,
    Sample,
    Timer,
    check_clock,
    probes,
    timed_rounds,
    use_one_core,
)
from eqsat.lab.calibrate.shapes import Regime
from eqsat.lang.owntarget import measured_on, three_digits, versions
from eqsat.lang.targets import read_target
from eqsat.model.target import Target

ROUNDS, QUICK_ROUNDS = 9, 3
Rows = list[tuple[tuple[str, ...], float]]  # conditions of a row, and its operations per second


@dataclass(frozen=True)
class Calibration:
    """The measured rates, and the machine."""

    samples: dict[str, Sample]  # seconds per call of a probe
    probes: tuple[Probe, ...]
    levels: tuple[MemoryLevel, ...]
    rounds: int
    processor: str
    versions: dict[str, str] = field(default_factory=dict)

    def per_second(self, *names: str) -> float:
        """Work per second over several probes; the cost of a call from Python is taken off."""
        work = sum(p.work for p in self.probes if p.name in names)
        call = self.samples["call"].median
        seconds = [self.samples[n].median for n in names]
        # a call that costs no more than the empty one is as good as free; not less than that
        return work / sum(max(s - call, 0.02 * s) for s in seconds)

    def _regimes(self, prefix: str, regimes: Sequence[Regime]) -> Rows:
        rows: Rows = []
        for i, regime in enumerate(regimes):
            names = [f"{prefix} {i}.{j}" for j in range(len(regime.shapes))]
            rows.append((regime.when, self.per_second(*names)))
        return rows

    @property
    def matmuls(self) -> Rows:
        return self._regimes("matmul", shapes.MATMULS)

    def convolutions(self, image: str) -> Rows:
        return self._regimes(image, shapes.CONVOLUTIONS)

    def packed(self, kind: str) -> float:
        """Operations per second of packed contractions, laying them out for XLA apart."""
        tile, plain = shapes.TILES[kind]
        names = [f"packed {kind} {j}" for j in range(len(plain))]
        work = sum(p.work for p in self.probes if p.name in names)
        moved = sum(2 * shapes.traffic_bytes(shapes.packed(g, tile)) for g in plain) / self.relayout
        seconds = work / self.per_second(*names)
        return work / max(seconds - moved, work / self.peak)

    @property
    def peak(self) -> float:
        """The fastest f32 contraction of all, which the shares of the target speak of."""
        rows = [*self.matmuls, *(r for image, _ in shapes.ORDERS for r in self.convolutions(image))]
        single = [self.per_second(f"matmul {i}.{j}") for i, r in enumerate(shapes.MATMULS)
                  for j in range(len(r.shapes))]  # fmt: skip
        return max(*single, *(rate for _, rate in rows))

    @property
    def relayout(self) -> float:
        """Bytes per second, read and written, of a pass that changes the innermost dim."""
        return self.per_second(*(n for n in self.samples if n.startswith("relayout")))

    @property
    def are_calls(self) -> bool:
        """Whether products read what is computed for them from memory: it takes a pass longer.

        A third of one is enough: what is handed over may lie in a nearer level than results do.
        """
        alone, both, apart = (
            self.samples[n].median for n in ("product", "product of pass", "pass")
        )
        return both - alone > (apart - self.samples["call"].median) / 3

    def lines(self) -> list[str]:
        """Figures by what they are of, for a terminal."""
        lines = [f"{self.processor}, one core, medians of {self.rounds} rounds", ""]
        units = {"copy": "GB/s", "relayout": "GB/s", "pass": "GB/s"}
        for p in self.probes:
            unit = units.get(p.name.split()[0], "GFLOP/s")
            if p.name not in ("call", "launch"):
                lines.append(f"  {p.name:16} {self.per_second(p.name) / 1e9:10.1f} {unit}")
        return [*lines, f"  {'launch':16} {1e6 / self.per_second('launch'):10.2f} us"]

    def to_json(self) -> dict[str, Any]:
        """Every measured time, and the figures drawn from them."""
        return {
            "format": 1,
            "processor": self.processor,
            "versions": self.versions,
            "rounds": self.rounds,
            "seconds": {k: vars(s) for k, s in self.samples.items()},
            "per_second": {p.name: three_digits(self.per_second(p.name)) for p in self.probes},
        }

    def to_yaml(self, name: str = "host") -> str:
        """The target; `lang.targets.read_target` reads it."""
        return (
            "\n".join([*_head(self, name), *_rates(self), *_untiled(self), *_fusion(self)]) + "\n"
        )

    def to_target(self) -> Target:
        """The target as the search sees it."""
        return read_target(self.to_yaml(), "host.yaml")


def calibrate(
    *,
    quick: bool = False,
    timer: Timer | None = None,
    levels: Sequence[MemoryLevel] | None = None,
    progress: Progress = lambda *_: None,
) -> Calibration:
    """Measure this machine: one core, XLA on the CPU, medians of interleaved rounds.

    JAX uses one thread only if it was not initialised before. timer: gives the seconds of a call of
    a probe, in place of the process clock. EqsatError (E420) if the clock is too coarse.
    """
    if timer is None:
        check_clock()
        use_one_core()
        timer = CoreTimer()
    memory = list(host.memory_levels() if levels is None else levels)
    rounds = QUICK_ROUNDS if quick else ROUNDS
    measured = timed_rounds(probes(memory), rounds, timer, progress)
    return Calibration(
        measured, tuple(probes(memory)), tuple(memory), rounds, host.processor(), versions()
    )


# ---- the file --------------------------------------------------------------------------------
def _head(c: Calibration, name: str) -> list[str]:
    versions = ", ".join(f"{k} {v}" for k, v in c.versions.items())
    memory = [
        f"  - {{name: {v.name}, size: {v.size_bytes} B, bandwidth: {_giga(c, v.name)} GB/s}}"
        for v in c.levels
    ]
    launch = 1e6 / c.per_second("launch")
    return [
        f"target: {name}",
        "doc: This machine as it was measured, one core, programs run by XLA.",
        "executor: xla",
        "data_tiling: false              # true: packed forms may be chosen too, which run slower",
        "source: >-",
        f"  Measured by eqsat calibrate on one core of {c.processor}; {versions};",
        f"  medians of {c.rounds} interleaved rounds of process time.",
        *measured_on(c.versions),
        "memory:                         # elementwise passes over half a cache; dram: past them",
        *memory,
        f"launch: {three_digits(launch)} us",
        f"relayout: {three_digits(c.relayout / 1e9)} GB/s",
    ]


def _rates(c: Calibration) -> list[str]:
    rates = {"f32": c.peak} | {t: c.per_second(f"matmul {t}") for t in shapes.TYPES}
    listed = ", ".join(f"{t}: {three_digits(r / 1e9)} GFLOP/s" for t, r in rates.items())
    return [
        f"rates: {{{listed}}}",
        f"untiled_rate: {_share(c, c.matmuls[-1][1])}",
        f"elementwise_rate: {_share(c, c.per_second('elementwise'))}",
    ]


def _untiled(c: Calibration) -> list[str]:
    lines = ["untiled:", "  matmul:", "    - {rate: 1.0, when: lhs != f32}"]
    lines += [f"    - {{rate: {_share(c, rate)}{_when(w)}}}" for w, rate in c.matmuls]
    lines.append("  conv2d:")
    for image, filters in shapes.ORDERS:
        lines += [
            f"    - {{image: {image}, filters: {filters}, rate: {_share(c, rate)}{_when(w)}}}"
            for w, rate in c.convolutions(image)
        ]
    lines += ["tiles:", "  matmul:"]
    share = {kind: _share(c, c.packed(kind)) for kind in shapes.TILES}
    lines.append(f"    - {{mnk: [16, 16, 1], rate: {share['matmul']}, when: lhs == f32}}")
    lines.append("  conv2d:")
    lines.append(f"    - {{c: 16, k: 16, rate: {share['conv2d']}, when: lhs == f32}}")
    return lines


def _fusion(c: Calibration) -> list[str]:
    calls = ["  calls: [contraction]          # what is computed for them took a pass of its own"]
    return [_FUSION[0], *(calls if c.are_calls else ()), *_FUSION[1:]]


# facts about XLA on a CPU, not measurements
_FUSION = (
    "fusion:                         # XLA calls its library for contractions, fusing none",
    "  members: 4",
    "  template: 0",
    "  multi_result: true",
    "  clone: [fill, broadcast, cast]",
    "  join:",
    "    elementwise: [elementwise, reduction, conversion, move]",
    "    conversion: [elementwise, reduction, conversion, move]",
    "    reduction: []",
    "    contraction: []",
)


def _when(conditions: tuple[str, ...]) -> str:
    return f", when: [{', '.join(conditions)}]" if conditions else ""


def _share(c: Calibration, rate: float) -> str:
    return str(min(1.0, max(three_digits(rate / c.peak), 1e-6)))


def _giga(c: Calibration, level: str) -> float:
    return three_digits(c.per_second(f"copy {level}") / 1e9)
