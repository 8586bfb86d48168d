"""What a caller asks of the order of dims in memory: `layouts="auto"`, `{"x": [1, 0]}`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eqsat.model.border import Border
from eqsat.model.diag import fail
from eqsat.model.orders import CALLER, COMPILER, AskedOrders, MemoryOrders
from eqsat.ops.programs.weightnames import argument_numbers
from eqsat.request.borders import (
    PLAIN,
    held_at,
    labels_of,
    lying_in,
    name_of,
    named_borders,
    ordered,
    type_of,
)
from eqsat.request.source import Source

ALL = "*"  # arguments and results that are not named
AUTO = "auto"  # the search chooses; `compiler`: the back end
Perm = tuple[int, ...]
Asks = Mapping[str, Any] | str | None


def read_orders(source: Source, layouts: Asks, donate: Sequence[str] = ()) -> AskedOrders:
    """Which orders `layouts=` fixes and leaves free; a donated argument is tied to its result.

    EqsatError: E394 for a word that is none, names of no argument or result, orders that are no
    permutation, E393 if the two sides of a donated argument are asked for in different orders.
    """
    said = {ALL: layouts} if isinstance(layouts, str) else dict(layouts or {})
    others = _of_all(source, said.pop(ALL)) if ALL in said else {}
    asked: dict[Border, Any] = {}
    rest = {n: r for n, r in said.items() if not is_about_orders(r)}
    for name, request in said.items():
        for border in named_borders(source, name):
            asked[border] = _order(source, border, name, request) if name not in rest else PLAIN
            if name in rest and request != PLAIN:
                asked[border] = None  # in a layout of its own
    orders: dict[Border, Perm] = {}
    free: list[tuple[Border, ...]] = []
    compiler: list[Border] = []
    ties = list(_ties(source, donate))
    for tie in ties:
        wish = _of_tie(source, tie, asked if any(b in asked for b in tie) else others)
        if wish == COMPILER:
            compiler += tie
        elif wish == AUTO:
            free += [tie] if _may_turn(source, tie) else []
        elif isinstance(wish, tuple) and wish != tuple(range(len(wish))):
            orders |= dict.fromkeys(tie, wish)
    pairs = tuple((tie[0].number, tie[1].number) for tie in ties if len(tie) > 1)
    return AskedOrders(rest, orders, tuple(free), tuple(compiler), pairs)


def _of_all(source: Source, word: Any) -> dict[Border, Any]:
    """`auto` or `compiler` for everything that has no layout already; EqsatError E394."""
    if word not in (AUTO, COMPILER):
        help = f"write `{AUTO}` or `{COMPILER}`; the layout of one of them is `NAME=…`"
        raise fail("E394", f"`{word}` is no layout that all arguments may have", help=help)
    every = [Border("input", i) for i in range(len(source.program.inputs))]
    every += [Border("result", r) for r in range(len(source.program.results))]
    return {b: word for b in every if held_at(source, b) is None}


def is_about_orders(request: Any) -> bool:
    """Whether it is an order of dims, or leaves it free; otherwise it is another layout."""
    if isinstance(request, str):
        return request.strip() in (AUTO, COMPILER) or request.strip().startswith("[")
    return isinstance(request, Sequence)


def _order(source: Source, border: Border, name: str, request: Any) -> str | Perm:
    """`auto`, `compiler`, or the order in which a border is asked to lie; EqsatError E394."""
    if isinstance(request, str) and request.strip() in (AUTO, COMPILER):
        return request.strip()
    numbers = _numbers(request) if isinstance(request, str) else list(request)
    of = type_of(source.program, border)
    if numbers is None or sorted(map(str, numbers)) != sorted(map(str, range(len(of.shape)))):
        text = request if isinstance(request, str) else list(request)
        dims = list(range(len(of.shape)))
        message = f"`{name}` is {of}, and {text} is no order of its {len(dims)} dims"
        raise fail("E394", message, help=f"write each of {dims} once, the outermost first")
    return tuple(int(n) for n in numbers)


def _numbers(text: str) -> list[int] | None:
    inner = text.strip().removeprefix("[").removesuffix("]")
    parts = [p.strip() for p in inner.split(",") if p.strip()]
    return [int(p) for p in parts] if all(p.isdigit() for p in parts) else None


def _ties(source: Source, donate: Sequence[str]) -> Iterator[tuple[Border, ...]]:
    """Every argument and result, a donated one with the result that JAX writes in its place.

    That is the first one of its type that no other has: the same rule as JAX's.
    """
    program = source.program
    given = argument_numbers(program, donate, labels_of(source), "donate") if donate else ()
    inputs = {i: Border("input", i) for i in range(len(program.inputs))}
    waiting = {i: type_of(program, inputs[i]) for i in sorted(given)}
    tied: dict[Border, Border] = {}
    for r in range(len(program.results)):
        of = type_of(program, Border("result", r))
        found = [i for i, t in waiting.items() if t == of]
        if found:
            tied[inputs[found[0]]] = Border("result", r)
            del waiting[found[0]]
    for border in inputs.values():
        yield (border, tied[border]) if border in tied else (border,)
    for r in range(len(program.results)):
        if Border("result", r) not in tied.values():
            yield (Border("result", r),)


def _of_tie(source: Source, tie: tuple[Border, ...], asked: Mapping[Border, Any]) -> Any:
    """What is asked of a tie; one side that is fixed fixes the other."""
    said = {b: asked[b] for b in tie if b in asked}
    plain = tuple(range(len(type_of(source.program, tie[0]).shape)))
    words = {b: plain if w == PLAIN else w for b, w in said.items()}
    fixed = {b: w for b, w in words.items() if w not in (AUTO, COMPILER)}
    if len(set(fixed.values())) > 1 and set(fixed.values()) != {None, plain}:
        (a, one), (b, other) = fixed.items()
        texts = ["in a layout" if o is None else f"in order {list(o)}" for o in (one, other)]
        message = (
            f"`{name_of(source, a)}` is donated and asked for {texts[0]}, and its result "
            f"`{name_of(source, b)}`, which is written in its place, {texts[1]}"
        )
        raise fail("E393", message, help="ask for one order for both, or do not donate it")
    if fixed:
        return next(iter(fixed.values()))
    return next((w for w in (AUTO, COMPILER) if w in said.values()), None)


def _may_turn(source: Source, tie: tuple[Border, ...]) -> bool:
    """Whether there is more than one order of its dims, and the caller has these dims.

    The data of a PRNG key has a dim that its array has not.
    """
    of = type_of(source.program, tie[0])
    shape = of.shape
    if of.dtype == "u32" and shape[-1:] in ((2,), (4,)):
        return False
    return sum(size != 1 for size in shape) > 1 and all(held_at(source, b) is None for b in tie)


def fixed_orders(source: Source, asked: AskedOrders) -> tuple[Source, MemoryOrders | None]:
    """The source with the orders that the caller fixes, and what is to be told of them."""
    if not (asked.orders or asked.free or asked.compiler):
        return source, None
    why = "the caller asked for it"
    chosen = ordered(source, asked.orders, CALLER, dict.fromkeys(asked.orders, why))
    free = [b for tie in asked.free for b in tie]
    orders = MemoryOrders(chosen, tuple(sorted(free)), tuple(sorted(asked.compiler)), asked.ties)
    return lying_in(source, asked.orders), orders


__all__: Sequence[str] = ("AUTO", "Asks", "fixed_orders", "is_about_orders", "read_orders")
