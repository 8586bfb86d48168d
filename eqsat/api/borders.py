"""Requests about a program's border: layouts, orders of dims, and arguments a call uses up."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from eqsat.frontends.source import Source
from eqsat.frontends.sourceborders import fixed_in, held_at, lying_in, name_of, ordered, type_of
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.layout import (
    CALLER,
    COMPILER,
    AskedOrders,
    Border,
    Encoding,
    Free,
    Held,
    Layout,
    MemoryOrders,
)
from eqsat.model.program import Program
from eqsat.model.target import Target
from eqsat.ops.programs.binding import argument_numbers, first_name
from eqsat.ops.programs.border_layouts import is_encoded, resolution, resolved

PLAIN = "plain"  # what `layouts=` may say to insist on a plain tensor
Request = str | Layout | Free  # of one argument or result
_RESULT = re.compile(r"result(\d+)")


def labels_of(source: Source) -> list[str]:
    """The caller's name of each argument, e.g. `cache[0][1]`."""
    if source.traced is not None:
        return list(source.traced.input_labels)
    return [source.program.leaf(i).name for i in source.program.inputs]


def arguments_of(source: Source, name: str) -> list[int]:
    """Numbers of the inputs that a named argument is made of; [] if there are none."""
    labels = labels_of(source)
    return [i for i, label in enumerate(labels) if name in (label, first_name(label))]


def name_donated(read: Source, names: Sequence[str]) -> Source:
    """The source with these of its arguments used up by a call, which prices may count on.

    Raises EqsatError (E324) if one is no argument.
    """
    program = read.program
    given = {program.inputs[n] for n in donated_numbers(read, names)}
    if not given:
        return read
    nodes = [
        replace(n, attr=replace(program.leaf(i), donated=True)) if i in given else n
        for i, n in enumerate(program.nodes)
    ]
    return replace(read, program=replace(program, nodes=tuple(nodes)))


def donated_numbers(source: Source, names: Sequence[str]) -> tuple[int, ...]:
    """Numbers of the inputs that these arguments are made of; EqsatError (E324) if one is none."""
    return argument_numbers(source.program, names, labels_of(source), "donate") if names else ()


def results_of(source: Source, number: int) -> list[int]:
    """Numbers of the flat results that a result of the function is made of; [] if none."""
    if source.traced is None:
        return [number] if 0 <= number < len(source.program.results) else []
    tree = source.traced.out_tree
    sizes = [child.num_leaves for child in tree.children()] or [tree.num_leaves]
    if not 0 <= number < len(sizes):
        return []
    begin = sum(sizes[:number])
    return list(range(begin, begin + sizes[number]))


def asked_of(source: Source, layouts: Mapping[str, Request]) -> dict[Border, Held | Free | None]:
    """The layout that `layouts=` requests per argument or result; None: plain. EqsatError E394."""
    requests: dict[Border, Held | Free | None] = {}
    for name, request in layouts.items():
        for border in named_borders(source, name):
            requests[border] = _read(source.program, border, name, request)
    return requests


def named_borders(source: Source, name: str) -> list[Border]:
    """The arguments or results that a name (`x`, `result0`) stands for; EqsatError E394."""
    inputs = arguments_of(source, name)
    if inputs:
        return [Border("input", i) for i in inputs]
    match = _RESULT.fullmatch(name)
    results = results_of(source, int(match[1])) if match else []
    if results:
        return [Border("result", r) for r in results]
    labels = labels_of(source)
    names = [*map(first_name, labels), *labels, *(f"result{i}" for i in range(_count(source)))]
    message = f"`{name}` is no argument or result of `{source.program.name}`"
    raise fail("E394", message, help=did_you_mean(name, dict.fromkeys(names)))


def _count(source: Source) -> int:
    """Results of the function, each a tree."""
    if source.traced is None:
        return len(source.program.results)
    return len(source.traced.out_tree.children()) or 1


def _read(program: Program, border: Border, name: str, request: Request) -> Held | Free | None:
    if request == PLAIN:
        return None
    of = type_of(program, border)
    if isinstance(request, str):
        from eqsat.lang.borders import read_layout

        return read_layout(request, of, f"--layout {name}=")
    if isinstance(request, Layout) and request.source != of.shape:
        message = f"`{name}` is {of}, the layout asked for is of a tensor of {list(request.source)}"
        raise fail("E394", message)
    return request


def with_layouts(source: Source, target: Target, layouts: Mapping[str, Request]) -> Source:
    """The source with its border in the requested layouts, and its encodings resolved.

    EqsatError: E393 if an argument or result has another layout already, E394 for words that are
    no layout, or name no argument or result.
    """
    requests = asked_of(source, layouts)
    free = [name_of(source, b) for b, request in requests.items() if isinstance(request, Free)]
    if free:
        message = f"`{free[0]}` has a free layout, which one search cannot choose"
        raise fail("E394", message, help="`eqsat state` and `eqsat.keep_state` search them all")
    fixed = {b: request for b, request in requests.items() if not isinstance(request, Free)}
    return settled(fixed_in(source, fixed), target)


def settled(source: Source, target: Target) -> Source:
    """The source with its encodings resolved by the target, into packs or into nothing."""
    if not is_encoded(source.program):
        return source
    layouts = dict(source.layouts)
    for kind, numbers in (("input", source.program.inputs), ("result", source.program.results)):
        for number in range(len(numbers)):
            held = held_at(source, Border(kind, number))
            layout = resolution(held, target) if isinstance(held, Encoding) else None
            if layout is not None:
                layouts[Border(kind, number)] = layout
    return replace(source, program=resolved(source.program, target), layouts=layouts)


# ---- orders of dims in memory --------------------------------------------------------------------
ALL = "*"  # arguments and results that are not named
AUTO = "auto"  # the search chooses; `compiler`: the back end
Perm = tuple[int, ...]
Asks = Mapping[str, Any] | str | None


def read_orders(source: Source, layouts: Asks, donate: Sequence[str] = ()) -> AskedOrders:
    """Which orders `layouts=` fixes and leaves free; a donated argument is tied to its result.

    EqsatError: E394 for a word that is none, names of no argument or result, orders that are no
    permutation, E393 if the two sides of a donated argument are asked for in different orders.
    """
    by_name = {ALL: layouts} if isinstance(layouts, str) else dict(layouts or {})
    others = _of_all(source, by_name.pop(ALL)) if ALL in by_name else {}
    requests: dict[Border, Any] = {}
    rest = {n: r for n, r in by_name.items() if not is_about_orders(r)}
    for name, request in by_name.items():
        for border in named_borders(source, name):
            requests[border] = _order(source, border, name, request) if name not in rest else PLAIN
            if name in rest and request != PLAIN:
                requests[border] = None  # in a layout of its own
    orders: dict[Border, Perm] = {}
    free: list[tuple[Border, ...]] = []
    compiler: list[Border] = []
    ties = list(_ties(source, donate))
    for tie in ties:
        wish = _of_tie(source, tie, requests if any(b in requests for b in tie) else others)
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
    given = donated_numbers(source, donate)
    inputs = {i: Border("input", i) for i in range(len(program.inputs))}
    waiting = {i: type_of(program, inputs[i]) for i in sorted(given)}
    tied: dict[Border, Border] = {}
    for r in range(len(program.results)):
        of = type_of(program, Border("result", r))
        matching = [i for i, t in waiting.items() if t == of]
        if matching:
            tied[inputs[matching[0]]] = Border("result", r)
            del waiting[matching[0]]
    for border in inputs.values():
        yield (border, tied[border]) if border in tied else (border,)
    for r in range(len(program.results)):
        if Border("result", r) not in tied.values():
            yield (Border("result", r),)


def _of_tie(source: Source, tie: tuple[Border, ...], requests: Mapping[Border, Any]) -> Any:
    """The request for a tie; one side that is fixed fixes the other."""
    of_tie = {b: requests[b] for b in tie if b in requests}
    plain = tuple(range(len(type_of(source.program, tie[0]).shape)))
    words = {b: plain if w == PLAIN else w for b, w in of_tie.items()}
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
    return next((w for w in (AUTO, COMPILER) if w in of_tie.values()), None)


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
