"""The record of an attribute function: what a rule may compute, with the kinds it takes and gives.

Kinds of values: tensor tensors sig sigs layout layouts groups groupings move moves encoding
encodings ints perms int float bool tile tiles pads str fill leaf. A plural is a list with one
entry per operand. `row:NAME` is a row (a `let:` variable whose columns are read with a dot),
`rows:NAME` a list of rows for `foreach:`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# the list of a kind, one entry per operand
PLURAL: dict[str, str] = {
    "tensor": "tensors",
    "sig": "sigs",
    "layout": "layouts",
    "groups": "groupings",
    "move": "moves",
    "encoding": "encodings",
    "ints": "perms",
    "tile": "tiles",
}


@dataclass(frozen=True)
class AttrFunction:
    """Argument kinds (alternatives with `|`), result kind, and meaning.

    The meaning gets plain values (tuples of ints, `Layout`, `Generic`, …) and returns one, or None
    where the condition behind it does not hold: then the rule has no row there.

    orders: it understands generics whose loops are executed in another order than the canonical
    one. A rule without such a function has no row where one is matched: the canonical form is in
    the same class, and one form of what the rule makes is enough.
    optional: so many of the last arguments may be left out. columns: of the row it gives, name ->
    kind. cases: what it is for one choice of kinds each, where its result depends on them.
    is_fact: it asks what is known of a value of the input program (`ops.programs.facts`), and is a
    condition by itself, as nothing is known of what rules make.
    refuses: what is wrong with a text that is written out as an argument, "" if nothing is.
    """

    args: tuple[str, ...]
    result: str
    doc: str
    meaning: Callable[..., Any]
    orders: bool = False
    optional: int = 0
    columns: Mapping[str, str] = field(default_factory=dict)
    cases: tuple[AttrFunction, ...] = ()
    is_fact: bool = False
    refuses: Callable[[str], str] | None = None

    def given(self, kinds: Sequence[str]) -> str:
        """Kind of its result for arguments of these kinds ("": not known), "" if that depends."""
        fitting = [c.result for c in self.cases or (self,) if _fits(c.args, kinds)]
        return fitting[0] if len(fitting) == 1 else ""


def _fits(args: Sequence[str], kinds: Sequence[str]) -> bool:
    pairs = zip(args, kinds, strict=False)
    fit = all(kind in ("", *wanted.split("|")) for wanted, kind in pairs)
    return fit and len(kinds) <= len(args)
