"""The float64 reference: a program in NumPy within a limit of work, exact or each rounding moved.

Work is counted, not timed: the same program stops at the same place on every machine. The weights
make one operation about a tenth of a nanosecond of NumPy, so that a limit stands for a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from eqsat.model.control import COND, SCAN, Control
from eqsat.model.generic import Generic
from eqsat.model.leaves import Custom, Opaque
from eqsat.model.limits import WORK_LIMIT
from eqsat.model.program import Node, Program
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.programs import bind_leaves, evaluate_control, evaluate_node, operand_values
from eqsat.ops.meaning.structured import product_factors
from eqsat.ops.spelling.trip_counts import with_trips

PER_OP = 250_000  # evaluating an op at all: Python's part, 25 µs
NOISY = 6  # drawing a rounding for every operation, and the squares of sums
PER_ELEMENT = 16  # a scalar function, or moving an element: a pass over memory


class OverWork(Exception):
    """The work that is left does not suffice for what comes next."""


class WorkBudget:
    """Operations that may still be done; `spent` of them are."""

    def __init__(self, limit: float = WORK_LIMIT):
        self.limit = int(limit)
        self.spent = 0

    def spend(self, operations: int) -> None:
        """OverWork if that is more than is left; then it must not be done."""
        self.spent += operations
        if self.spent > self.limit:
            raise OverWork

    def allows(self, operations: int) -> bool:
        """Whether that much is left."""
        return self.spent + operations <= self.limit


def operations(node: Node) -> int:
    """Of evaluating one op once; multiply-adds of a contraction count 1, bodies of loops count
    when they run."""
    attr = node.attr
    results = sum(t.size for t in node.types)
    if isinstance(attr, Generic):
        domain = math.prod(attr.sizes)
        if product_factors(attr) is not None:
            return PER_OP + domain + PER_ELEMENT * results
        return PER_OP + PER_ELEMENT * domain * sum(1 + scalar.cost(y.body) for y in attr.yields)
    factor = 8 if isinstance(attr, Opaque | Custom) else 1  # nobody knows what is inside
    return PER_OP + PER_ELEMENT * results * factor


Array = np.ndarray[Any, Any]
OpaqueFunctions = Mapping[str, Callable[..., Sequence[Any]]]


class Ops(Protocol):
    """How one op that is no loop or branch is evaluated."""

    def __call__(
        self, node: Node, operands: Sequence[Array], opaque: OpaqueFunctions
    ) -> list[Array]: ...


def exactly(node: Node, operands: Sequence[Array], opaque: OpaqueFunctions) -> list[Array]:
    """The meaning of an op in float64."""
    return evaluate_node(node.op, node.attr, operands, opaque)


def reference(
    program: Program,
    inputs: Sequence[Any],
    weights: Mapping[str, Any],
    opaque: OpaqueFunctions,
    work: WorkBudget,
    ops: Ops = exactly,
) -> list[Array]:
    """The program's results in held form.

    Other ops than exact ones draw their noise, which costs `NOISY` times as much. Raises OverWork
    as soon as more than `work` would be done, EqsatError as `evaluate_program`.
    """
    values: dict[int, list[Array]] = {
        i: [a] for i, a in bind_leaves(program, inputs, weights).items()
    }
    left = list(program.uses)
    for i in program.needed:
        node = program.nodes[i]
        if i not in values:
            values[i] = evaluated(node, operand_values(node, values), opaque, work, ops)
        for o in node.operands:
            left[o] -= 1
            if left[o] == 0:
                del values[o]
    return [values[r][0] for r in program.results]


def evaluated(
    node: Node,
    operands: Sequence[Array],
    opaque: OpaqueFunctions,
    work: WorkBudget,
    ops: Ops = exactly,
    is_paid: bool = False,
) -> list[Array]:
    """The results of one op, or of a loop or branch; is_paid: its own work is spent already."""
    attr = node.attr
    if not isinstance(attr, Control):
        if not is_paid:
            work.spend(operations(node) * (1 if ops is exactly else NOISY))
        return ops(node, operands, opaque)
    return evaluate_control(
        attr,
        operands,
        lambda body, xs: reference(body, xs, {}, opaque, work, ops),
        most_steps=None,  # `work` ends it
    )


def least_operations(program: Program) -> int:
    """Of evaluating a program once, where loops that may end at once do.

    Loops whose trips are known run that often; of the branches of a `cond` the cheapest counts.
    """
    counted = with_trips(program)
    return sum(least_of(counted.nodes[i]) for i in counted.needed)


def least_of(node: Node) -> int:
    """`least_operations` of one op of a program `with_trips`."""
    attr = node.attr
    if not isinstance(attr, Control):
        return operations(node)
    inner = [least_operations(p) for p in attr.bodies]
    if attr.op == COND:
        return min(inner)
    if attr.op == SCAN:
        return inner[0] * attr.length
    trips = attr.trips or 0
    return inner[0] * (trips + 1) + inner[1] * trips


def reference_bytes(program: Program) -> int:
    """Least bytes of evaluating a program in float64: one op's operands and results."""
    sizes = [sum(t.size for t in n.types) for n in program.nodes]
    used = (sizes[i] + sum(sizes[o] for o in n.operands) for i, n in enumerate(program.nodes))
    return 8 * max(used, default=0)
