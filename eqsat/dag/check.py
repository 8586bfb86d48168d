"""The independent checker: what does a choice of nodes really cost, and is it one at all?

It reads the e-graph as the file says it and shares nothing with the search.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from eqsat.model.serialized import SerializedEGraph


class WrongChoiceError(ValueError):
    """A choice that does not provide the roots: a class without a node, a cycle, no such node."""


def cost_of_choice(egraph: SerializedEGraph, choices: Mapping[str, str]) -> Fraction:
    """DAG cost of a choice (class → name of a node of it), from the roots.

    WrongChoiceError if it is none; choices of classes that are not reachable do not count.
    """
    nodes = {n.name: n for n in egraph.nodes}
    total = Fraction(0)
    state: dict[str, str] = {}  # open: its children are being provided
    for root in egraph.roots:
        stack = [root]
        while stack:
            eclass = stack[-1]
            if state.get(eclass) is not None:  # all below it is provided
                state[stack.pop()] = "done"
                continue
            node = nodes.get(choices.get(eclass, ""))
            if node is None or node.eclass != eclass:
                raise WrongChoiceError(f"class `{eclass}` has no node of its own")
            if node.cost is None:
                raise WrongChoiceError(f"node `{node.name}` may not be chosen")
            total += node.cost
            state[eclass] = "open"
            for child in node.children:
                below = egraph.nodes[child].eclass
                if state.get(below) == "open":
                    raise WrongChoiceError(f"class `{below}` needs itself")
                if below not in state:
                    stack.append(below)
    return total
