"""Precisions in MLIR: linalg has none, so an attribute of ours says it, or a location.

StableHLO's `precision` and `algorithm` are gone once IREE's pipeline has lowered it to linalg. What
the pipeline keeps of every op is its location; so that is given the precision as a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from eqsat.model.diag import Span, did_you_mean, fail
from eqsat.model.precision import (
    DEFAULT,
    HIGHEST,
    LEVELS,
    PRECISIONS,
    algorithm_name,
    most_accurate,
)

if TYPE_CHECKING:
    from eqsat.frontends.mlir.items import Environment

ATTRIBUTE = "eqsat.precision"
_CONTRACTIONS = frozenset(f"stablehlo.{n}" for n in ("dot", "dot_general", "convolution"))
_SAID = frozenset({"precision_config", "algorithm"})  # their attributes
_NAMED = re.compile(rf'"{re.escape(ATTRIBUTE)}=(\w+)"')
_FIELD = re.compile(r"(\w+) = (\w+)")


def stablehlo_precision(op: Any, where: Span | None) -> str:
    """The precision a StableHLO op asks for: its algorithm, or the more accurate of its two.

    EqsatError E375 for an algorithm that programs have no name for.
    """
    if "algorithm" in op.attributes:
        text = str(op.attributes["algorithm"])
        name = _algorithm(dict(_FIELD.findall(text)))
        if name is None:
            raise fail("E375", f"`{op.name}` asks for `{text}`, which has no name here", where)
        return name
    if "precision_config" not in op.attributes:
        return DEFAULT
    words = re.findall(r"[A-Z]+", str(op.attributes["precision_config"]))
    return most_accurate(w.lower() for w in words if w.lower() in LEVELS)


def _algorithm(fields: dict[str, str]) -> str | None:
    lhs, rhs, accumulator = (
        fields[f"{key}_type"].lower() for key in ("lhs_precision", "rhs_precision", "accumulation")
    )
    counts = [int(fields[f"{side}_component_count"]) for side in ("lhs", "rhs")]
    fast = fields["allow_imprecise_accumulation"] == "true"
    products = int(fields["num_primitive_operations"])
    return algorithm_name(lhs, rhs, accumulator, products, fast) if counts == [1, 1] else None


def marked(ops: Iterable[Any], ir: Any, place: Any) -> bool:
    """Write the precisions of these ops into their locations; False if all are default.

    place: gives the span of a location. Ops that differ in nothing else get the most accurate of
    their precisions: IREE's pipeline takes them for one, and keeps either.
    """
    alike: dict[Any, list[tuple[Any, str]]] = {}
    for op in (o for o in ops if o.name in _CONTRACTIONS):
        alike.setdefault(_without_precision(op), []).append(
            (op, stablehlo_precision(op, place(op.location)))
        )
    found = False
    for same in alike.values():
        precision = _one_of({p for _, p in same})
        for op, _ in same if precision != DEFAULT else ():
            op.location = ir.Location.name(f"{ATTRIBUTE}={precision}", op.location)
            found = True
    return found


def _without_precision(op: Any) -> Any:
    """What an op is, its precision aside."""
    rest = tuple((k, str(op.attributes[k])) for k in sorted(op.attributes) if k not in _SAID)
    return op.name, tuple(op.operands), rest, tuple(str(r.type) for r in op.results)


def _one_of(precisions: set[str]) -> str:
    if len(precisions) == 1:
        return next(iter(precisions))
    return most_accurate(precisions) if precisions <= set(LEVELS) else HIGHEST


def op_precision(scope: Environment, op: Any) -> str:
    """The precision of a linalg op; EqsatError E375 if its attribute holds no name of one."""
    if ATTRIBUTE in op.attributes:
        name = str(getattr(op.attributes[ATTRIBUTE], "value", op.attributes[ATTRIBUTE]))
        if name not in PRECISIONS:
            message = f"`{op.name}` asks for the precision `{name}`, which does not exist"
            raise scope.fail("E375", message, op, help=did_you_mean(name, PRECISIONS))
        return name
    match = _NAMED.search(str(op.location))
    return match[1] if match and match[1] in PRECISIONS else DEFAULT
