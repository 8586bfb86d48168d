"""A program made of dispatches, each a program of its own that reads what others wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from eqsat.model.cut import CutDispatch, CutProgram
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder, Node, Program
from eqsat.ops.spelling.passes import canonical

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
