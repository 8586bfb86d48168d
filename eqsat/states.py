"""`eqsat.keep_state`: what every layout costs in which a program may keep its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eqsat.api import optimize
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.layout import Layout
from eqsat.ops.state import State, demanded, kept_in
from eqsat.ops.weightnames import root
from eqsat.run import Run, Source

if TYPE_CHECKING:
    import numpy as np

    from eqsat.model.program import Program
    from eqsat.report import state as told

Layouts = Mapping[State, Layout]
MOST = 12  # layouts that are tried alone


@dataclass(frozen=True)
class Alternative:
    """One way to keep the state; `layouts` has the states that are not plain."""

    layouts: Layouts
    run: Run

    @property
    def values(self) -> tuple[float, ...]:
        """The goals in order of priority; their weighted sum where they have weights."""
        assert self.run.selection is not None
        goals = dict(self.run.selection.goals)
        found = [float(goals[g.name].value) for g in self.run.goals]
        weights = [g.weight for g in self.run.goals]
        if any(w is None for w in weights):
            return tuple(found)
        return (sum(v * (w or 0.0) for v, w in zip(found, weights, strict=True)),)


@dataclass(frozen=True)
class Kept:
    """All ways that were tried, the plain one first; `names` are those of the inputs."""

    alternatives: tuple[Alternative, ...]
    names: Mapping[State, str]
    best: Alternative

    @property
    def run(self) -> Run:
        """The best one: a run whose state comes and goes packed."""
        return self.best.run

    def pack(self, name: str, array: Any) -> np.ndarray[Any, Any]:
        """A plain state as the best run takes it, for the first call."""
        return self._turned(name, array, packing=True)

    def unpack(self, name: str, array: Any) -> np.ndarray[Any, Any]:
        """A state that the best run returned as a plain array, after the last call."""
        return self._turned(name, array, packing=False)

    def _turned(self, name: str, array: Any, *, packing: bool) -> np.ndarray[Any, Any]:
        import numpy as np

        from eqsat.ops.meaning import pack, unpack

        states = {n: s for s, n in self.names.items()}
        if name not in states:
            raise fail("E397", f"no state named `{name}`", help=did_you_mean(name, states))
        layout = self.best.layouts.get(states[name])
        value = np.asarray(array)
        if layout is None:
            return value
        return pack(layout, value) if packing else unpack(layout, value)

    def to_text(self) -> str:
        """A line per alternative: what it costs, and what it costs more than the plain one."""
        from eqsat.report.state import state_text

        return state_text(self.told())

    __str__ = to_text

    def to_json(self) -> dict[str, Any]:
        """The object that `--output-format json` prints."""
        from eqsat.report.state import state_json

        return state_json(self.told())

    def told(self) -> told.Kept:
        """What the report reads."""
        from eqsat.report import state as told

        rows = tuple(
            told.Row({self.names[s]: layout for s, layout in a.layouts.items()}, a.run)
            for a in self.alternatives
        )
        program = self.alternatives[0].run.program
        types = {n: program.nodes[program.inputs[s.input]].type for s, n in self.names.items()}
        return told.Kept(program.name, types, rows, self.alternatives.index(self.best))


def keep_state(
    function_or_program: Callable[..., Any] | Program | Source,
    *example_args: Any,
    state: Mapping[str, int],
    time_limit: float = 60.0,
    weights: Sequence[str] = (),
    keywords: Mapping[str, Any] | None = None,
    **request: Any,
) -> Kept:
    """Search the program once per layout that its rules want a state in, and keep the best.

    state: argument → the result that takes its place in the next call; both may be trees. Of a
    program without a trace: name of an input → number of a result. States with the same layouts
    (a cache per layer) are kept alike. time_limit: seconds of each search. request: what `optimize`
    takes besides. Raises EqsatError (E397 to E399 for the state).
    """
    plain = optimize(
        function_or_program, *example_args, weights=weights, keywords=keywords,
        time_limit=time_limit, **request,
    )  # fmt: skip
    source = plain.source
    names = _states(source, state)
    first = Alternative({}, plain)
    tried = [first]
    better: dict[State, Layout] = {}
    assert plain.egraph is not None

    def search(layouts: Layouts) -> Alternative:
        program = kept_in(_searched(source.program), layouts)
        own = replace(source, program=program)
        found = Alternative(layouts, optimize(own, time_limit=time_limit, **request))
        tried.append(found)
        return found

    groups = _groups(source.program, names, demanded(plain.egraph))
    count = len([group for group, layouts in groups if layouts])
    for group, layouts in groups:
        found = [search(dict.fromkeys(group, layout)) for layout in layouts]
        best = min([first, *found], key=lambda a: a.values)
        better |= best.layouts
    if count > 1 and better and all(dict(a.layouts) != better for a in tried):
        search(better)
    return Kept(tuple(tried), names, min(tried, key=lambda a: a.values))


def _searched(program: Program) -> Program:
    """Without unit dims, as the plain program is searched: packs would keep them."""
    from eqsat.ops.squeeze import drop_unit_dims

    return drop_unit_dims(program)


def _groups(
    program: Program, names: Mapping[State, str], wanted: Mapping[int, tuple[Layout, ...]]
) -> list[tuple[list[State], tuple[Layout, ...]]]:
    """States that the rules want in the same layouts; EqsatError E399 if they are too many."""
    found: dict[tuple[Layout, ...], list[State]] = {}
    for s in names:
        found.setdefault(tuple(sorted(wanted.get(s.input, ()), key=str)), []).append(s)
    if sum(map(len, found)) > MOST:
        raise fail(
            "E399",
            f"`{program.name}` has {sum(map(len, found))} layouts to keep its state in, {MOST} are "
            "tried at most",
            help="name fewer arguments as state, or take rules away with `--without`",
        )
    return [(group, layouts) for layouts, group in found.items()]


# ---- which arguments and results -----------------------------------------------------------------
def _states(source: Source, state: Mapping[str, int]) -> dict[State, str]:
    """Every state with the name of its input; EqsatError E397 and E398 if one is no state."""
    if not state:
        raise fail(
            "E397",
            f"`{source.program.name}` names no state",
            help="write `NAME_state = {'argument': number of the result}` beside the function, "
            "or pass `--state argument=number`",
        )
    found: dict[State, str] = {}
    for name, number in state.items():
        inputs = _inputs_of(source, name)
        results = _results_of(source, number)
        _check(source.program, name, inputs, results)
        leaf = source.program.leaf
        pairs = zip(inputs, results, strict=True)
        found |= {State(i, r): leaf(source.program.inputs[i]).name for i, r in pairs}
    return found


def _inputs_of(source: Source, name: str) -> list[int]:
    """Numbers of the inputs that an argument is made of."""
    program, traced = source.program, source.traced
    names = [program.leaf(i).name for i in program.inputs]
    labels = names if traced is None else traced.input_labels
    found = [i for i, label in enumerate(labels) if root(label) == name or label == name]
    if not found:
        known = dict.fromkeys([*map(root, labels), *labels])
        raise fail(
            "E397", f"`{name}` is no argument that a state could be", help=did_you_mean(name, known)
        )
    return found


def _results_of(source: Source, number: int) -> list[int]:
    """Numbers of the flat results that a result of the function is made of."""
    if source.traced is None:
        return [number] if 0 <= number < len(source.program.results) else []
    tree = source.traced.out_tree
    sizes = [child.num_leaves for child in tree.children()] or [tree.num_leaves]
    if not 0 <= number < len(sizes):
        return []
    begin = sum(sizes[:number])
    return list(range(begin, begin + sizes[number]))


def _check(program: Program, name: str, inputs: list[int], results: list[int]) -> None:
    came = [program.nodes[program.inputs[i]].type for i in inputs]
    goes = [program.nodes[program.results[r]].type for r in results]
    if came != goes:
        texts = (", ".join(map(str, types[:3])) or "nothing" for types in (came, goes))
        raise fail(
            "E398",
            "state `{}` comes as {} and goes as {}".format(name, *texts),
            help="a state's result has the types of its argument, in the same order",
        )


__all__: Sequence[str] = ("Alternative", "Kept", "keep_state")
