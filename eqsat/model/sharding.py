"""ShardProblem: a strategy for each node, as the IOPDDL format states it; Sharding: the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from eqsat.model.restore import restored

FORBIDDEN = 10**18  # a cost from here on means "never", as in the instances of the contest
LARGEST_TOTAL = 2**56  # of all costs, and of all usages: sums and prices of them fit 64 bits


@dataclass(frozen=True)
class ShardNode:
    """A choice between strategies: what each costs, and what it uses while the node is live.

    `costs` and `usages` have an entry per strategy; the node is live in the steps lower <= t <
    upper (never, if that is empty).
    """

    costs: Sequence[int]
    usages: Sequence[int]
    lower: int
    upper: int


@dataclass(frozen=True)
class ShardEdge:
    """What two nodes cost together.

    `costs` is row-major: a row per strategy of `first`, in it an entry per strategy of `second`.
    """

    first: int
    second: int
    costs: Sequence[int]


@dataclass(frozen=True)
class ShardProblem:
    """Minimise the costs of nodes and edges; in no step may the live usages exceed the limit.

    Costs of FORBIDDEN and more may not be chosen. Costs may be negative, usages may not.
    """

    nodes: Sequence[ShardNode]
    edges: Sequence[ShardEdge]
    usage_limit: int


@dataclass(frozen=True)
class Sharding:
    """The best strategy of each node that was found.

    status: optimal | feasible | infeasible (proven) | unknown (nothing found that is allowed).
    stop: proof | work | wall | interrupted | memory. `cost` is None where `strategies` is empty;
    nothing that is allowed costs less than `bound` (None if infeasible).
    """

    status: str
    stop: str
    cost: int | None
    bound: int | None
    strategies: tuple[int, ...] = ()

    @property
    def gap(self) -> float | None:
        """(cost - bound) / |cost|."""
        if self.cost is None or self.bound is None:
            return None
        return (self.cost - self.bound) / (abs(self.cost) or 1)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"gap": self.gap, "strategies": list(self.strategies)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Sharding:
        return restored(cls, {k: v for k, v in data.items() if k != "gap"})
