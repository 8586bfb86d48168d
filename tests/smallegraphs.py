"""Small e-graphs for tests of extraction, and what they cost by trying everything."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from fractions import Fraction

from eqsat.model.serialized import SerializedEGraph, SerializedNode

Row = tuple[str, str, Sequence[str], object]  # name, class, children, cost


def egraph(*rows: Row, roots: Sequence[str]) -> SerializedEGraph:
    number = {name: i for i, (name, *_) in enumerate(rows)}
    nodes = tuple(
        SerializedNode(name, "f", tuple(number[c] for c in children), eclass, exact(cost))
        for name, eclass, children, cost in rows
    )
    return SerializedEGraph(nodes, tuple(roots))


def exact(cost: object) -> Fraction | None:
    return None if cost is None else Fraction(str(cost))


# ---- brute force ---------------------------------------------------------------------------------
def choices(graph: SerializedEGraph) -> Iterator[dict[str, SerializedNode]]:
    """Every choice of nodes for the classes that it reaches from the roots."""
    options: dict[str, list[SerializedNode]] = {}
    for n in graph.nodes:
        if n.cost is not None:
            options.setdefault(n.eclass, []).append(n)

    def extended(chosen: dict[str, SerializedNode], open_: list[str]):
        if not open_:
            yield dict(chosen)
            return
        first, *rest = open_
        for n in options.get(first, ()):
            below = dict.fromkeys(graph.nodes[c].eclass for c in n.children)
            fresh = [d for d in below if d != first and d not in chosen and d not in rest]
            yield from extended({**chosen, first: n}, [*rest, *fresh])

    yield from extended({}, list(graph.roots))


def is_acyclic(graph: SerializedEGraph, chosen: dict[str, SerializedNode]) -> bool:
    """Whether classes can be taken away one by one, children first, until none is left."""
    left = {c: {graph.nodes[d].eclass for d in n.children} for c, n in chosen.items()}
    while left:
        done = {c for c, below in left.items() if below.isdisjoint(left)}
        if not done:
            return False
        left = {c: below for c, below in left.items() if c not in done}
    return True


def cheapest(graph: SerializedEGraph) -> Fraction | None:
    costs = [
        sum((n.cost for n in chosen.values() if n.cost is not None), Fraction(0))
        for chosen in choices(graph)
        if is_acyclic(graph, chosen)
    ]
    return min(costs, default=None)


COSTS = {
    "whole": lambda rng: rng.randint(0, 9),
    "negative": lambda rng: rng.randint(-6, 6),
    "unit": lambda rng: 1,
    "few": lambda rng: rng.choice((0, 0, 1, 5)),
    "fine": lambda rng: Fraction(rng.randint(0, 10**17), 10 ** rng.choice((1, 3, 17))),
    "far": lambda rng: rng.choice((0, Fraction(1, 1000), 3, 10**9, 2**53 - 1)),
    "wide": lambda rng: rng.choice((-5, -1, Fraction(1, 10), 2, 10**15)),
}


def random_egraph(seed: int, kind: str, most: int = 14) -> SerializedEGraph:
    """Up to 14 classes with cycles, shared children, several roots and infinite costs."""
    rng = random.Random(seed)
    classes = rng.randint(1, rng.choice((4, 8, most)))
    owner = [c for c in range(classes) for _ in range(rng.choice((1, 2, 2, 3)))]
    reach = rng.choice((-1, 1, classes))  # children only below, nearly so, or anywhere
    nodes = []
    for i, c in enumerate(owner):
        allowed = [j for j, d in enumerate(owner) if d > c - reach]
        count = min(rng.choice((0, 1, 2, 2, 3)), len(allowed))
        children = tuple(rng.choice(allowed) for _ in range(count))
        cost = None if rng.random() < 0.04 else Fraction(COSTS[kind](rng))
        nodes.append(SerializedNode(f"n{i}", "f", children, str(c), cost))
    for c in range(classes):
        if rng.random() < 0.4:  # a dear way out, so that most graphs have an answer
            nodes.append(SerializedNode(f"leaf{c}", "f", (), str(c), Fraction(rng.randint(3, 20))))
    roots = dict.fromkeys(str(rng.randrange(classes)) for _ in range(rng.choice((1, 1, 2, 3))))
    return SerializedEGraph(tuple(nodes), tuple(roots))


def hard(seed: int, classes: int = 150) -> SerializedEGraph:
    """Set cover by other words: nothing here is quick to prove."""
    rng = random.Random(seed)
    rows: list[Row] = [(f"s{i}", f"s{i}", [], rng.randint(50, 90)) for i in range(classes)]
    tops = []
    for i in range(2 * classes):
        for k in range(3):
            children = [f"s{j}" for j in rng.sample(range(classes), 2)]
            rows.append((f"e{i}-{k}", f"e{i}", children, 0))
        tops.append(f"e{i}-0")
    return egraph(*rows, ("top", "top", tops, 0), roots=["top"])
