"""In which order arguments and results lie in memory, as lines for a terminal."""

from __future__ import annotations

from eqsat.model.orders import MemoryOrders
from eqsat.report.units import goal_text


def order_lines(orders: MemoryOrders | None, name: str = "") -> list[str]:
    """A line per argument and result that is not plain and why; of one alone if a name is given.

    Where the search chose, also what no order could be below.
    """
    if orders is None:
        return []
    told = [o for o in orders.chosen if name in ("", o.name)]
    lines = [f"{o.name} lies in order {list(o.order)}: {o.why}" for o in told]
    if name:
        return lines
    if orders.why:
        lines.append(f"orders of dims: {orders.why}")
    if orders.bound is not None and orders.plain is not None and orders.value is not None:
        texts = [
            goal_text(orders.goal, round(v)) for v in (orders.plain, orders.value, orders.bound)
        ]
        lines.append(
            f"{orders.goal} with plain orders {texts[0]}, with these {texts[1]}, no order is below "
            f"{texts[2]} ({orders.tried} searches)"
        )
    return lines
