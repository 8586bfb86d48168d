"""How much work the float64 reference does, counted before and while it is done.

Counts, not clocks: the same program stops at the same place on every machine. The weights make one
operation about a tenth of a nanosecond of NumPy, so that a limit stands for a time.
"""

from __future__ import annotations

import math

from eqsat.model.foreign import Custom, Opaque
from eqsat.model.generic import Generic
from eqsat.model.program import Node
from eqsat.model.work import WORK_LIMIT
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.structured import product_factors

PER_OP = 250_000  # evaluating an op at all: Python's part, 25 µs
NOISY = 6  # drawing a rounding for every operation, and the squares of sums
PER_ELEMENT = 16  # a scalar function, or moving an element: a pass over memory


class OverWork(Exception):
    """The work that is left does not suffice for what comes next."""


class WorkBudget:
    """What may still be done; `spent` is what was."""

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
