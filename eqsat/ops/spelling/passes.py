"""Program → Program: the passes that bring a program to one spelling before its search.

Each is exact to the bit and decides nothing that a search could: no layout, no kept value, no op
that carries a transpose.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from eqsat.model.deadline import gc_paused
from eqsat.model.diag import fail
from eqsat.model.program import Program, is_same
from eqsat.model.tensor import SHORT
from eqsat.ops.algebra.reductions import without_nested_reductions
from eqsat.ops.generics.interchange import without_orders
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.ops.spelling.dead_slices import without_waste
from eqsat.ops.spelling.equalsums import without_equal_sums
from eqsat.ops.spelling.normal import normal
from eqsat.ops.spelling.reads import as_stencils, shared, without_read_backs
from eqsat.ops.spelling.squeeze import drop_unit_dims, through_views
from eqsat.ops.spelling.storedbytes import integer_products, moved_as_bytes
from eqsat.ops.spelling.trip_counts import with_trips

Listener = Callable[[str, Program], None]  # a pass by its name, and the program it gave
_LISTENER: ContextVar[Listener | None] = ContextVar("after_passes", default=None)


@dataclass(frozen=True)
class SpellingPass:
    """Record of a pass: what it rewrites, and why the program stays the same one."""

    name: str
    rewrites: str
    reason: str
    rewritten: Callable[[Program], Program]

    def __call__(self, program: Program) -> Program:
        result = self.rewritten(program)
        listen = _LISTENER.get()
        if listen is not None and result != program:
            listen(self.name, result)
        return result


ORDERS = SpellingPass(
    "loop-orders", "leaves out the orders of loops that the author wrote",
    "an order changes no element; the search chooses it", without_orders,
)  # fmt: skip
UNIT_DIMS = SpellingPass(
    "unit-dims", "drops dims of extent 1 but those that contractions need",
    "the same bytes under another shape", drop_unit_dims,
)  # fmt: skip
NORMAL = SpellingPass(
    "normal", "drops copies and neutral ops, joins moves, orders operands, shares equal values",
    "each step is an identity of its op, exact to the bit", normal,
)  # fmt: skip
READ_BACKS = SpellingPass(
    "read-backs", "reads an update instead of the slice it was written to, and the reverse",
    "both start at one clamped place and have one width", without_read_backs,
)  # fmt: skip
WASTE = SpellingPass(
    "unread-parts", "cuts values to what is read of them",
    "elements that nobody reads decide no result", without_waste,
)  # fmt: skip
EQUAL_SUMS = SpellingPass(
    "equal-sums", "computes contractions and reductions that walk the same elements once",
    "equal steps in memory over equal values are equal terms", without_equal_sums,
)  # fmt: skip
SHARED = SpellingPass(
    "shared-parts", "reads a value of the program that a body computes once more",
    "one expression of the same operands", shared,
)  # fmt: skip
MERGE = SpellingPass(
    "merge", "computes an elementwise op inside the only op that reads it",
    "the reader walks the same loops, so each element is computed once", merge_elementwise,
)  # fmt: skip
STENCILS = SpellingPass(
    "stencils", "reads overlapping slices of one value by maps of their reader",
    "a map names the elements that the slice had", as_stencils,
)  # fmt: skip
REDUCTIONS = SpellingPass(
    "nested-reductions", "makes a reduction of a reduction that only it reads one",
    "the function is associative and commutative exactly", without_nested_reductions,
)  # fmt: skip
STORED_BYTES = SpellingPass(
    "stored-bytes", "moves bytes and widens them where they are read",
    "a function of one byte is its table of 256 values", moved_as_bytes,
)  # fmt: skip
VIEWS = SpellingPass(
    "views", "runs an op between two reshapes that undo each other over the loops of before",
    "a reshape changes no element and no order", through_views,
)  # fmt: skip
TRIPS = SpellingPass(
    "trip-counts", "tells how often a loop runs that counts from a constant to a constant",
    "the counter of the state decides it", with_trips,
)  # fmt: skip
SPELLING = ORDERS, UNIT_DIMS, NORMAL
CUTTING = READ_BACKS, WASTE, UNIT_DIMS, NORMAL
SETTLING = SHARED, MERGE, STENCILS, REDUCTIONS, STORED_BYTES, VIEWS, NORMAL
PASSES = tuple(dict.fromkeys((*SPELLING, *CUTTING, EQUAL_SUMS, *SETTLING, TRIPS)))


@contextmanager
def heard_after(names: Collection[str], say: Callable[[str], None]) -> Iterator[None]:
    """Whenever one of these passes changes a program its text is said, with the pass as a comment.

    EqsatError E406 for a name that no pass has.
    """
    passes = [p.name for p in PASSES]
    for n in names:
        if n not in passes:
            raise fail("E406", f"no pass `{n}`", help=f"one of {', '.join(passes)}")

    def listen(name: str, program: Program) -> None:
        if name in names:
            say(f"# {program.name} after {name}\n{program.to_text()}")

    token = _LISTENER.set(listen)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def canonical(program: Program) -> Program:
    """The program that is searched: in one spelling, without unit dims, elementwise chains merged,
    loops counted.

    Orders of loops that its author wrote are left out: they are the search's to choose.
    """
    with gc_paused():
        cut = _after(CUTTING, _after(SPELLING, program.numbered()))
        return TRIPS(_settled(EQUAL_SUMS(cut)).numbered())


def with_integer_products(program: Program, *, differences: bool = False) -> Program:
    """A canonical program with products of dequantised numbers as those of integers, merged."""
    if not any(n.types[0].dtype in SHORT for n in program.nodes):
        return program
    with gc_paused():
        rewritten = integer_products(program, differences=differences)
        return program if is_same(rewritten, program) else TRIPS(_settled(rewritten).numbered())


def leaves_work_out(program: Program) -> bool:
    """Whether `canonical` computes less: without what is not read, or with equal sums once."""
    with gc_paused():
        spelled = _after(SPELLING, program)
        cut = _after(CUTTING, spelled)
        return not (is_same(cut, spelled) and is_same(EQUAL_SUMS(cut), cut))


def _after(passes: tuple[SpellingPass, ...], program: Program) -> Program:
    for each in passes:
        program = each(program)
    return program


def _settled(program: Program) -> Program:
    """Merged and spelled in turns: a merged body may be smaller, and less to read may be merged."""
    while (settled := _after(SETTLING, program)) != program:
        program = settled
    return settled
