"""Nodes in an order in which every operand is defined before it is read."""

from __future__ import annotations

import heapq
from collections.abc import Sequence, Set

from eqsat.frontends.onnxgraph.graph import OnnxNode, reads, short
from eqsat.model.diag import did_you_mean, fail

Scope = Sequence[Set[str]]  # names by graph, from the outermost inwards


def operands_first(
    nodes: Sequence[OnnxNode], known: frozenset[str], outer: Scope, title: str
) -> tuple[OnnxNode, ...]:
    """The nodes sorted, in file order where that is free.

    known: names defined before all nodes; outer: names of the graphs around this one. EqsatError
    E362: an operand that nothing defines, or a cycle.
    """
    maker = {o: at for at, n in enumerate(nodes) for o in n.outputs if o}
    users: list[list[int]] = [[] for _ in nodes]
    missing = [0] * len(nodes)
    for at, node in enumerate(nodes):
        needs = {maker[name] for name in _wanted(node, maker, (known, *outer))}
        missing[at] = len(needs)
        for need in needs:
            users[need].append(at)
    found = _sorted(users, missing)
    if len(found) < len(nodes):
        raise _cycle(nodes, maker, set(range(len(nodes))) - set(found), title)
    return tuple(nodes[at] for at in found)


def _wanted(node: OnnxNode, maker: dict[str, int], defined: Scope) -> list[str]:
    """Operands that other nodes of this graph give; E362 for one that nothing gives."""
    found = []
    for name in sorted(reads(node)):
        if name in maker:
            found.append(name)
        elif not any(name in names for names in defined):
            near = did_you_mean(name, [n for n in maker if len(n) < 200][:2000])
            raise node.error(
                "E362",
                f"reads `{short(name)}`, which nothing defines",
                help=near if near.startswith("did") else "the graph is incomplete: export it again",
            )
    return found


def _sorted(users: list[list[int]], missing: list[int]) -> list[int]:
    ready = [at for at, n in enumerate(missing) if n == 0]
    heapq.heapify(ready)
    found = []
    while ready:
        at = heapq.heappop(ready)
        found.append(at)
        for user in users[at]:
            missing[user] -= 1
            if missing[user] == 0:
                heapq.heappush(ready, user)
    return found


def _cycle(
    nodes: Sequence[OnnxNode], maker: dict[str, int], stuck: set[int], title: str
) -> Exception:
    """The error that names the nodes of one cycle; every stuck node reads from a stuck one."""
    at, path = min(stuck), dict[int, None]()
    while at not in path:
        path[at] = None
        needs = (maker[name] for name in reads(nodes[at]) if name in maker)
        at = min(n for n in needs if n in stuck)
    around = list(path)[list(path).index(at) :]
    shown = ", ".join(nodes[n].label for n in around[:4])
    more = f" and {len(around) - 4} more" if len(around) > 4 else ""
    return fail(
        "E362", f"{title} is cyclic: {shown}{more} read each other's results",
        help="a graph has no loops of its own; repetition is a Loop or Scan node",
    )  # fmt: skip
