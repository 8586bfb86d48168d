"""A problem made smaller without losing its optimum: Reduced → Reduced.

Nothing here assumes that costs are not negative, unless it says so: a class that is not reachable
is never paid for, and never earns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from eqsat.dag.problem import (
    Classes,
    Derivation,
    Reduced,
    derivable,
    dominators,
    strong_components,
    successors,
)
from eqsat.model.sets import bits

Seconds = Callable[[], float]

MOST_ROUNDS = 30  # it ends when one takes nothing away; a problem reduced in part is right, too
MOST_EDGES_ADDED = 16  # by putting one class into all that need it


@dataclass
class _Reduction:
    classes: Classes
    roots: set[int]
    base: int = 0
    fixed: list[int] = field(default_factory=list)
    need: dict[int, int] = field(default_factory=dict)
    component: dict[int, int] = field(default_factory=dict)

    def size(self) -> tuple[int, int, int]:
        options = [o for c in self.classes.values() for o in c]
        return len(self.classes), len(options), sum(len(o.children) for o in options)


def smaller(start: Reduced, seconds: Seconds, most: int | None = None) -> Reduced | None:
    """The smaller problem; None if a root has no finite extraction.

    `most` is the cost of a known answer: options that only dearer answers hold are dropped. It is
    used where no cost is negative. `seconds` says how many are left: no round starts without any.
    """
    classes = {c: list(options) for c, options in start.classes.items()}
    state = _Reduction(classes, set(start.roots), start.base, list(start.fixed))
    bounded = most is not None and not start.negative
    for _ in range(MOST_ROUNDS):
        before = state.size()
        if not _derivable_and_reachable(state):
            return None
        _needs(state)
        _without_cycles(state)
        _lean_children(state)
        _dominance(state)
        if bounded and most is not None:
            _within(state, most)
            if not _derivable_and_reachable(state):
                raise AssertionError("presolve lost the known answer")
        _contract(state)
        if state.size() == before or seconds() <= 0:
            break
    _derivable_and_reachable(state)
    _needs(state)
    needs = {c: frozenset(bits(n)) for c, n in state.need.items()}
    frozen = {c: tuple(options) for c, options in state.classes.items()}
    return Reduced(frozen, frozenset(state.roots), state.base, tuple(state.fixed), needs)


def trim(start: Reduced) -> Reduced:
    """Only options that a finite answer may hold, of classes that one may reach."""
    classes = {c: list(options) for c, options in start.classes.items()}
    state = _Reduction(classes, set(start.roots), start.base, list(start.fixed))
    _derivable_and_reachable(state)
    return Reduced({c: tuple(o) for c, o in state.classes.items()}, start.roots)


def _derivable_and_reachable(state: _Reduction) -> bool:
    finite = derivable(state.classes)
    if not state.roots <= finite.keys():
        return False
    remaining = {
        c: [o for o in options if o.children <= finite.keys()]
        for c, options in state.classes.items()
        if c in finite
    }
    seen, stack = set(state.roots), list(state.roots)
    while stack:
        for o in remaining[stack.pop()]:
            fresh = o.children - seen
            seen |= fresh
            stack += fresh
    state.classes = {c: options for c, options in remaining.items() if c in seen}
    return True


def _needs(state: _Reduction) -> None:
    """Dominators; whatever the roots need is a root as well."""
    state.need = dominators(state.classes)
    pinned = 0
    for r in state.roots:
        pinned |= state.need[r]
    state.roots = set(bits(pinned))
    parts = strong_components(successors(state.classes))
    state.component = {c: i for i, part in enumerate(parts) for c in part}


def _without_cycles(state: _Reduction) -> None:
    """Drop options with a child that needs the class itself: they are on no acyclic answer."""
    for c, options in state.classes.items():
        state.classes[c] = [
            o for o in options if not any(state.need[d] >> c & 1 for d in o.children)
        ]


def _lean_children(state: _Reduction) -> None:
    """Drop children that are there anyway.

    A root of another component cannot close a cycle; what a sibling needs is below it already.
    """
    for c, options in state.classes.items():
        home = state.component[c]
        state.classes[c] = [
            Derivation(o.cost, _lean(state, o.children, home), o.origins) if o.children else o
            for o in options
        ]


def _lean(state: _Reduction, children: frozenset[int], home: int) -> frozenset[int]:
    left = {d for d in children if d not in state.roots or state.component[d] == home}
    if len(left) < 2:
        return frozenset(left)
    twice = [d for d in left if any(e != d and state.need[e] >> d & 1 for e in left)]
    return frozenset(left.difference(twice))


# ---- dominance -----------------------------------------------------------------------------------
def _dominance(state: _Reduction) -> None:
    """Drop an option where another is no dearer and needs nothing that it does not provide."""
    earns = _earning(state.classes)
    for c, options in state.classes.items():
        if len(options) > 1:
            state.classes[c] = _undominated(state, options, earns)


def _earning(classes: Classes) -> set[int]:
    """Classes below which some cost is negative: giving them up may lose something."""
    parents: dict[int, set[int]] = {}
    for c, options in classes.items():
        for o in options:
            for d in o.children:
                parents.setdefault(d, set()).add(c)
    seen = {c for c, options in classes.items() if any(o.cost < 0 for o in options)}
    stack = sorted(seen)
    while stack:
        fresh = parents.get(stack.pop(), set()) - seen
        seen |= fresh
        stack += fresh
    return seen


def _undominated(state: _Reduction, options: list[Derivation], earns: set[int]) -> list[Derivation]:
    ordered = sorted(options, key=lambda o: (o.cost, len(o.children), sorted(o.children)))
    count: dict[int, int] = {}
    for o in ordered:
        for d in o.children:
            count[d] = count.get(d, 0) + 1
    undominated: list[Derivation] = []
    by_child: dict[
        int, list[tuple[int, Derivation]]
    ] = {}  # its rarest child → (bits of all, option)
    keys = 0
    for o in ordered:
        provided = child_bits = 0
        for d in o.children:
            provided |= state.need[d]
            child_bits |= 1 << d
        if _is_dominated(o, provided, keys & provided, by_child, earns):
            continue
        undominated.append(o)
        key = min(o.children, key=lambda d: (count[d], d), default=-1)
        by_child.setdefault(key, []).append((child_bits, o))
        if o.children:
            keys |= 1 << key
    return undominated


def _is_dominated(
    option: Derivation,
    provided: int,
    keys: int,
    by_child: dict[int, list[tuple[int, Derivation]]],
    earns: set[int],
) -> bool:
    """Whether an option kept so far, no dearer, has all its children among those `provided`."""
    for key in (-1, *bits(keys)):
        for child_bits, other in by_child.get(key, ()):
            if not child_bits & ~provided and earns.isdisjoint(option.children - other.children):
                return True
    return False


# ---- bounds --------------------------------------------------------------------------------------
def _within(state: _Reduction, most: int) -> None:
    """Drop options whose answers all cost more: every class that is needed costs its cheapest."""
    cheapest = {c: min(o.cost for o in options) for c, options in state.classes.items()}
    pinned = sum(1 << r for r in state.roots)
    paid = state.base + sum(cheapest[r] for r in state.roots)
    for c, options in state.classes.items():
        if len(options) == 1 and c in state.roots:
            continue
        free = paid - (cheapest[c] if c in state.roots else 0)
        state.classes[c] = [
            o for o in options if free + o.cost + _extra(state, o, pinned, cheapest) <= most
        ]


def _extra(state: _Reduction, option: Derivation, pinned: int, cheapest: dict[int, int]) -> int:
    """The least that the children cost beside the roots."""
    union = 0
    for d in option.children:
        union |= state.need[d]
    return sum(cheapest[d] for d in bits(union & ~pinned))


# ---- contraction ---------------------------------------------------------------------------------
def _contract(state: _Reduction) -> None:
    """Put classes with a single option into the options that need them."""
    users: dict[int, int] = {}
    for options in state.classes.values():
        for o in options:
            for d in o.children:
                users[d] = users.get(d, 0) + 1
    into: dict[int, Derivation] = {}
    for c, options in state.classes.items():
        if len(options) == 1 and into.keys().isdisjoint(options[0].children):
            o = options[0]
            if c not in o.children and (c in state.roots or _is_free(o, users.get(c, 0))):
                into[c] = o
    held = set().union(*(o.children for o in into.values()))
    for c in held & into.keys():  # a chain: its upper part comes with the next round
        del into[c]
    for c in sorted(into.keys() & state.roots):
        state.base += into[c].cost
        state.fixed += into[c].origins
        state.roots |= into[c].children
        into[c] = Derivation(0, into[c].children, ())
    state.roots -= into.keys()
    state.classes = {
        c: [_joined(o, into) for o in options]
        for c, options in state.classes.items()
        if c not in into
    }


def _is_free(option: Derivation, users: int) -> bool:
    """Whether each user can pay for it alone: it costs nothing, or has one user."""
    if users <= 1:
        return True
    return option.cost == 0 and (users - 1) * len(option.children) <= MOST_EDGES_ADDED + users


def _joined(option: Derivation, into: dict[int, Derivation]) -> Derivation:
    inside = option.children & into.keys()
    if not inside:
        return option
    parts = [into[d] for d in sorted(inside)]
    children = (option.children - inside).union(*(p.children for p in parts))
    origins = option.origins + tuple(i for p in parts for i in p.origins)
    return Derivation(option.cost + sum(p.cost for p in parts), children, origins)


def apart(reduced: Reduced, parts: Iterable[list[int]]) -> list[Reduced]:
    """Problems of their own: parts of a reduced problem that have no child in common."""
    return [
        Reduced(
            {c: reduced.classes[c] for c in part},
            reduced.roots.intersection(part),
            0,
            (),
            {c: reduced.needs[c] for c in part},
        )
        for part in parts
    ]
