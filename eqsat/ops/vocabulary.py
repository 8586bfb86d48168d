"""The record of an attribute function: what a rule may compute, with the kinds it takes and gives.

Kinds of values: tensor tensors sig sigs layout layouts groups groupings move moves encoding
encodings ints perms int float bool tile tiles pads str fill leaf. A plural is a list with one
entry per operand. `row:NAME` is a row (a `let:` variable whose columns are read with a dot),
`rows:NAME` a list of rows for `foreach:`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class AttrFunction:
    """Argument kinds (alternatives with `|`), result kind, and meaning.

    The meaning gets plain values (tuples of ints, `Layout`, `Generic`, …) and returns one, or None
    where the condition behind it does not hold: then the rule has no row there.

    orders: it understands generics whose loops are executed in another order than the canonical
    one. A rule without such a function has no row where one is matched: the canonical form is in
    the same class, and one form of what the rule makes is enough.
    """

    args: tuple[str, ...]
    result: str
    doc: str
    meaning: Callable[..., Any]
    orders: bool = False
