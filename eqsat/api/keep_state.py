"""`eqsat.keep_state`: the price of every layout of a program's state, or of a free border."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.api.borders import (
    Request,
    arguments_of,
    asked_of,
    labels_of,
    results_of,
)
from eqsat.api.optimization import optimize
from eqsat.api.reading import source_of
from eqsat.frontends.source import Source
from eqsat.frontends.sourceborders import fixed_in, held_at, name_of, type_of
from eqsat.model.diag import check_known, did_you_mean, fail
from eqsat.model.layout import Border, Free, Held, Layout
from eqsat.model.leaves import Leaf
from eqsat.model.printed import Printed
from eqsat.model.program import Builder, Program
from eqsat.ops.builtin.layouts import pack, unpack
from eqsat.ops.programs.binding import first_name
from eqsat.ops.programs.border_layouts import demanded, put_in, refuse_other, taken_out
from eqsat.report.state import StateReport, StateRow, state_json, state_text
from eqsat.run import Run

MOST = 12  # layouts that are tried alone
MOST_TOGETHER = 24  # combinations of them; beyond, one is changed at a time


@dataclass(frozen=True)
class Tie:
    """Arguments and results that have one layout, which the search chooses.

    A state is an argument and the result that is its value in the next call. calls: the caller
    converts once in so many calls; 0: never.
    """

    name: str
    borders: tuple[Border, ...]
    calls: int = 0


Layouts = Mapping[Tie, Layout]


@dataclass(frozen=True)
class Alternative:
    """One choice of layouts; `layouts` has what is not plain.

    caller_ps: the caller's cost of conversion per call, which is added to the time.
    """

    layouts: Layouts
    run: Run
    caller_ps: float = 0.0

    def told(self) -> StateRow:
        """The plain values that the report reads."""
        layouts = {t.name: layout for t, layout in self.layouts.items()}
        return StateRow(layouts, self.run, self.caller_ps)

    @property
    def values(self) -> tuple[float, ...]:
        """The goals in order of priority; their weighted sum where they have weights."""
        assert self.run.selection is not None
        goals = dict(self.run.selection.goals)
        values = [
            float(goals[g.name].value) + (self.caller_ps if g.name == "time" else 0.0)
            for g in self.run.goals
        ]
        weights = [g.weight for g in self.run.goals]
        if any(w is None for w in weights):
            return tuple(values)
        return (sum(v * (w or 0.0) for v, w in zip(values, weights, strict=True)),)


@dataclass(frozen=True)
class Kept(Printed):
    """All choices that were tried, the plain one first; ties are named as the program's inputs.

    combinations: how many choices there are.
    """

    alternatives: tuple[Alternative, ...]
    ties: tuple[Tie, ...]
    best: Alternative
    combinations: int

    @property
    def run(self) -> Run:
        """The best one: a run whose state is passed and returned packed."""
        return self.best.run

    def pack(self, name: str, array: Any) -> np.ndarray[Any, Any]:
        """A plain state as the best run takes it, for the first call."""
        return self._turned(name, array, pack)

    def unpack(self, name: str, array: Any) -> np.ndarray[Any, Any]:
        """A state that the best run returned as a plain array, after the last call."""
        return self._turned(name, array, unpack)

    def _turned(
        self, name: str, array: Any, turn: Callable[[Layout, Any], Any]
    ) -> np.ndarray[Any, Any]:
        ties = {t.name: t for t in self.ties}
        check_known(name, ties, "E397", f"no state named `{name}`")
        layout = self.best.layouts.get(ties[name])
        value = np.asarray(array)
        return value if layout is None else turn(layout, value)

    def to_text(self) -> str:
        """A line per alternative: its price, and the difference to the plain one."""
        return state_text(self.told())

    def to_json(self) -> dict[str, Any]:
        """The object that `--output-format json` prints."""
        return state_json(self.told())

    def told(self) -> StateReport:
        """The plain values that the report reads."""
        rows = tuple(a.told() for a in self.alternatives)
        program = self.alternatives[0].run.program
        types = {t.name: type_of(program, t.borders[0]) for t in self.ties}
        best = self.alternatives.index(self.best)
        return StateReport(program.name, types, rows, best, self.combinations)


def keep_state(
    function_or_program: Callable[..., Any] | Program | Source,
    *example_args: Any,
    state: Mapping[str, int] | None = None,
    layouts: Mapping[str, Request] | None = None,
    time_limit: float = 60.0,
    weights: Sequence[str] = (),
    keywords: Mapping[str, Any] | None = None,
    on_tried: Callable[[Alternative], None] = lambda _: None,
    **request: Any,
) -> Kept:
    """Search the program once per choice of layouts for its state, and keep the best.

    state: argument → the result that replaces it in the next call; both may be trees. Of a program
    without a trace: name of an input → number of a result. layouts: as for `optimize`; the layout
    of a `"free"` border is chosen like that of a state, with `"free(calls=100)"` at the price of
    one conversion in 100 calls. The layouts tried are those in which some op of the program's
    e-graph reads or makes the tensor; states with the same candidate layouts (a cache per layer)
    are kept alike. All combinations are searched if there are at most 24; otherwise one state is
    changed at a time until nothing gets better. time_limit: seconds of each search. on_tried:
    called with each choice as its search ends. request: further arguments of `optimize`. Raises
    EqsatError (E397 to E399 for the state, E393 and E394 for layouts).
    """
    source = source_of(function_or_program, example_args, keywords or {}, weights)
    requests = asked_of(source, layouts or {})
    free = {b: a for b, a in requests.items() if isinstance(a, Free)}
    ties = _states(source, state or {}, needed=not free)
    tied = {b for t in ties for b in t.borders}
    ties += [Tie(name_of(source, b), (b,), a.calls) for b, a in free.items() if b not in tied]
    source, ties = _settled(source, ties, {b: a for b, a in requests.items() if b not in free})
    options: dict[str, Any] = {"time_limit": time_limit, **request}
    plain = optimize(source, **options)
    assert plain.egraph is not None
    search = _Search(source, options, on_tried)
    search.add(Alternative({}, plain))
    groups = _groups(plain.program, ties, demanded(plain.egraph))
    search.together(groups)
    best = min(search.tried, key=lambda a: a.values)
    count = math.prod(len(choices) for _, choices in groups)
    return Kept(tuple(search.tried), tuple(ties), best, count)


def _settled(
    source: Source, ties: Sequence[Tie], requests: Mapping[Border, Any]
) -> tuple[Source, list[Tie]]:
    """The source in the layouts that the caller fixes, and the ties that are left to choose.

    One side of a state that is fixed fixes the other; EqsatError E393 if they differ.
    """
    fixed: dict[Border, Held | None] = dict(requests)
    left = []
    for tie in ties:
        layouts = {b: fixed.get(b, held_at(source, b)) for b in tie.borders}
        requested = {b: h for b, h in layouts.items() if b in fixed or h is not None}
        if not requested:
            left.append(tie)
            continue
        (first, one), *others = sorted(requested.items(), key=lambda pair: pair[1] is None)
        for border, other in others:
            what = f"state `{tie.name}`, on its other side,"
            refuse_other(what, one, other, source.places.get(first) or source.places.get(border))
        fixed |= dict.fromkeys(tie.borders, one)
    return fixed_in(source, fixed), left


Choices = tuple[Layout | None, ...]  # None: plain
Group = tuple[list[Tie], Choices]  # ties that are kept alike


@dataclass
class _Search:
    """Searches one program in several layouts, each choice once."""

    source: Source
    options: Mapping[str, Any]
    on_tried: Callable[[Alternative], None]
    alternatives: dict[frozenset[tuple[Tie, Layout]], Alternative] = field(default_factory=dict)

    @property
    def tried(self) -> list[Alternative]:
        return list(self.alternatives.values())

    def add(self, alternative: Alternative) -> Alternative:
        self.alternatives[frozenset(alternative.layouts.items())] = alternative
        self.on_tried(alternative)
        return alternative

    def run(self, groups: Sequence[Group], choice: Sequence[Layout | None]) -> Alternative:
        """The best program with these layouts, one per group."""
        pairs = zip(groups, choice, strict=True)
        layouts = {t: layout for (ties, _), layout in pairs if layout is not None for t in ties}
        key = frozenset(layouts.items())
        if key not in self.alternatives:
            by_border = {b: layout for t, layout in layouts.items() for b in t.borders}
            run = optimize(fixed_in(self.source, by_border), **self.options)
            paid = sum(self._price(t, layout) for t, layout in layouts.items())
            return self.add(Alternative(layouts, run, paid))
        return self.alternatives[key]

    def together(self, groups: Sequence[Group]) -> None:
        """Every combination, or from the best alone one group at a time, first alone."""
        plain: list[Layout | None] = [None] * len(groups)
        alone = [
            [self.run(groups, [*plain[:i], c, *plain[i + 1 :]]) for c in choices]
            for i, (_, choices) in enumerate(groups)
        ]
        if math.prod(len(choices) for _, choices in groups) <= MOST_TOGETHER:
            for choice in itertools.product(*(choices for _, choices in groups)):
                self.run(groups, choice)
            return
        first = [
            min(zip(a, g[1], strict=True), key=_value) for a, g in zip(alone, groups, strict=True)
        ]
        self._descend(groups, [choice for _, choice in first])

    def _descend(self, groups: Sequence[Group], choice: list[Layout | None]) -> None:
        """Change one group's layout at a time while that is better."""
        left = MOST_TOGETHER
        value = self.run(groups, choice).values
        changed = True
        while changed and left > 0:
            changed = False
            for i, layout in _changes(groups):
                other = [*choice[:i], layout, *choice[i + 1 :]]
                left -= 1
                candidate = self.run(groups, other).values if left >= 0 else value
                if candidate < value:
                    choice, value, changed = other, candidate, True

    def _price(self, tie: Tie, layout: Layout) -> float:
        """Picoseconds per call that the caller spends on converting; 0 if nobody counts them."""
        return self._conversion_ps(tie, layout) / tie.calls if tie.calls else 0.0

    def _conversion_ps(self, tie: Tie, layout: Layout) -> float:
        """Time of a dispatch that lays the tensor out, or that undoes it behind a result."""
        of = type_of(self.source.program, tie.borders[0])
        b = Builder("conversion")
        if tie.borders[0].kind == "input":
            result = put_in(b, b.append("input", (), Leaf("x", of, 0)), layout)
        else:
            leaf = Leaf("x", of.with_shape(layout.packed_shape), 0, layout=layout)
            result = taken_out(b, b.append("input", (), leaf))
        names = ("rules", "target", "settings", "time_limit", "seed", "unchecked")
        options = {k: v for k, v in self.options.items() if k in names}
        conversion = optimize(b.build([result]), **options)
        assert conversion.schedule is not None
        return float(conversion.schedule.time_ps)


def _value(pair: tuple[Alternative, Layout | None]) -> tuple[float, ...]:
    return pair[0].values


def _changes(groups: Sequence[Group]) -> Iterator[tuple[int, Layout | None]]:
    for i, (_, choices) in enumerate(groups):
        for layout in choices:
            yield i, layout


def _groups(
    program: Program, ties: Sequence[Tie], wanted: Mapping[Border, tuple[Layout, ...]]
) -> list[Group]:
    """Ties that the rules want in the same layouts; EqsatError E399 if those are too many."""
    groups: dict[tuple[tuple[Layout, ...], int], list[Tie]] = {}
    for tie in ties:
        layouts = {layout for b in tie.borders for layout in wanted.get(b, ())}
        groups.setdefault((tuple(sorted(layouts, key=str)), tie.calls), []).append(tie)
    count = sum(len(layouts) for layouts, _ in groups)
    if count > MOST:
        raise fail(
            "E399",
            f"`{program.name}` has {count} layouts to keep its state in, {MOST} are tried at most",
            help="name fewer arguments as state, or take rules away with `--without`",
        )
    return [(members, (None, *layouts)) for (layouts, _), members in groups.items() if layouts]


# ---- which arguments and results -----------------------------------------------------------------
def _states(source: Source, state: Mapping[str, int], *, needed: bool) -> list[Tie]:
    """Every state by the name of its input; EqsatError E397 and E398 if one is no state."""
    if not state and needed:
        raise fail(
            "E397",
            f"`{source.program.name}` names no state",
            help="write `NAME_state = {'argument': number of the result}` beside the function, "
            "or pass `--state argument=number`",
        )
    ties: list[Tie] = []
    for name, number in state.items():
        inputs = _inputs_of(source, name)
        results = results_of(source, number)
        _check(source.program, name, inputs, results)
        for pair in zip(inputs, results, strict=True):
            borders = Border("input", pair[0]), Border("result", pair[1])
            ties.append(Tie(name_of(source, borders[0]), borders))
    return ties


def _inputs_of(source: Source, name: str) -> list[int]:
    """Numbers of the inputs that an argument is made of."""
    inputs = arguments_of(source, name)
    if not inputs:
        labels = labels_of(source)
        names = dict.fromkeys([*map(first_name, labels), *labels])
        raise fail(
            "E397", f"`{name}` is no argument that a state could be", help=did_you_mean(name, names)
        )
    return inputs


def _check(program: Program, name: str, inputs: list[int], results: list[int]) -> None:
    came = [type_of(program, Border("input", i)) for i in inputs]
    goes = [type_of(program, Border("result", r)) for r in results]
    if came != goes:
        texts = (", ".join(map(str, types[:3])) or "nothing" for types in (came, goes))
        raise fail(
            "E398",
            "state `{}` comes as {} and goes as {}".format(name, *texts),
            help="a state's result has the types of its argument, in the same order",
        )
