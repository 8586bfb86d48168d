"""Views: nodes whose bytes are another one's."""

from __future__ import annotations

from eqsat.model.program import Program


def behind_views(program: Program, node: int) -> int:
    """The node whose bytes these are: reshapes and relaxed views are looked through."""
    while program.nodes[node].op in ("reshape", "relax"):
        (node,) = program.nodes[node].operands
    return node
