"""Facts about the values of a program that rules may use, computed once before a search.

A fact is known of values of the input program; of what rules make nothing is known, and a rule that
asks does not match there. A class has the facts of every value in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from eqsat.model.attr import Attr
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.leaves import Leaf
from eqsat.model.program import Node, Program
from eqsat.model.region import Region, whole_region
from eqsat.model.symbols import sizes_of
from eqsat.model.tensor import SHORT
from eqsat.ops.meaning.programs import is_iota
from eqsat.ops.op import Reads
from eqsat.ops.programs.binding import bind_program
from eqsat.ops.registry import all_ops


@dataclass(frozen=True)
class Facts:
    """Per node: how often it is used, and for each fact that is asked for, whether it holds."""

    uses: tuple[int, ...]
    holds: Mapping[str, tuple[bool, ...]]

    def of(self, node: int) -> tuple[int, ...]:
        """All that is known of a node, to compare it with another one."""
        return self.uses[node], *(values[node] for values in self.holds.values())

    def of_classes(self, same: Sequence[int], nodes: Iterable[int]) -> Facts:
        """Of these nodes, what is known of any that is equal to them; same: the first of equals.

        As in an e-graph: the most uses of any of them.
        """
        members: dict[int, list[int]] = {}
        for i, first in enumerate(same):
            members.setdefault(first, []).append(i)
        classes = [members[n] for n in nodes]
        holds = {
            name: tuple(any(held[i] for i in group) for group in classes)
            for name, held in self.holds.items()
        }
        return Facts(tuple(max(self.uses[i] for i in group) for group in classes), holds)


def facts_of(program: Program, asked: Iterable[str]) -> Facts:
    """The uses of all nodes, and the facts of these names."""
    return Facts(program.uses, {name: FACTS[name](program) for name in sorted(set(asked))})


# ---- wasted --------------------------------------------------------------------------------------
def wasted(program: Program) -> tuple[bool, ...]:
    """Of which values less than nine tenths of the elements are read.

    A program with symbols is looked at as it is at the sizes it is priced at.
    """
    sizes = sizes_of(program.symbols)
    nodes = bind_program(program, sizes).nodes if sizes else program.nodes
    regions = regions_read(nodes, program.results)
    return tuple(_is_wasted(n, r) for n, r in zip(nodes, regions, strict=True))


def _is_wasted(node: Node, region: Region | None) -> bool:
    return region is not None and 10 * region.most < 9 * math.prod(node.types[0].shape)


def regions_read(nodes: tuple[Node, ...], results: Iterable[int]) -> list[Region | None]:
    """Region read of every value, results being read whole; None of values that are not read.

    Of a node with several results: of each of them.
    """
    regions: list[Region | None] = [None] * len(nodes)

    def read(o: int, region: Region | None) -> None:
        before = regions[o]
        if region is not None and region.most:
            regions[o] = region if before is None else before.join(region)

    for r in results:
        read(r, _whole(nodes[r]))
    for i in range(len(nodes) - 1, -1, -1):
        n, region = nodes[i], regions[i]
        if region is None:
            continue
        for place, o in enumerate(n.operands):
            read(o, _read(n, place, region) if _is_known(n, nodes[o]) else _whole(nodes[o]))
    return regions


def _whole(node: Node) -> Region:
    return whole_region(node.types[0].shape)


def _is_known(n: Node, operand: Node) -> bool:
    """Whether the op of n says what it reads; results of a loop have shapes of their own."""
    has_one = len(operand.types) == 1 or isinstance(operand.attr, Generic)
    return has_one and all_ops()[n.op].reads is not None


def _read(n: Node, i: int, region: Region) -> Region | None:
    reads = all_ops()[n.op].reads
    assert reads is not None
    return _known(reads, n.op, n.attr, i, region)


@lru_cache(maxsize=10_000)  # the blocks of a program are alike
def _known(reads: Reads, op: str, attr: Attr, i: int, region: Region) -> Region | None:
    return reads(op, attr, i, region)


# ---- defined -------------------------------------------------------------------------------------
def defined(program: Program) -> tuple[bool, ...]:
    """Which values have no lane that may hold anything, nor are computed from one that has."""
    is_defined: list[bool] = []
    for n in program.nodes:
        layout = n.attr.layout if isinstance(n.attr, Leaf) else n.attr
        is_open = isinstance(layout, Layout) and "?" in layout.pads
        is_defined.append(not is_open and all(is_defined[o] for o in n.operands))
    return tuple(is_defined)


# ---- counts --------------------------------------------------------------------------------------
def counts(program: Program) -> tuple[bool, ...]:
    """Which values are weights that hold 0, 1, 2 …"""
    return tuple(
        n.op == "weight" and isinstance(n.attr, Leaf) and is_iota(n.attr) for n in program.nodes
    )


# ---- short ---------------------------------------------------------------------------------------
def short(program: Program) -> tuple[bool, ...]:
    """Which values hold integers of 8 or 16 bits."""
    return tuple(len(n.types) == 1 and n.type.dtype in SHORT for n in program.nodes)


FACTS: Mapping[str, Callable[[Program], tuple[bool, ...]]] = {
    "wasted": wasted,
    "defined": defined,
    "counts": counts,
    "short": short,
}
