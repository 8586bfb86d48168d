"""`eqsat.switch`: the best program of every size of a symbol, and one function that picks by size.

All sizes have one e-graph. A search at one size finds the best program there; what is known is
priced at other sizes, which needs no search; searches at both sides of each change of the program
confirm it, or find another program, which is priced in its turn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from eqsat.api.again import bind, search_at
from eqsat.api.optimization import DEFAULT_GOALS, goals_asked, optimize
from eqsat.api.reading import source_of
from eqsat.execute.weights import content_key
from eqsat.export.plan import Exported
from eqsat.frontends.source import Source
from eqsat.model.diag import EqsatError, fail
from eqsat.model.files import write_text
from eqsat.model.ops import CONVERSIONS, LEAVES, VIEWS
from eqsat.model.printed import Printed
from eqsat.model.program import Program
from eqsat.model.selection import GoalResult, Selection
from eqsat.model.sizeswitch import (
    SizeRange,
    SizeSearch,
    SizeSwitch,
    Values,
    chosen_programs,
    multiples,
    read_sizes,
)
from eqsat.model.symbols import check_names, sizes_of
from eqsat.ops.programs.binding import bind_graph
from eqsat.report.finished import is_best
from eqsat.run import Run
from eqsat.run.artefact import SWITCH, check_place, written_whole
from eqsat.run.saved import load_folder

SEARCHES = 25  # at most, unless somebody says otherwise
SAMPLES = 96  # sizes at which all programs are priced, at least


# ---- the answer ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Switch(Printed):
    """Programs for the sizes of a symbol, called as one function of flat inputs.

    programs: runs, each at a size at which it is the best; `table` says where which of them runs.
    """

    table: SizeSwitch
    programs: tuple[Run, ...]
    bound: dict[int, Run] = field(default_factory=dict)  # size → its program there, once called
    packed: dict[str, Any] = field(default_factory=dict)  # weights, by how they are packed

    def at(self, size: int) -> Run:
        """The program of this size, at this size; EqsatError E386 if it is none of the sizes."""
        run = self.programs[self.table.program_at(size)]
        return bind(run, {self.table.symbol: size})

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """The results for flat inputs, by the program of their size.

        The first call of a size compiles its program; weights that are packed alike are packed
        once. EqsatError E386 if the size is none of the sizes, E503 if an input does not fit.
        """
        size = self.size_of(inputs)
        if size not in self.bound:
            self.bound[size] = self._with_weights(self.at(size))
        return self.bound[size](*inputs)

    def size_of(self, inputs: Sequence[Any]) -> int:
        """The size that these inputs have; EqsatError E503 if there is no such input."""
        number, dim = _place_of_size(self.programs[0], self.table.symbol)
        shape = getattr(inputs[number], "shape", ()) if number < len(inputs) else ()
        if dim >= len(shape):
            why = f"input {number} has no dim {dim}, which is the size `{self.table.symbol}`"
            raise fail("E503", why)
        return int(shape[dim])

    def _with_weights(self, run: Run) -> Run:
        """The run with its weights as another size has packed them, or kept for other sizes."""
        schedule, executable = run.need_schedule(), run.executable
        keys = {i: content_key(schedule.program, i) for i in schedule.kept}
        if keys and all(key in self.packed for key in keys.values()):
            executable.packed = {i: self.packed[key] for i, key in keys.items()}
        packed = executable.packed
        self.packed.update({content_key(schedule.program, i): packed[i] for i in packed})
        return run

    def use_weights(self, values: Mapping[str, Any]) -> None:
        """Set these arrays as the weights of all programs, by name; EqsatError E324, E503."""
        for run in self.programs:
            run.use_weights(values)
        self.bound.clear()
        self.packed.clear()

    def export(
        self, to: str, path: str | Path | None = None, *, sizes: Sequence[int],
        weights: str = "auto", partial: bool = False,
    ) -> Exported:  # fmt: skip
        """The programs of these sizes as one function of `"mlir"` or `"onnx"` that picks by size.

        It fails when it is called at another size. The rest is as for `eqsat.Run.export`.
        EqsatError E386 if one is none of the sizes, and as there.
        """
        from eqsat.export.write import SizedSchedules, export, write_files

        first, symbol = self.programs[0], self.table.symbol
        schedules = {n: self.at(n).need_schedule() for n in sizes}
        exported = export(
            SizedSchedules(symbol, _place_of_size(first, symbol), schedules), to, first.weights,
            first.source.opaque, weights=weights, partial=partial, name=first.program.name,
            external="" if path is None else f"{Path(path).name}.data",
        )  # fmt: skip
        return exported if path is None else write_files(exported, Path(path))

    def to_text(self) -> str:
        """The ranges with their programs, the break-evens with their proofs, and the searches."""
        from eqsat.report.switch import switch_text

        return switch_text(self.table, self.programs)

    def to_json(self) -> dict[str, Any]:
        """The object that `--output-format json` prints."""
        return self.table.to_json()

    def save(self, folder: str | Path) -> Path:
        """switch.json and a run per program (`program-1` …), written aside and renamed.

        EqsatError: E309 if something else is in the way, E407 if it cannot be written.
        """
        folder = Path(folder)
        check_place(folder, SWITCH, "a switch")
        with written_whole(folder) as aside:
            for number, run in enumerate(self.programs, 1):
                run.save(aside / f"program-{number}")
            write_text(aside / SWITCH, f"{json.dumps(self.to_json(), indent=1)}\n")
        return folder


def load_switch(folder: Path, weights: Mapping[str, Any] | None = None) -> Switch:
    """A saved switch, with other weights if these are given; EqsatError E309, E324, E503."""
    try:
        table = SizeSwitch.from_json(json.loads((folder / SWITCH).read_text(encoding="utf-8")))
        count = 1 + max(r.program for r in table.ranges)
    except (OSError, ValueError, TypeError, KeyError) as e:
        why = f"`{folder}` is damaged: `{SWITCH}` is not as eqsat wrote it"
        raise fail("E309", why, help="make it again: `eqsat switch`") from e
    found = Switch(table, tuple(load_folder(folder / f"program-{i + 1}") for i in range(count)))
    if weights is not None:
        found.use_weights(weights)
    return found


def _place_of_size(run: Run, name: str) -> tuple[int, int]:
    """The number of an input and its dim that is the symbol; EqsatError E429 if none is."""
    assert run.family is not None
    program = run.family.program
    extent = next(s.extent for s in program.symbols if s.name == name)
    for number, i in enumerate(program.inputs):
        shape = program.nodes[i].type.shape
        if extent in shape:
            return number, shape.index(extent)
    raise fail("E429", f"no argument has `{name}` as a dim, so no call says its size")


# ---- the search ----------------------------------------------------------------------------------
def switch(
    function_or_program: Program | Source | str,
    sizes: str,
    *,
    weights: Sequence[str] = (),
    within: float = 0.01,
    searches: int = SEARCHES,
    **request: Any,
) -> Switch:
    """Find the best program of every size of a symbol, with the sizes at which it changes.

    function_or_program: as for `eqsat.optimize`, with the symbol among its dims. sizes:
    `"m=1..1024"`; `"m=16..1024:16"` are multiples of 16. within: a change of program pays so much
    at least (0: also what is worth nothing). searches: the most searches. request: further
    arguments of `optimize` (rules, target, goals, budget …); its `time_limit` is of each search.

    Both sides of each change are searched with proof, as long as there are searches left. Raises
    EqsatError as `optimize` does, of a size that no program takes, too; E385 for a symbol that the
    program has not, E429 for a range that is empty or sizes that no argument has.
    """
    name, asked = read_sizes(sizes)
    source = source_of(function_or_program, (), {}, weights)
    check_names({name: asked[0]}, source.program.symbols)
    if searches < 2 or not 0 <= within < 1:
        message = f"`searches` is {searches}, `within` {within}"
        raise fail("E400", message, help="two searches at least, and a share such as 0.01")
    if any(g.weight is not None for g in goals_asked(request.get("goals", DEFAULT_GOALS))):
        raise fail("E404", "programs of two sizes are not compared by goals with weights")
    symbol = next(s for s in source.program.symbols if s.name == name)
    wanted = multiples(sizes, asked, symbol.divisor)
    grid = _spread(wanted, max(searches // 2, 2))
    priced = replace(symbol, size=grid[0], also=tuple(grid[1:]))
    symbols = tuple(priced if s is symbol else s for s in source.program.symbols)
    source = replace(source, program=replace(source.program, symbols=symbols))
    run = optimize(source, stop_after="egraph", **request)
    if run.family is None:
        message = "a program with loops or branches is searched at the sizes it has"
        raise fail("E429", message, help="search it at each size: `eqsat optimize … --size`")
    _place_of_size(run, name)
    return _SizesSearch(run, name, wanted, within, searches).found(grid)


def _spread(sizes: range, count: int) -> list[int]:
    """Some of the sizes, from the first to the last, each larger by about the same factor."""
    first, last = sizes[0], sizes[-1]
    ratio = (last / first) ** (1 / (count - 1)) if count > 1 else 1.0
    places = {
        min(max(round((first * ratio**i - first) / sizes.step), 0), len(sizes) - 1)
        for i in range(count)
    }
    return [sizes[i] for i in sorted(places | {len(sizes) - 1})]


class _SizesSearch:
    """Programs that are known, by their choices in the e-graph of all sizes, and their prices."""

    def __init__(self, run: Run, name: str, sizes: range, within: float, most: int):
        assert run.family is not None
        assert run.family.egraph is not None
        self.run, self.name, self.sizes, self.within, self.most = run, name, sizes, within, most
        self.egraph, self.others = run.family.egraph, sizes_of(run.family.symbols)
        self.goals = tuple(g.name for g in run.goals)
        self.runs: list[Run] = []
        self.choices: list[Selection] = []  # of each, in nodes of the e-graph of all sizes
        self.searches: dict[int, SizeSearch] = {}
        self.prices: dict[int, list[Values]] = {s: [] for s in _spread(sizes, SAMPLES)}

    def found(self, grid: Sequence[int]) -> Switch:
        """The switch, once both sides of each change are searched, or no search is left."""
        for size in grid:
            self._search(size)
        while True:
            order, chosen = self._chosen()
            steps = pairwise(zip(order, chosen, strict=True))
            inner = [(a, b) for (a, p), (b, q) in steps if p != q]
            middles = [s for a, b in inner for s in self._between(a, b)]
            left = [s for pair in inner for s in pair if s not in self.searches]
            if middles:
                for size in middles:
                    self._price(size)
            elif left and len(self.searches) < self.most:
                self._search(left[0])
            else:
                return self._switch(order, chosen)

    def _chosen(self) -> tuple[list[int], list[int]]:
        """Sizes that are priced, and the program of each; one that no program takes is searched."""
        order = sorted(self.prices)
        for size in order:
            if not any(self.prices[size]):
                self._search(size)
        return order, chosen_programs([self.prices[s] for s in order], self.within)

    def _between(self, a: int, b: int) -> list[int]:
        """The size in the middle of two, if there is one."""
        middle = self.sizes.index(a) + self.sizes.index(b) >> 1
        return [self.sizes[middle]] if self.sizes[middle] != a else []

    def _search(self, size: int) -> None:
        """Search at a size; a program that is better there than all that are known is new."""
        try:
            run = search_at(self.run, {self.name: size})
        except EqsatError as error:
            told = [
                replace(d, message=f"at {self.name} = {size}: {d.message}")
                for d in error.diagnostics
            ]
            raise EqsatError(*told, exit_code=error.exit_code) from None
        assert run.selection is not None
        values = tuple(run.selection.goal(g).value for g in self.goals)
        self.searches[size] = SizeSearch(size, values, is_best(run.selection, run.goals))
        self._price(size)
        if all(not known or values < known for known in self.prices[size]):
            self.runs.append(run)
            self.choices.append(self._choice(run))
            for priced in self.prices:
                self._price(priced)

    def _choice(self, run: Run) -> Selection:
        """The selection of a run in nodes of the e-graph of all sizes."""
        assert run.family is not None
        assert run.selection is not None
        number = bind_graph(self.egraph, sizes_of(run.family.symbols)).number
        back = {n: i for i, n in number.items()}
        groups = (
            replace(g, members=tuple(back[m] for m in g.members)) for g in run.selection.groups
        )
        ahead = tuple(back[a] for a in run.selection.ahead)
        names = dict.fromkeys((*self.goals, *dict(run.target.budget)))
        goals = tuple((name, GoalResult(0, 0)) for name in names)
        return replace(run.selection, groups=tuple(groups), ahead=ahead, goals=goals)

    def _price(self, size: int) -> None:
        """Price the programs that are not priced at this size yet."""
        from eqsat.extract import reprice

        row = self.prices.setdefault(size, [])
        if len(row) == len(self.choices):
            return
        graph = bind_graph(self.egraph, self.others | {self.name: size}, self._kept())
        for choice in self.choices[len(row) :]:
            try:
                priced = reprice(graph.egraph, self.run.target, choice, graph.number, "")
            except EqsatError:  # it does not exist there, or is not legal
                row.append(())
                continue
            fits = all(priced.goal(g).value <= most for g, most in self.run.target.budget)
            row.append(tuple(priced.goal(g).value for g in self.goals) if fits else ())

    def _kept(self) -> set[int]:
        """Nodes that prices depend on: those of the programs, and what only moves data."""
        moves = LEAVES | VIEWS | CONVERSIONS
        kept = {i for i, n in enumerate(self.egraph.nodes) if n.op in moves}
        for choice in self.choices:
            kept.update(choice.ahead, *(g.members for g in choice.groups))
        return kept

    def _switch(self, order: Sequence[int], chosen: Sequence[int]) -> Switch:
        """The programs that run at some size, numbered in the order of the sizes."""
        used = list(dict.fromkeys(chosen))
        ranges: list[SizeRange] = []
        for size, program in zip(order, map(used.index, chosen), strict=True):
            if ranges and ranges[-1].program == program:
                ranges[-1] = replace(ranges[-1], last=size)
            else:
                ranges.append(SizeRange(size, size, program))
        prices = tuple((s, tuple(self.prices[s][p] for p in used)) for s in order)
        searches = tuple(self.searches[s] for s in sorted(self.searches))
        sizes = self.sizes[0], self.sizes[-1], self.sizes.step
        table = SizeSwitch(
            self.name, sizes, self.goals, self.within, tuple(ranges), searches, prices
        )
        return Switch(table, tuple(self.runs[p] for p in used))
