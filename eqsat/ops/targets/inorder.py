"""Ops on operands in the order of dims that a target's kernels read, where it forces that order.

With `orders_forced` no kernel reads an operand or writes its result in another order of dims than
its own: what lies otherwise is transposed by an op that shows. A contraction is batch, m, k by
batch, k, n (`rhs: nk`: batch, n, k); a convolution and a pool lie as a row of `untiled` says, and a
pool may take its channels for images of one channel; any other op walks operands in the order of
its result. A dim that is reduced may be anywhere, and so may one of extent 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from eqsat.model.generic import Generic
from eqsat.model.target import Target, UntiledKernel
from eqsat.ops.contractions.convolution import orders, spatial_contraction
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.propagate import permute_operand, permute_result
from eqsat.ops.movement.layout import Perm
from eqsat.ops.movement.lists import inverse
from eqsat.ops.targets.kernels import facts, kernel_kind, loop_roles
from eqsat.ops.targets.tiles import is_met

Perms = tuple[Perm | None, ...]  # per operand; None: it is read as it lies
Ranks = list["tuple[int, int] | None"]  # per dim its place in order; None: it may be anywhere
WRITTEN = -1  # the result among operands 0, 1 …
ANY_KERNEL = UntiledKernel(1.0)


@dataclass(frozen=True)
class InOrder:
    """A generic with an operand or its result in order, and the transpose that makes up for it."""

    sig: Generic
    perm: Perm


def is_in_order(target: Target, g: Generic) -> bool:
    """Whether some kernel of the target takes all operands, and gives the result, as they lie."""
    sides = (*range(len(g.maps)), WRITTEN)
    kernels = () if g.tile else _kernels(target, g)
    return bool(g.tile) or any(all(_is_sorted(_ranks(g, i, k)) for i in sides) for k in kernels)


def straight(target: Target, g: Generic, i: int) -> InOrder | None:
    """The generic that reads operand i in order, transposed; None if it does, or need not."""
    if not forces_orders(target) or g.tile or is_in_order(target, g):
        return None
    perm = _sorting(_ranks(g, i, next(_kernels(target, g))))
    sig = None if perm is None else permute_operand(g, i, inverse(perm))
    return None if sig is None or perm is None else InOrder(sig, perm)


def result_orders(target: Target, g: Generic) -> list[InOrder]:
    """A generic out of order with its result as its kernels or operands have it."""
    if not forces_orders(target) or g.tile or len(g.yields) > 1 or is_in_order(target, g):
        return []
    found = {p: permute_result(g, p) for p in _asked(target, g)}
    return [InOrder(sig, inverse(p)) for p, sig in found.items() if sig is not None]


def _asked(target: Target, g: Generic) -> list[Perm]:
    """The orders of the result that kernels ask for, or in which an operand is walked."""
    asked = [_sorting(_ranks(g, WRITTEN, k)) for k in _kernels(target, g)]
    asked += [_followed(g, i) for i in range(len(g.maps))]
    return [p for p in asked if p is not None]


@dataclass(frozen=True)
class Passed:
    """A generic in order, how its operands are transposed for it, and its result behind it."""

    before: Perms
    after: Perms
    sig: Generic
    perm: Perm | None


def passed_below(target: Target, g: Generic, i: int, perm: Perm) -> list[Passed]:
    """A generic whose operand i is transposed by `perm`: it is read as it lies instead."""
    reads = None if g.tile or len(g.yields) > 1 else permute_operand(g, i, perm)
    if reads is None:
        return []
    asked = dict.fromkeys([*_asked(target, reads), tuple(range(g.rank))])
    found = [(order, *put) for order in asked for put in _in_order(target, reads, order)]
    return [
        Passed(perms[:i], perms[i + 1 :], sig, _unless_sorted(inverse(order)))
        for order, sig, perms in found
        if perms[i] is None
    ]


def passed_above(target: Target, g: Generic, perm: Perm) -> list[Passed]:
    """A generic whose result is transposed by `perm`: it is written so instead."""
    if g.tile or len(g.yields) > 1:
        return []
    return [Passed(perms, (), sig, None) for sig, perms in _in_order(target, g, perm)]


def _in_order(target: Target, g: Generic, perm: Perm) -> Iterator[tuple[Generic, Perms]]:
    """The generic that writes its result transposed, its operands as a kernel has them."""
    written = permute_result(g, perm)
    for kernel in () if written is None else _kernels(target, written):
        sig, perms = written, list[Perm | None]()
        for i in range(len(g.maps)):
            perms.append(None if sig is None else _sorting(_ranks(sig, i, kernel)))
            if sig is not None and perms[i] is not None:
                sig = permute_operand(sig, i, inverse(perms[i] or ()))
        sides = range(WRITTEN, len(g.maps))
        if sig is not None and all(_is_sorted(_ranks(sig, i, kernel)) for i in sides):
            yield sig, tuple(perms)


def _unless_sorted(perm: Perm) -> Perm | None:
    return None if perm == tuple(range(len(perm))) else perm


def forces_orders(target: Target) -> bool:
    """Whether any device has `orders_forced`."""
    return any(t.orders_forced for t in [*dict(target.devices).values(), target])


def _kernels(target: Target, g: Generic) -> Iterator[UntiledKernel]:
    """The rows of `untiled` for an op; without any, one that takes what is grouped."""
    if contraction_roles(g) is None:
        rows = target.untiled_kernels("pool") if _places(g) else ()
        rows += tuple(replace(k, image=k.image.rstrip("c")) for k in rows)  # of one channel
    else:
        kind = kernel_kind(g)
        rows = target.untiled_kernels(kind)
        rows = tuple(k for k in rows if all(is_met(c, facts(g, kind)) for c in k.when))
    yield from rows or (ANY_KERNEL,)


# ---- places of dims ------------------------------------------------------------------------------
def _ranks(g: Generic, i: int, kernel: UntiledKernel) -> Ranks:
    """Where the dims of an operand (WRITTEN: of the result) have to be."""
    if contraction_roles(g) is None:
        return _walked(g, i, kernel)
    return _grouped(g, i, kernel) if kernel_kind(g) == "matmul" else _lettered(g, i, kernel)


def _dims(g: Generic, i: int) -> list[tuple[int, ...]]:
    """Per dim the loops above extent 1 that index it."""
    if i == WRITTEN:
        return [(d,) if g.sizes[d] > 1 else () for d in range(g.rank)]
    return [tuple(d for d, _ in e.terms if g.sizes[d] > 1) for e in g.maps[i]]


def _places(g: Generic) -> list[int]:
    """The loops of the result that windows slide over; none of an op without windows."""
    windows = [loops for i in range(len(g.maps)) for loops in _dims(g, i) if len(loops) > 1]
    return sorted({d for loops in windows for d in loops if d < g.rank and loops[-1] >= g.rank})


def _walked(g: Generic, i: int, kernel: UntiledKernel) -> Ranks:
    """In the order of the result; of a pool whose images are nhwc, with channels last."""
    places = _places(g)
    beside = [d for d in range(g.rank) if g.sizes[d] > 1 and d not in places]
    last = beside[-1] if places and beside and kernel.image.endswith("c") else -1
    firsts = [[d for d in loops if d < g.rank][:1] for loops in _dims(g, i)]
    return [(int(f[0] == last), f[0]) if f else None for f in firsts]


def _grouped(g: Generic, i: int, kernel: UntiledKernel) -> Ranks:
    """batch, m, k by batch, k, n is batch, m, n: whoever comes first in the result is the left."""
    roles = loop_roles(g)
    own = (roles.m, roles.n)
    left = _left(g, own, roles.batch)
    if i == WRITTEN:
        group = dict.fromkeys(roles.batch, 0) | dict.fromkeys(own[left], 1)
        group |= dict.fromkeys(own[1 - left], 2)
    else:
        is_inner = i != left and not kernel.rhs.startswith("n")  # its own loops, behind k
        group = dict.fromkeys(roles.batch, 0) | dict.fromkeys(own[i], 2 if is_inner else 1)
        group |= dict.fromkeys(roles.k, 1 if is_inner else 2)
    return [(group.get(loops[0], 3), loops[0]) if loops else None for loops in _dims(g, i)]


def _left(g: Generic, own: Sequence[tuple[int, ...]], batch: tuple[int, ...]) -> int:
    """The left operand: its own dims come first in the result; a vector is where it fits."""
    written = [d for d in range(g.rank) if g.sizes[d] > 1 and d not in batch]
    if not written:
        return 0
    first = int(written[0] in own[1])
    is_vector = not any(d in own[1 - first] for d in written)
    return 1 - first if is_vector and _is_behind(g, first, written[0]) else first


def _is_behind(g: Generic, i: int, loop: int) -> bool:
    """Whether an operand's dim over this loop lies behind a reduced one."""
    dims = _dims(g, i)
    at = next((q for q, loops in enumerate(dims) if loop in loops), 0)
    return any(d >= g.rank for loops in dims[:at] for d in loops)


def _lettered(g: Generic, i: int, kernel: UntiledKernel) -> Ranks:
    """As the row of a convolution names its dims."""
    conv, now = spatial_contraction(g), orders(g)
    if conv is None or now is None:
        return _walked(g, i, kernel)
    letters = {WRITTEN: now.result, conv.image: now.image}.get(i, now.filters)
    order = kernel.filters if i == 1 - conv.image else kernel.image
    known = zip(letters, g.result_shape if i == WRITTEN else g.shapes[i], strict=True)
    return [(order.find(c), 0) if c and s > 1 and order else None for c, s in known]


# ---- sorting -------------------------------------------------------------------------------------
def _is_sorted(ranks: Ranks) -> bool:
    placed = [r for r in ranks if r is not None]
    return placed == sorted(placed)


def _sorting(ranks: Ranks) -> Perm | None:
    """The transpose that sorts dims and leaves those that may be anywhere; None if sorted."""
    at = [q for q, r in enumerate(ranks) if r is not None]
    perm = list(range(len(ranks)))
    for q, source in zip(at, sorted(at, key=lambda q: (ranks[q], q)), strict=True):
        perm[q] = source
    return None if _is_sorted(ranks) else tuple(perm)


def _followed(g: Generic, i: int) -> Perm | None:
    """The order of the result in which operand i is walked as it lies; a right one's come last."""
    kept = list(dict.fromkeys(d for loops in _dims(g, i) for d in loops[:1] if d < g.rank))
    if contraction_roles(g) is None:
        new = iter(kept)
        order = [next(new) if d in kept else d for d in range(g.rank)]
    else:
        rest, shared = [d for d in range(g.rank) if d not in kept], loop_roles(g).batch
        batch, own = ([d for d in kept if (d in shared) == b] for b in (True, False))
        is_right = bool(own) and _is_behind(g, i, own[0])
        order = [*batch, *rest, *own] if is_right else [*batch, *own, *rest]
    return None if order == list(range(g.rank)) else tuple(order)


def in_order_of_loops(g: Generic, i: int) -> InOrder | None:
    """No contraction, that reads operand i in the order of its loops: those of the result, then
    those it reduces. None if it does so as it is, or reads windows or diagonals."""
    loops = [e.dim for e in g.maps[i]]
    known = [d for d in loops if d is not None]
    if g.tile or len({*known}) < len(loops) or contraction_roles(g) is not None:
        return None
    perm = _sorting([(0, d) for d in known])
    sig = None if perm is None else permute_operand(g, i, inverse(perm))
    return None if sig is None or perm is None else InOrder(sig, perm)


# ---- in rules ------------------------------------------------------------------------------------
def _any_forced() -> bool:
    """Whether the target has orders_forced."""
    return True


def _any_straight(g: Generic, i: int) -> InOrder | None:
    """A generic out of order with one operand in the order that its kernel reads."""
    return straight(_EXAMPLE, g, i)


def _any_result_order(g: Generic) -> list[InOrder]:
    """A generic out of order with its result in an order that its kernels or operands ask for."""
    return result_orders(_EXAMPLE, g)


def _any_passed_below(g: Generic, i: int, perm: Perm) -> list[Passed]:
    """A generic in order that reads an operand as it lies before its transpose."""
    return passed_below(_EXAMPLE, g, i, perm)


def _any_passed_above(g: Generic, perm: Perm) -> list[Passed]:
    """A generic in order that writes its result as it lies behind its transpose."""
    return passed_above(_EXAMPLE, g, perm)


_LAST = {"conv2d": UntiledKernel(1.0, (), "nhwc", "hwio"), "pool": UntiledKernel(1.0, (), "nhwc")}
_EXAMPLE = Target(
    "", "", "xla", False, (), 0, (), 1.0, 1.0, (), orders_forced=True,
    untiled=tuple((kind, (kernel,)) for kind, kernel in _LAST.items()),
)  # fmt: skip
FUNCTIONS = attr_functions(
    ("target.straight", _any_straight), ("target.result_orders", _any_result_order),
    ("target.orders_forced", _any_forced), ("target.passed_below", _any_passed_below),
    ("target.passed_above", _any_passed_above), in_order_of_loops,
)  # fmt: skip
