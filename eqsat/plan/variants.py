"""Variants of a dispatch's plan: what planners compare, and what differs in blocks from that."""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.model.dispatch import Machine, Plan
from eqsat.model.nest import Nest, NoNest
from eqsat.plan import passes, rowblocks, rows, tiling
from eqsat.plan.plancheck import plan_faults
from eqsat.plan.planner import plan


def plan_variants(nest: Nest, machine: Machine) -> list[Plan]:
    """Plans of a nest by its planner, the planner's own first; none of which the check refuses.

    Register tiles, vector loops, operand orders, copies and blocks of a contraction; rows of a row
    block; of rows their vector loop, lanes and vectors a turn. Of several parts one at a time
    differs. NoNest if there is no plan.
    """
    found = dict.fromkeys([plan(nest, machine), *_variants(nest, machine)])
    return [p for p in found if not any(plan_faults(nest, p))]


def _variants(nest: Nest, machine: Machine) -> Iterator[Plan]:
    parts = [p.anonymous() for p in passes.parts_of(nest)]
    if len(parts) == 1:
        yield from _of_one(nest, machine)
        return
    for part in parts:
        for other in _of_one(part, machine):

            def planner(n: Nest, m: Machine, part: Nest = part, other: Plan = other) -> Plan:
                return other if n == part else plan(n, m)

            yield passes.plan(nest, machine, planner)


def _of_one(nest: Nest, machine: Machine) -> list[Plan]:
    """By the first planner that takes the nest."""
    for compared in (tiling.tilings, rowblocks.row_blocks):
        try:
            return [*compared(nest, machine, neighbours=True)]
        except NoNest:
            continue
    return [*rows.other_rows(nest, machine)]
