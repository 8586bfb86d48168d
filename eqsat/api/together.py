"""`eqsat.optimize_together`: functions that share weights, searched as one, priced by calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from eqsat.api.borders import name_donated
from eqsat.api.optimization import DEFAULT_GOALS, DEFAULT_TARGET, optimize, target
from eqsat.api.reading import source_of
from eqsat.execute.weights import content_key
from eqsat.extract.selected import CutPart, graph_of_program, part_egraph, part_selection
from eqsat.frontends.source import Source
from eqsat.lang.units import budget_of
from eqsat.model.deadline import elapsed
from eqsat.model.diag import check_known, fail
from eqsat.model.printed import Printed
from eqsat.model.program import Program
from eqsat.model.target import Target
from eqsat.ops.programs.cutting import MARK, as_one_program, cut_out, part_numbers
from eqsat.plan.planner import working_set
from eqsat.report.formatting import bytes_text, goal_text
from eqsat.run import Run, RunUse
from eqsat.run.phases import PLACING_SECONDS, with_schedules

ROOM = 64  # weights may take this part of their bytes more: padding of packs
MOST_CALLS = 10_000  # of longer sums of picoseconds the solver is not exact; ratios are what counts


@dataclass(frozen=True)
class Called:
    """One of several functions that share weights.

    function: as for `eqsat.optimize`, also a program or its name. args, keywords: its example
    arguments. calls: how often it is called, beside the calls of the others; its time counts so
    often. donate: arguments that a call uses up.
    """

    function: Callable[..., Any] | Program | Source | str
    args: Sequence[Any] = ()
    calls: int = 1
    keywords: Mapping[str, Any] = field(default_factory=dict)
    donate: Sequence[str] = ()


@dataclass(frozen=True)
class Together(Printed):
    """The answer for all parts.

    runs: part → its run: schedule, explanation, executable. calls: part → how often it is called.
    whole: the search of all parts as one program, with the goals' values and bounds; it has no
    schedule. Its times are those of all calls, its peak memory is of all parts' arguments and
    results, so an upper bound of each part's own.
    """

    runs: Mapping[str, Run]
    calls: Mapping[str, int]
    whole: Run

    def __getitem__(self, name: str) -> Run:
        check_known(name, self.runs, "E419", f"no part `{name}`")
        return self.runs[name]

    @property
    def time_ps(self) -> int:
        """Picoseconds of all calls of all parts."""
        schedules = {name: run.schedule for name, run in self.runs.items()}
        return sum(s.time_ps * self.calls[n] for n, s in schedules.items() if s is not None)

    @property
    def resident_bytes(self) -> int:
        """Weights that stay in memory, those that several parts read once."""
        return sum(self._resident.values())

    @cached_property
    def _resident(self) -> dict[str, int]:
        """Bytes of each kept weight, by how it follows from weights (`content_key`)."""
        sizes: dict[str, int] = {}
        for schedule in (run.schedule for run in self.runs.values()):
            assert schedule is not None
            nodes = schedule.program.nodes
            sizes |= {content_key(schedule.program, i): nodes[i].type.nbytes for i in schedule.kept}
        return sizes

    def use_weights(self, values: Mapping[str, Any]) -> None:
        """Set these arrays as the weights of all parts, by name; each part takes those it has.

        EqsatError: E324 if no part has such a weight, E503 if an array does not fit.
        """
        by_part = {name: _weight_names(run) for name, run in self.runs.items()}
        every = set[str]().union(*by_part.values())
        for name in values:
            check_known(name, every, "E324", f"no part has a weight `{name}`")
        for part, run in self.runs.items():
            run.use_weights({k: v for k, v in values.items() if k in by_part[part]})
        self.share_weights()

    def share_weights(self) -> dict[str, Any]:
        """Pack every weight once and let all executables read the same arrays.

        The arrays, by how they follow from weights. EqsatError E503 if a weight has no array.
        """
        arrays: dict[str, Any] = {}
        for run in self.runs.values():
            program, executable = run.executable.schedule.program, run.executable
            packed = executable.packed
            keys = {i: content_key(program, i) for i in packed}
            arrays |= {k: packed[i] for i, k in keys.items() if k not in arrays}
            executable.packed = {i: arrays[k] for i, k in keys.items()}
        return arrays

    def compile(self) -> dict[str, Any]:
        """Called → a function that is called as it is (`Run.compile`); weights are kept once."""
        self.share_weights()
        return {name: run.compile() for name, run in self.runs.items()}

    def to_text(self) -> str:
        """A line per part: its calls and time; then the bytes of all weights."""
        lines = []
        for name, run in self.runs.items():
            assert run.schedule is not None
            took, count = goal_text("time", run.schedule.time_ps), self.calls[name]
            lines.append(f"{name}: {took}, called {count:,} times")
        total = goal_text("time", self.time_ps)
        lines.append(f"all calls: {total}; weights: {bytes_text(self.resident_bytes)}")
        return "\n".join(lines) + "\n"


def optimize_together(
    parts: Mapping[str, Called],
    *,
    weights: Sequence[str] = (),
    target: str | Path | Target = DEFAULT_TARGET,
    budget: Mapping[str, int | str] | None = None,
    goals: Sequence[str] = DEFAULT_GOALS,
    time_limit: float = 60.0,
    **request: Any,
) -> Together:
    """Search functions that share weights as one program: prefill and decode of a language model.

    Time is the sum over the parts of calls times time, so the layout of a weight is the one that
    is best for all calls, whichever part makes them. Weights are kept once: `resident` has a budget
    of their bytes and a 64th, unless `budget` says otherwise. No dispatch computes for two
    parts. weights: names of arguments that are weights, in all parts that have them; those of one
    name and type are one weight, and so are closed-over arrays of equal values. target, goals,
    time_limit, request: as for `eqsat.optimize`. Raises EqsatError as that does, and E419 for parts
    that cannot be searched so.
    """
    sources = {name: _source(name, part, weights) for name, part in _checked(parts).items()}
    machine = _machine(target)
    programs = {name: s.program for name, s in sources.items()}
    joined = _whole(sources, as_one_program(programs))
    limits = {"resident": _one_copy(joined.program), **dict(machine.budget), **(budget or {})}
    calls = {name: part.calls for name, part in parts.items()}
    together = _devices(machine, sources, joined.program, calls)
    options: dict[str, Any] = {"goals": goals, "time_limit": time_limit, **request}
    deadline = elapsed() + time_limit
    run = optimize(joined, target=together, budget=limits, stop_after="selection", **options)
    one = replace(machine, budget=tuple((g, budget_of(g, v, g)) for g, v in limits.items()))
    seconds = min(PLACING_SECONDS, max(deadline - elapsed(), 0.0) / 2)
    runs = {name: _part_run(run, name, sources, one, seconds) for name in sources}
    return Together(runs, calls, run)


def _checked(parts: Mapping[str, Called]) -> Mapping[str, Called]:
    """EqsatError E419 if there are no parts, or one has a wrong name or number of calls."""
    if not parts:
        raise fail("E419", "there are no parts", help="name at least one function to search")
    for name, part in parts.items():
        if not name.isidentifier():
            help = "letters, digits and `_`, no digit first"
            raise fail("E419", f"`{name}` is no name of a part", help=help)
        if not isinstance(part, Called):
            help = "eqsat.Called(function, args, calls=128)"
            raise fail("E419", f"`{name}` is a {type(part).__name__}, no `eqsat.Called`", help=help)
        is_integer = isinstance(part.calls, int) and not isinstance(part.calls, bool)
        if not is_integer or not 1 <= part.calls <= MOST_CALLS:
            message = f"`{name}` is called {part.calls!r} times"
            raise fail("E419", message, help=f"a whole number from 1 to {MOST_CALLS:,}")
    return parts


def _source(name: str, part: Called, weights: Sequence[str]) -> Source:
    source = source_of(part.function, tuple(part.args), part.keywords, weights)
    if source.layouts:
        help = "search it alone: `eqsat.optimize`"
        raise fail("E419", f"`{name}` has arguments in layouts of their own", help=help)
    return name_donated(source, part.donate)


def _machine(what: str | Path | Target) -> Target:
    machine = what if isinstance(what, Target) else target(what)
    if machine.devices:
        message = f"`{machine.name}` is several devices"
        raise fail("E419", message, help="name a target of one device")
    return machine


def _whole(sources: Mapping[str, Source], program: Program) -> Source:
    """All sources as one; an opaque call of one part is none of another one's."""
    weights: dict[str, Any] = {}
    opaque: dict[str, Any] = {}
    for source in sources.values():
        weights |= source.weights
        opaque |= source.opaque
    return Source(program, weights, opaque)


def _one_copy(program: Program) -> int:
    """Bytes of every weight once, with some room for padding."""
    return program.weight_bytes + math.ceil(program.weight_bytes / ROOM)


def _devices(
    machine: Target, sources: Mapping[str, Source], program: Program, calls: Mapping[str, int]
) -> Target:
    """The target of all parts: each is a device, on which times are of all its calls.

    No dispatch is on two devices, what one computes no other reads, and weights are on all. The
    first one alone may make something from weights by a dispatch of its own, in every call: that is
    the part of fewest calls.
    """
    parts = [
        (n, replace(machine, budget=(), calls=calls[n], touched_bytes=_touched(sources[n].program)))
        for n in sorted(sources, key=lambda n: calls[n])
    ]
    names = [program.leaf(i).name for i in program.inputs]
    inputs = tuple((name, name.partition(MARK)[0]) for name in names)
    return replace(machine, budget=(), devices=tuple(parts), placed=inputs)


def _touched(program: Program) -> int:
    """Bytes between two uses of a weight where a part is called several times in a row."""
    from eqsat.ops.spelling.passes import canonical

    return working_set(graph_of_program(canonical(program)))


def _part_run(
    whole: Run, name: str, sources: Mapping[str, Source], machine: Target, seconds: float
) -> Run:
    """The run of one part: its program, its share of the e-graph and of the answer."""
    assert whole.egraph is not None
    assert whole.selection is not None
    programs = {n: s.program for n, s in sources.items()}
    first, results = part_numbers(programs, name)
    count = len(programs[name].inputs)
    canonical, values = cut_out(whole.canonical, name, first, results, count)
    cut = CutPart(name, first, results, values)
    egraph, numbers = part_egraph(whole.egraph, whole.target, cut)
    baseline = None
    goals = whole.goals
    chosen = part_selection(whole.selection, egraph, machine, numbers, goals)
    if whole.baseline is not None:
        baseline = part_selection(whole.baseline, egraph, machine, numbers, goals)
    run = replace(
        whole, source=sources[name], canonical=canonical, target=machine, egraph=egraph,
        selection=chosen, baseline=baseline, seconds=dict(whole.seconds), use=RunUse(), curve=None,
    )  # fmt: skip
    return with_schedules(run, seconds)


def _weight_names(run: Run) -> set[str]:
    return {run.program.leaf(i).name for i in run.program.weights}
