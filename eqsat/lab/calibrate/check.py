"""How far the model is from the clock: extracted variants of small programs, predicted and timed.

Every variant is the answer of a search with the target's own figures or with others (drawn at
random, one order of dims, everything packed). Its price is what the calibrated target says of it as
it stands; its time is measured with the weights laid out before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

from eqsat.api import Run, optimize
from eqsat.execute.draw import random_inputs
from eqsat.lab.calibrate.probes import Call, CoreTimer, Probe, Progress, Timer, part, timed_rounds
from eqsat.model.rules import RuleSet
from eqsat.model.target import Target

Sample = tuple[Callable[..., Any], Any]  # a function and the type of its argument


def _weights(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s, dtype="f4") / (s[-1] * 4) ** 0.5 for s in shapes]


def _image(channels: int, size: int) -> Any:
    import jax

    return jax.ShapeDtypeStruct((1, channels, size, size), "float32")


def bottleneck(channels: int = 256, middle: int = 64, size: int = 28) -> Sample:
    """A residual block of ResNet-50 over an NCHW image, OIHW filters."""
    import jax

    first, spatial, last = _weights(
        (middle, channels, 1, 1), (middle, middle, 3, 3), (channels, middle, 1, 1)
    )

    def block(x: Any) -> Any:
        y = jax.nn.relu(_convolve(x, first))
        y = jax.nn.relu(_convolve(y, spatial))
        return jax.nn.relu(_convolve(y, last) + x)

    return block, _image(channels, size)


def stem(size: int = 112) -> Sample:
    """Few channels, a wide window with a stride, then another convolution; NCHW."""
    import jax

    first, second = _weights((32, 3, 7, 7), (32, 32, 3, 3))

    def network(x: Any) -> Any:
        return jax.nn.relu(_convolve(jax.nn.relu(_convolve(x, first, 2)), second, 2))

    return network, _image(3, size)


def deep(channels: int = 256, size: int = 7) -> Sample:
    """Two convolutions whose filters are larger than their images; NCHW."""
    import jax

    first, second = _weights((channels, channels, 3, 3), (channels, channels, 3, 3))

    def network(x: Any) -> Any:
        return _convolve(jax.nn.relu(_convolve(x, first)), second)

    return network, _image(channels, size)


def _convolve(x: Any, filters: Any, stride: int = 1) -> Any:
    from jax import lax

    pad = ((filters.shape[-1] // 2,) * 2,) * 2
    numbers = ("NCHW", "OIHW", "NCHW")
    return lax.conv_general_dilated(x, filters, (stride,) * 2, pad, dimension_numbers=numbers)


SAMPLES: dict[str, Callable[[], Sample]] = {"bottleneck": bottleneck, "stem": stem, "deep": deep}


NO_RULES = RuleSet("none", "", ())
DRAWN = 4  # variants by figures drawn at random
TIME_LIMIT = 10.0
Settings = tuple[str, ...]


@dataclass(frozen=True)
class TimedVariant:
    """One form of a program: what the target predicts, and what was measured."""

    name: str
    predicted_us: float
    measured_us: float


@dataclass(frozen=True)
class Agreement:
    """Variants of one program, how well the model ranks them, and what following it costs."""

    program: str
    variants: tuple[TimedVariant, ...]

    @property
    def rank_correlation(self) -> float:
        """Spearman's, -1 to 1; 1 if there is nothing to rank."""
        return spearman(
            [v.predicted_us for v in self.variants], [v.measured_us for v in self.variants]
        )

    @property
    def regret(self) -> float:
        """How much slower the variant predicted best is than the fastest; 0.02 is 2 %."""
        best = min(self.variants, key=lambda v: v.predicted_us)
        return best.measured_us / min(v.measured_us for v in self.variants) - 1

    def to_json(self) -> dict[str, Any]:
        """Everything, times in microseconds."""
        return {
            "program": self.program,
            "variants": [vars(v) for v in self.variants],
            "rank_correlation": round(self.rank_correlation, 3),
            "regret": round(self.regret, 4),
        }


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """The correlation of ranks; equal values share the mean of theirs."""
    x, y = _ranks(a), _ranks(b)
    mean = (len(x) - 1) / 2
    spread = (sum((v - mean) ** 2 for v in x) * sum((v - mean) ** 2 for v in y)) ** 0.5
    if not spread:
        return 1.0
    return sum((p - mean) * (q - mean) for p, q in zip(x, y, strict=True)) / spread


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered.index(v) + (ordered.count(v) - 1) / 2 for v in values]


def agreement(
    target: Target,
    rounds: int,
    *,
    timer: Timer | None = None,
    progress: Progress = lambda *_: None,
    programs: Sequence[str] = tuple(SAMPLES),
    drawn: int = DRAWN,
) -> list[Agreement]:
    """Predicted and measured times of the variants of small programs."""
    agreements = []
    for i, name in enumerate(programs):
        show = part(progress, i / len(programs), (i + 1) / len(programs))
        runs = unlike_runs(target, SAMPLES[name], drawn, show)
        probes = [Probe(f"{name} {key}", 1, _build(run)) for key, run in runs.items()]
        times = timed_rounds(probes, rounds, timer or CoreTimer(), show)
        agreements.append(Agreement(name, tuple(_variants(name, target, runs, times))))
    return agreements


def _variants(
    name: str, target: Target, runs: dict[str, Run], times: Any
) -> Iterator[TimedVariant]:
    for key, run in runs.items():
        measured = times[f"{name} {key}"].median * 1e6
        yield TimedVariant(key, round(price_us(run, target), 1), round(measured, 1))


def price_us(run: Run, target: Target) -> float:
    """A target's price of a run's program as it stands, packed or not, in microseconds."""
    assert run.schedule is not None, "variants are searched to the end"
    machine = replace(target, data_tiling=True)  # or it would know no rates of packed forms
    priced = optimize(run.schedule.program, target=machine, rules=NO_RULES, time_limit=TIME_LIMIT)
    assert priced.baseline is not None, "a program as it stands is admissible without a budget"
    return priced.summary()["goals"]["time_us"]["value"]


def _build(run: Run) -> Callable[[], Call]:
    """The run's program, compiled for random inputs."""

    def build() -> Call:
        import jax

        inputs = jax.device_put(random_inputs(run.program, np.random.default_rng(0)))
        executable = run.executable
        packed = jax.device_put(executable.packed)
        call = executable.jitted.lower(packed, *inputs).compile()
        return lambda: jax.block_until_ready(call(packed, *inputs))

    return build


# ---- variants --------------------------------------------------------------------------------
def unlike_runs(
    target: Target, program: Callable[[], Any], drawn: int, progress: Progress = lambda *_: None
) -> dict[str, Run]:
    """Searches of a program that end in different schedules, by what was asked for."""
    source, runs = program(), {}
    seen: set[str] = set()
    for name, settings, rules in _requests(drawn):
        progress(f"searching for `{name}`", 0.0)
        run = optimize(
            *source, target=target, settings=settings, rules=rules, time_limit=TIME_LIMIT
        )
        assert run.schedule is not None, "no setting here forbids an answer"
        text = run.schedule.program.to_text()
        if text not in seen:
            seen.add(text)
            runs[name] = run
    return runs


def _requests(drawn: int) -> Iterator[tuple[str, Settings, Any]]:
    yield "chosen", (), "default"
    yield "as read", (), NO_RULES
    for image, filters in (("nhwc", "hwio"), ("nchw", "oihw")):
        row = f"untiled.conv2d=[{{image: {image}, filters: {filters}, rate: 1.0}}]"
        yield image, (row, "relayout=0.1 GB/s"), "default"
    yield "packed", ("data_tiling=true", "tiles_forced=true"), "default"
    rng = Random(0)
    for i in range(drawn):
        yield f"drawn {i}", tuple(_drawn(rng)), "default"


def _drawn(rng: Random) -> Iterator[str]:
    """Figures of a machine that is not this one."""
    rows = [
        f"{{image: {image}, filters: {filters}, rate: {rng.uniform(0.1, 1):.2f}{when}}}"
        for image, filters in (("nhwc", "hwio"), ("nchw", "oihw"))
        for when in (f", when: c <= {rng.choice((16, 64, 128))}", "")
    ]
    yield f"untiled.conv2d=[{', '.join(rows)}]"
    yield f"relayout={10 ** rng.uniform(0, 3):.3g} GB/s"
