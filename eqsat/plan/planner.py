"""Which plan a nest gets on a machine, and plans as JSON: each kind of plan is tried in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from eqsat.model.nest import Nest, NoNest
from eqsat.model.plan import Machine, Plan, Work

Planner = Callable[[Nest, Machine], Plan]

# kind of plan → its planner, in the order in which they are asked
_PLANNERS: dict[type[Plan], Planner] = {}


def plan(nest: Nest, machine: Machine) -> Plan:
    """The plan of the first kind that takes the nest.

    Raises NoNest with the reasons of all kinds if none does.
    """
    reasons: list[str] = []
    for planner in _PLANNERS.values():
        try:
            return planner(nest, machine)
        except NoNest as why:
            reasons.append(str(why))
    raise NoNest("; ".join(dict.fromkeys(reasons)) or "no kind of kernel is known")


def to_json(chosen: Plan) -> dict[str, Any]:
    """Plain data: the kind, then the plan's fields."""
    return {"kind": chosen.kind} | {f.name: _data(getattr(chosen, f.name)) for f in fields(chosen)}


def from_json(data: dict[str, Any]) -> Plan:
    """Undo `to_json`; a ValueError if the kind is not known."""
    known = {k.kind: k for k in _PLANNERS}
    if data["kind"] not in known:
        raise ValueError(f"no kind of plan is called {data['kind']}")
    values = {k: _tuples(v) for k, v in data.items() if k != "kind"}
    values["work"] = Work(**{k: _tuples(v) for k, v in data["work"].items()})
    return known[data["kind"]](**values)


def _data(value: Any) -> Any:
    if isinstance(value, Work):
        return {f.name: _data(getattr(value, f.name)) for f in fields(value)}
    return [_data(v) for v in value] if isinstance(value, tuple) else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
