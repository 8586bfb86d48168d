"""SerializedEGraph: an e-graph of any tool, as egraph-serialize JSON holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

INFINITE_COST = 2**53  # costs from here on mean "never": a float64 no longer tells them apart


@dataclass(frozen=True)
class SerializedNode:
    """One e-node. `cost` is exact, as its decimal digits say; None: infinite, never to be chosen.

    `children` are positions in `SerializedEGraph.nodes`; any node of the child's class will do.
    """

    name: str
    op: str
    children: tuple[int, ...]
    eclass: str
    cost: Fraction | None


@dataclass(frozen=True)
class SerializedEGraph:
    """Nodes in the order of the file, and the classes that an extraction has to provide."""

    nodes: tuple[SerializedNode, ...]
    roots: tuple[str, ...]


@dataclass(frozen=True)
class Extraction:
    """The cheapest choice found. `stop`: proof | wall | interrupted | memory | size.

    `cost` is what the independent checker makes of `choices` (class → name of its node); no choice
    costs less than `bound`. Both are None if no choice is finite (`status` infeasible).
    """

    status: str  # optimal | feasible | infeasible
    stop: str
    cost: Fraction | None = None
    bound: Fraction | None = None
    choices: Mapping[str, str] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()  # if infeasible: the root classes that no finite choice provides

    @property
    def gap(self) -> float | None:
        """(cost - bound) / |cost|."""
        if self.cost is None or self.bound is None:
            return None
        return float((self.cost - self.bound) / (abs(self.cost) or 1))

    def to_json(self) -> dict[str, Any]:
        return {
            "format": 1,
            "status": self.status,
            "stop": self.stop,
            "dag_cost": None if self.cost is None else float(self.cost),
            "bound": None if self.bound is None else float(self.bound),
            "gap": self.gap,
            "choices": dict(self.choices),
            "lacking": list(self.lacking),
        }
