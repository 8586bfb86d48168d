"""How far the rules of a run are known to be sound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eqsat.model.restore import restored

FIELDS = ("hunted", "no_instance", "unchecked")


@dataclass(frozen=True)
class RuleCheck:
    """Rules of a run that eqsat does not ship, by name.

    known: the number of those it ships, which its own tests hunt. hunted: no counterexample was
    found on well-typed instances. no_instance: the hunt found nothing that their left sides match,
    so they were not tried. unchecked: used without a hunt, or in spite of a counterexample, because
    the request said so.
    """

    known: int = 0
    hunted: tuple[str, ...] = ()
    no_instance: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"known": self.known} | {k: list(getattr(self, k)) for k in FIELDS}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RuleCheck:
        return restored(cls, {k: data[k] for k in ("known", *FIELDS)})
