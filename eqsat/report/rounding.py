"""Which rules of an answer may round otherwise than the program, and by how much at most."""

from __future__ import annotations

from eqsat.model.generic import Generic
from eqsat.model.program import Program
from eqsat.report.finished import Finished
from eqsat.report.origins import rules_in_result

# facts that are found before the search and may add in another order if any rule may
ADDED_OTHERWISE = ("parts-at-once", "leave-loop")


BEFORE_SEARCH = "multiply-integers"  # is applied to the program, too (`ops.spelling`)


def _integer_sums(program: Program) -> int:
    """How many sums of i32 there are."""
    generics = (n.attr for n in program.nodes if isinstance(n.attr, Generic))
    return sum(y.combine == "add" and y.dtype == "i32" for g in generics for y in g.yields)


def inexact_rules(run: Finished) -> dict[str, str]:
    """Names of rules that the answer needed and that are tagged `inexact`; their bounds."""
    if run.egraph is None or run.selection is None:
        return {}
    bounds = {r.name: r.bound for r in run.rules.rules if r.bound}
    if run.rules.reorders_sums:
        bounds |= dict.fromkeys(ADDED_OTHERWISE, "roundings")
    used = rules_in_result(run.egraph, run.selection)
    used[BEFORE_SEARCH] += _integer_sums(run.canonical) > _integer_sums(run.program)
    found = {name: bound for name, bound in bounds.items() if used.get(name)}
    for body in {id(b): b for b in run.bodies.values()}.values():
        found |= inexact_rules(body)
    return found
