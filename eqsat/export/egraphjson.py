"""EGraph → egraph-serialize JSON, which extractors and visualizers of other tools read.

The format: https://github.com/egraphs-good/egraph-serialize
"""

from __future__ import annotations

from typing import Any

from eqsat.model.egraph import EGraph, ENode
from eqsat.model.leaves import Leaf
from eqsat.model.ops import LEAVES, VIEWS


def serialized_egraph(egraph: EGraph) -> dict[str, Any]:
    """The e-graph with a `cost` of 1 for each op, 0 for leaves and views, which compute nothing.

    What a dispatch costs is no sum over e-nodes, so the prices of a target are not in it. A node
    that a rule with `apply: replace` removed is `subsumed`. `class_data` has the types.
    """
    ids = [f"c{n.eclass}.{i}" for i, n in enumerate(egraph.nodes)]
    first = [members[0] for members in egraph.classes]
    nodes = {
        ids[i]: {
            "op": _label(n),
            "children": [ids[first[c]] for c in n.children],
            "eclass": f"c{n.eclass}",
            "cost": 0.0 if n.op in LEAVES or n.op in VIEWS else 1.0,
            "subsumed": n.subsumed,
        }
        for i, n in enumerate(egraph.nodes)
    }
    data = {f"c{c}": {"type": ", ".join(map(str, types))} for c, types in enumerate(egraph.types)}
    roots = list(dict.fromkeys(f"c{r}" for r in egraph.roots))
    return {"nodes": nodes, "root_eclasses": roots, "class_data": data}


def _label(node: ENode) -> str:
    """The op with its attributes, without operands."""
    if isinstance(node.attr, Leaf):
        return f"{node.op} {node.attr.name}"
    text = node.attr.text(node.op)
    return f"{node.op} {text}" if text else node.op
