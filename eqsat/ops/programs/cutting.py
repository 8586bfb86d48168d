"""Programs made of programs: several that share weights as one, and one made of dispatches.

A joined program can be cut into its parts again; a dispatch is a program of its own that reads what
others wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from eqsat.model.compiled import CutDispatch, CutProgram
from eqsat.model.control import controls
from eqsat.model.diag import fail
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder, Node, Program
from eqsat.ops.spelling.passes import canonical

MARK = "."  # between the name of a part and that of its argument


def as_one_program(programs: Mapping[str, Program]) -> Program:
    """One program that computes the results of all, in order; weights of one content are one.

    Arguments are named after their part. EqsatError: E419 for a program with loops, branches or
    open sizes.
    """
    b = Builder("+".join(programs))
    weights: dict[str, int] = {}  # by content
    results: list[int] = []
    count = 0
    for name, program in programs.items():
        _check(name, program)
        new: dict[int, int] = {}
        for i, n in enumerate(program.nodes):
            if n.op == "input":
                leaf = program.leaf(i)
                argument = replace(leaf, name=f"{name}{MARK}{leaf.name}", index=count + leaf.index)
                new[i] = b.append("input", (), argument)
            elif n.op == "weight":
                key = program.leaf(i).key
                new[i] = weights[key] = weights[key] if key in weights else b.move(n, ())
            else:
                new[i] = b.move(n, tuple([new[o] for o in n.operands]))
        results += [new[r] for r in program.results]
        count += len(program.inputs)
    return b.build(results)


def _check(name: str, program: Program) -> None:
    what = "loops or branches" if controls(program) else "sizes that are not known"
    if program.symbols or controls(program):
        help = "search it alone: `eqsat.optimize`"
        raise fail("E419", f"`{name}` has {what}, so it cannot be searched with others", help=help)


def part_numbers(programs: Mapping[str, Program], name: str) -> tuple[int, range]:
    """(number of its first argument, numbers of its results) of one part in the joined program."""
    inputs = results = 0
    for other, program in programs.items():
        if other == name:
            return inputs, range(results, results + len(program.results))
        inputs, results = inputs + len(program.inputs), results + len(program.results)
    raise KeyError(name)


def own_leaf(leaf: Leaf, name: str, first: int) -> Leaf:
    """An argument of the joined program as the part itself names and numbers it."""
    return replace(leaf, name=leaf.name.removeprefix(f"{name}{MARK}"), index=leaf.index - first)


def cut_out(
    program: Program, name: str, first: int, results: range, count: int
) -> tuple[Program, tuple[int, ...]]:
    """One part of a joined program, and the number there of each of its values.

    first, count: the numbers of its arguments.
    """
    inputs = {i for i in program.inputs if first <= program.leaf(i).index < first + count}
    wanted = {program.results[r] for r in results} | inputs
    for i in range(len(program.nodes) - 1, -1, -1):
        if i in wanted:
            wanted.update(program.nodes[i].operands)
    b = Builder(name)
    new: dict[int, int] = {}
    numbers = sorted(wanted)
    for i in numbers:
        n = program.nodes[i]
        b.origin = n.origin
        if i in inputs:
            new[i] = b.append("input", (), own_leaf(program.leaf(i), name, first))
        else:
            new[i] = b.append(n.op, tuple([new[o] for o in n.operands]), n.attr)
    return b.build([new[program.results[r]] for r in results]), tuple(numbers)


UNKNOWN = "unknown:"  # begins the key of a weight whose values nobody told
NOT_COMPUTED = ("input", "weight", "reshape")  # by no dispatch


class Cutter:
    """Puts dispatches together in the order they run.

    Each is written in the one spelling of what is searched, so that values that it keeps inside may
    be merged; what it reads and writes stays.
    """

    def __init__(self, name: str):
        self.builder = Builder(name)
        self.dispatches: list[CutDispatch] = []
        self.notes: list[str] = []
        self.weights: dict[str, Any] = {}

    def add(
        self, name: str, at: str, part: Program, arguments: Sequence[int], *, is_told: bool = True
    ) -> list[int]:
        """The nodes of a dispatch's results; its input `i` is the node `arguments[i]`.

        One that computes nothing is none; is_told: and noted, as something called it a dispatch.
        """
        spelled = canonical(part)
        number: dict[int, int] = {}
        for i, n in enumerate(spelled.nodes):
            if n.op == "input" and isinstance(n.attr, Leaf):
                number[i] = arguments[n.attr.index]
            else:
                number[i] = self.builder.move(n, tuple(number[o] for o in n.operands))
        needed = spelled.needed
        computed = [i for i in needed if spelled.nodes[i].op not in NOT_COMPUTED]
        members = tuple(sorted({number[i] for i in computed}))
        read = {number[o] for i in needed for o in spelled.nodes[i].operands}
        read |= {number[i] for i in needed if spelled.nodes[i].op == "weight"}
        reads = tuple(sorted({self.base(r) for r in read} - set(members)))
        writes = tuple(dict.fromkeys(self.base(number[r]) for r in spelled.results))
        if members:
            self.dispatches.append(CutDispatch(name, at, members, reads, writes))
        elif arguments and is_told:
            self.notes.append(f"`{name}` ({at}) computes nothing")
        return [number[r] for r in spelled.results]

    def base(self, node: int) -> int:
        """The node whose bytes these are."""
        while self.builder.nodes[node].op == "reshape":
            node = self.builder.nodes[node].operands[0]
        return node

    def cut(self, results: Sequence[int], source: str) -> CutProgram:
        """The whole cut program."""
        program = self.builder.build(tuple(results))
        rest = tuple(self.dispatches), source, tuple(self.notes), self.weights
        return CutProgram(program, *rest)


def with_leaves(cut: CutProgram, leaves: Mapping[int, Node]) -> CutProgram:
    """With other leaves of the same types in place of some, by node."""
    nodes = tuple(leaves.get(i, n) for i, n in enumerate(cut.program.nodes))
    return replace(cut, program=replace(cut.program, nodes=nodes))
