"""Loops and branches as scf ops that call a private function per body."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.export.mlir import syntax
from eqsat.export.mlir.writer import Value, Writer
from eqsat.model.control import COND, SCAN, Control
from eqsat.model.tensor import TensorType

Types = Sequence[TensorType]


def write_control(
    w: Writer, attr: Control, xs: Sequence[Value], name: str, functions: Sequence[str]
) -> list[str]:
    """The names of its results; functions: the symbol of each body's function."""
    scratch = [""] * len(attr.scratch_types)  # nobody reads it
    if not attr.result_types:
        return scratch
    write = {SCAN: _scan, COND: _cond}.get(attr.op, _while)
    write(w, attr, xs, name, functions)
    count = len(attr.result_types)
    return ([f"{name}#{i}" for i in range(count)] if count > 1 else [name]) + scratch


def _call(w: Writer, function: str, args: Sequence[Value], results: Types) -> list[Value]:
    taken = ", ".join(syntax.tensor(a.type) for a in args)
    given = ", ".join(map(syntax.tensor, results))
    found, several = w.fresh(), len(results) > 1
    head = f"{found}{f':{len(results)}' if several else ''} = func.call @{function}"
    w.line(f"{head}({', '.join(a.name for a in args)}) : ({taken}) -> ({given})", 4)
    names = [f"{found}#{i}" for i in range(len(results))] if several else [found]
    return [Value(n, t) for n, t in zip(names, results, strict=True)]


def _listed(types: Types) -> str:
    return ", ".join(map(syntax.tensor, types))


def _results(attr: Control, name: str) -> str:
    count = len(attr.result_types)
    return f"{name}:{count}" if count > 1 else name


def _yield(w: Writer, values: Sequence[Value]) -> None:
    names = ", ".join(v.name for v in values)
    w.line(f"scf.yield {names} : {_listed([v.type for v in values])}", 4)


# ---- scan --------------------------------------------------------------------------------------
def _scan(
    w: Writer, attr: Control, xs: Sequence[Value], name: str, functions: Sequence[str]
) -> None:
    """`scf.for` over the slices; what is stacked is inserted slice by slice."""
    at = attr.consts + attr.carries
    consts, carries, stacked = xs[: attr.consts], xs[attr.consts : at], xs[at:]
    grown = [Value(w.empty(t), t) for t in attr.result_types[attr.carries :]]
    first, last, step = (w.op(f"arith.constant {v} : index") for v in (0, attr.length, 1))
    index, held = w.fresh(), [Value(w.fresh(), v.type) for v in (*carries, *grown)]
    starts = ", ".join(
        f"{h.name} = {v.name}" for h, v in zip(held, (*carries, *grown), strict=True)
    )
    head = f"{_results(attr, name)} = scf.for {index} = {first} to {last} step {step}"
    w.line(f"{head} iter_args({starts}) -> ({_listed(attr.result_types)}) {{")
    place = index
    if attr.reverse:
        place = w.op(f"arith.subi {last}, {w.op(f'arith.addi {index}, {step} : index')} : index")
    slices = [_taken(w, x, place) for x in stacked]
    given = _slice_types(attr.result_types, attr.carries)
    made = _call(w, functions[0], [*consts, *held[: attr.carries], *slices], given)
    pairs = zip(made[attr.carries :], held[attr.carries :], strict=True)
    _yield(w, [*made[: attr.carries], *(_inserted(w, a, into, place) for a, into in pairs)])
    w.line("}")


def _slice_types(types: Types, carries: int) -> list[TensorType]:
    return [*types[:carries], *(t.with_shape(t.shape[1:]) for t in types[carries:])]


def _where(place: str, shape: Sequence[int]) -> str:
    """One slice of a stack, from its place on."""
    starts = ", ".join([place, *("0" for _ in shape)])
    return f"[{starts}] {syntax.ints([1, *shape])} {syntax.ints([1] * (len(shape) + 1))}"


def _taken(w: Writer, x: Value, place: str) -> Value:
    t = x.type.with_shape(x.type.shape[1:])
    types = f"{syntax.tensor(x.type)} to {syntax.tensor(t)}"
    return Value(w.op(f"tensor.extract_slice {x.name}{_where(place, t.shape)} : {types}"), t)


def _inserted(w: Writer, x: Value, into: Value, place: str) -> Value:
    types = f"{syntax.tensor(x.type)} into {syntax.tensor(into.type)}"
    where = _where(place, x.type.shape)
    return Value(w.op(f"tensor.insert_slice {x.name} into {into.name}{where} : {types}"), into.type)


# ---- while_loop --------------------------------------------------------------------------------
def _while(
    w: Writer, attr: Control, xs: Sequence[Value], name: str, functions: Sequence[str]
) -> None:
    consts, carries = xs[: attr.consts], xs[attr.consts :]
    types = _listed(attr.result_types)
    before, after = ([Value(w.fresh(), v.type) for v in carries] for _ in range(2))
    starts = ", ".join(f"{b.name} = {v.name}" for b, v in zip(before, carries, strict=True))
    w.line(f"{_results(attr, name)} = scf.while ({starts}) : ({types}) -> ({types}) {{")
    (flag,) = _call(w, functions[0], [*consts, *before], [TensorType("bool", ())])
    goes_on = w.op(f"tensor.extract {flag.name}[] : tensor<i1>")
    w.line(f"scf.condition({goes_on}) {', '.join(b.name for b in before)} : {types}", 4)
    w.line("} do {")
    w.line(f"^bb0({', '.join(f'{a.name}: {syntax.tensor(a.type)}' for a in after)}):", 3)
    _yield(w, _call(w, functions[1], [*consts, *after], attr.result_types))
    w.line("}")


# ---- cond --------------------------------------------------------------------------------------
def _cond(
    w: Writer, attr: Control, xs: Sequence[Value], name: str, functions: Sequence[str]
) -> None:
    """`scf.if` per branch but the last; so an index that is too small or large is clipped."""
    index = w.op(f"tensor.extract {xs[0].name}[] : tensor<i32>")
    if len(functions) == 1:  # nothing to choose
        w.line(f"{_results(attr, name)} = scf.execute_region -> ({_listed(attr.result_types)}) {{")
        _yield(w, _call(w, functions[0], xs[1:], attr.result_types))
        w.line("}")
        return
    _branches(w, attr, xs[1:], name, functions, index, 0)


def _branches(
    w: Writer,
    attr: Control,
    xs: Sequence[Value],
    name: str,
    functions: Sequence[str],
    index: str,
    number: int,
) -> None:
    """The branch of this number, or the ones after it."""
    at = w.op(f"arith.constant {number} : i32")
    is_it = w.op(f"arith.cmpi sle, {index}, {at} : i32")
    w.line(f"{_results(attr, name)} = scf.if {is_it} -> ({_listed(attr.result_types)}) {{")
    _yield(w, _call(w, functions[number], xs, attr.result_types))
    w.line("} else {")
    if number + 2 == len(functions):
        _yield(w, _call(w, functions[-1], xs, attr.result_types))
    else:
        inner, types = w.fresh(), attr.result_types
        _branches(w, attr, xs, inner, functions, index, number + 1)
        names = [f"{inner}#{i}" for i in range(len(types))] if len(types) > 1 else [inner]
        _yield(w, [Value(n, t) for n, t in zip(names, types, strict=True)])
    w.line("}")
