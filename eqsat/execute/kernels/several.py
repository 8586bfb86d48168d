"""Kernels of several parts: each does the items of the call that are its own."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

from eqsat.execute.kernels.kernel import EMITTERS, Head
from eqsat.model.nest import Nest
from eqsat.model.plan import Machine
from eqsat.plan.several import Several, parts_of


def emit(head: Head, nest: Nest, plan: Several, machine: Machine) -> None:
    """Write the parts one after another."""
    code, before = head.code, 0
    for part, own in zip(parts_of(nest), plan.parts, strict=True):
        lo = code.max(code.sub(head.lo, before), 0)
        hi = code.min(code.sub(head.hi, before), own.items)
        emit_part: Any = import_module(EMITTERS[own.kind]).emit
        emit_part(replace(head, lo=lo, hi=hi), part, own, machine)
        before += own.items
