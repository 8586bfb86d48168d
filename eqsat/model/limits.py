"""Limits of saturation and of a verification: counts, so that the same is done on any machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from eqsat.model.diag import did_you_mean, fail
from eqsat.model.files import JsonRecord

# defaults where nothing is said: so many at least, or so many for each op of a larger program
NODES, NODES_PER_OP = 20_000, 25
MATCHES, MATCHES_PER_OP = 100_000, 50
ROUNDS = 100
# operands of what a rule makes: a rule for any operand is compiled once per arity and position
MOST_OPERANDS = 6


@dataclass(frozen=True)
class Limits(JsonRecord):
    """When saturation stops at the latest; `EGraph.stop` says which limit stopped it.

    nodes: e-nodes. rounds: how often the rules are applied and their tables filled. matches:
    different matches of left sides. seconds: of CPU time; none unless asked for, as a clock makes
    the e-graph depend on how quick the machine is. None means the default. Raises EqsatError (E408)
    for what is no limit.
    """

    nodes: int | None = None
    rounds: int | None = None
    matches: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for key, value in self.to_json().items():
            if value is not None:
                _check(key, value)

    def resolved(self, ops: int) -> Limits:
        """With the defaults for a program of so many ops; only `seconds` may still be None."""
        return replace(
            self,
            nodes=self.nodes or max(NODES, NODES_PER_OP * ops),
            rounds=self.rounds or ROUNDS,
            matches=self.matches or max(MATCHES, MATCHES_PER_OP * ops),
        )

    def updated(self, other: Limits) -> Limits:
        """These limits, with those that the other one sets in their place."""
        said = {k: v for k, v in other.to_json().items() if v is not None}
        return replace(self, **said)

    @classmethod
    def of(cls, given: Limits | Mapping[str, Any] | None) -> Limits:
        """Limits as Python callers give them; EqsatError (E408) for a key there is not."""
        if given is None or isinstance(given, Limits):
            return given or cls()
        if not isinstance(given, Mapping):
            raise fail("E408", f"`{given}` is no limit", help='write `limits={"nodes": 20000}`')
        for key in given:
            check_key(str(key))
        return cls(**given)


KEYS = tuple(f.name for f in fields(Limits))


def check_key(key: str, where: str = "limits") -> None:
    """EqsatError (E408) if saturation has no such limit."""
    if key not in KEYS:
        hint = did_you_mean(key, KEYS)
        if key in ("scratch", "vector"):
            hint = f"`{key}` is a limit of the target: `--set limits.{key}=…`"
        raise fail("E408", f"{where}: no limit named `{key}`", help=hint)


def _check(key: str, value: Any) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if key == "seconds":
        if not (is_number and math.isfinite(value) and value > 0):
            raise fail("E408", f"limits.seconds is {value}", help="a time above 0, or none at all")
    elif not isinstance(value, int) or not is_number or value < 1:
        raise fail("E408", f"limits.{key} is {value}", help="a whole number from 1 on")


def check_room(limits: Limits, nodes: int, name: str) -> None:
    """EqsatError (E408) if the program itself is larger than the e-graph may become."""
    assert limits.nodes is not None
    if nodes > limits.nodes:
        message = f"limits.nodes is {limits.nodes}, but `{name}` itself has {nodes} nodes"
        raise fail("E408", message, help=f"allow {nodes} at least, or say nothing about nodes")


# scalar operations of the float64 reference, as `execute.reference` counts them: about ten seconds;
# two samples of BERT-base's 12 layers at 128 tokens and its schedule on one arena
WORK_LIMIT = 10**11
