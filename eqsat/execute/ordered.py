"""An executable called with arrays whose dims lie in memory in other orders than their shapes say.

The schedule has such an argument as the transposed one, whose bytes are the same. Where that is
said with a transpose, XLA sees that it moves nothing: on accelerators it is free. XLA:CPU would
move the transpose into a product and copy there, so it is kept where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jax import lax

from eqsat.model.border import Border
from eqsat.model.executor import Executable
from eqsat.ops.movement.lists import inverse

ByBorder = Mapping[Border, tuple[int, ...]]


def as_scheduled(x: Any, order: tuple[int, ...]) -> Any:
    """An array that lies in this order as the schedule has it: row by row, its dims reordered."""
    return _in_place(lax.transpose(x, order))


def as_called(x: Any, order: tuple[int, ...]) -> Any:
    """Undo `as_scheduled`."""
    return lax.transpose(_in_place(x), inverse(order))


def _in_place(x: Any) -> Any:
    return lax.platform_dependent(x, cpu=lax.optimization_barrier, default=lambda x: x)


def lying_inputs(orders: ByBorder) -> dict[int, tuple[int, ...]]:
    """Number of an argument → its order."""
    return {b.number: order for b, order in orders.items() if b.kind == "input"}


def lying_results(orders: ByBorder) -> dict[int, tuple[int, ...]]:
    """Number of a result → its order."""
    return {b.number: order for b, order in orders.items() if b.kind == "result"}


def run_in_orders(
    run: Callable[..., Sequence[Any]], orders: ByBorder, packed: Any, inputs: Sequence[Any]
) -> tuple[Any, ...]:
    """`run` of a schedule, with arguments and results of the shapes that the caller knows."""
    came, goes = lying_inputs(orders), lying_results(orders)
    turned = [as_scheduled(x, came[i]) if i in came else x for i, x in enumerate(inputs)]
    made = run(packed, *turned)
    return tuple(as_called(x, goes[r]) if r in goes else x for r, x in enumerate(made))


def called_in(executable: Executable, orders: ByBorder) -> Callable[..., tuple[Any, ...]]:
    """`executable.run` with arguments and results of the shapes that the caller knows."""
    if not orders:
        return executable.run
    own = getattr(executable, "run_in_orders", None)  # of executors that need no transpose

    def run(packed: Any, *inputs: Any) -> tuple[Any, ...]:
        if own is not None:
            return own(orders, packed, *inputs)
        return run_in_orders(executable.run, orders, packed, inputs)

    return run
