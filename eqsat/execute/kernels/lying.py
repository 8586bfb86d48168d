"""Kernels that take arguments, and give results, whose dims lie in memory in other orders.

Such an array has the shape its caller knows; its bytes are those of the transposed one that the
schedule has. XLA hands a custom call the bytes as they lie if it is told the layout of the operand,
so nothing is transposed or copied. What is no kernel gets the transposed array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from eqsat.execute.kernels.runtime import KernelCall
from eqsat.execute.ordered import (
    ByBorder,
    as_called,
    as_scheduled,
    lying_inputs,
    lying_results,
)
from eqsat.model.schedule import Schedule
from eqsat.ops.meaning.programs import element_dtype
from eqsat.ops.movement.lists import inverse

Order = tuple[int, ...]


@dataclass(frozen=True)
class _Lying:
    """An array of the caller's shape, and its order; `None` of one as the schedule has it."""

    array: Any
    order: Order | None = None


def ordered_kernels(
    schedule: Schedule,
    calls: Mapping[int, KernelCall],
    dispatch: Callable[[int], Callable[..., tuple[Any, ...]]],
    orders: ByBorder,
    packed: Mapping[int, Any],
    inputs: Sequence[Any],
) -> tuple[Any, ...]:
    """The results, of the shapes the caller knows, dispatch by dispatch; to be traced.

    calls: number of a dispatch → its kernel; dispatch: of another one, its function.
    """
    came, goes = lying_inputs(orders), lying_results(orders)
    program = schedule.program
    held = {i: _Lying(x) for i, x in packed.items()}
    for number, (i, x) in enumerate(zip(program.inputs, inputs, strict=True)):
        held[i] = _Lying(x, came.get(number))
    made_in = {schedule.buffer_of(program.results[r]): order for r, order in goes.items()}
    for i, d in enumerate(schedule.dispatches):
        call = calls.get(i)
        if call is None:
            made = dispatch(i)(*(_scheduled(schedule, held, r) for r in d.reads))
            held.update(zip(d.writes, map(_Lying, made), strict=True))
        else:
            held.update(_called(schedule, call, held, made_in))
    return tuple(
        _as_result(schedule, held, r, goes.get(number)) for number, r in enumerate(program.results)
    )


def _find(schedule: Schedule, held: Mapping[int, _Lying], node: int) -> _Lying:
    """What holds the bytes of a node."""
    if node in held:
        return held[node]
    base = schedule.buffer_of(node)
    return next(x for i, x in held.items() if schedule.buffer_of(i) == base)


def _scheduled(schedule: Schedule, held: Mapping[int, _Lying], node: int) -> Any:
    """The value of a node as the schedule has it."""
    found = _find(schedule, held, node)
    x = found.array if found.order is None else as_scheduled(found.array, found.order)
    return x.reshape(schedule.program.nodes[node].type.shape)


def _as_result(
    schedule: Schedule, held: Mapping[int, _Lying], node: int, order: Order | None
) -> Any:
    found = _find(schedule, held, node)
    if order is not None and found.order == order:
        return found.array
    x = _scheduled(schedule, held, node)
    return x if order is None else as_called(x, order)


def _called(
    schedule: Schedule,
    call: KernelCall,
    held: Mapping[int, _Lying],
    made_in: Mapping[int, Order],
) -> dict[int, _Lying]:
    """What a kernel gives, from what it takes as that lies."""
    takes = [_find(schedule, held, r) for r in call.reads]
    orders = [made_in.get(schedule.buffer_of(w)) for w in call.writes]
    for at, to in call.aliases:
        if takes[at].order != orders[to]:  # written in place, so both lie alike
            takes[at] = _Lying(_scheduled(schedule, held, call.reads[at]))
            orders[to] = None
    given = [
        x.array if x.order is not None else _scheduled(schedule, held, r)
        for x, r in zip(takes, call.reads, strict=True)
    ]
    avals = [_aval(schedule, w, order) for w, order in zip(call.writes, orders, strict=True)]
    made = jax.ffi.ffi_call(
        call.target,
        avals,
        input_layouts=[x.order for x in takes],
        output_layouts=orders,
        input_output_aliases=dict(call.aliases),
    )(*given)
    values = map(_Lying, made, orders)
    return dict(zip(call.writes, values, strict=True))


def _aval(schedule: Schedule, node: int, order: Order | None) -> jax.ShapeDtypeStruct:
    """The shape of what a kernel gives: that of the result where it lies in an order."""
    program = schedule.program
    of = program.nodes[node].type
    shape = of.shape
    if order is not None:
        base = schedule.buffer_of(node)
        (result, *_) = [r for r in program.results if schedule.buffer_of(r) == base]
        lying = program.nodes[result].type.shape
        shape = tuple(lying[i] for i in inverse(order))
    return jax.ShapeDtypeStruct(shape, element_dtype(of.dtype))
