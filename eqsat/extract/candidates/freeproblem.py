"""The problem without an order, of a table of options."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.extract.candidates.table import OptionTable
from eqsat.extract.candidates.variants import Variants
from eqsat.extract.ragged import Mask
from eqsat.extract.solve.freetable import FreeTable


def free_table(variants: Variants, table: OptionTable) -> FreeTable:
    """The problem of choosing among these options in any order."""
    pool, space = variants.pool, variants.space
    roots = [r for r in space.roots if r not in pool.held]
    return FreeTable(
        **columns(table),
        roots=np.array(roots, dtype=np.int64),
        needed=np.array(variants.needed, dtype=np.int64),
        value_of=np.array(space.value, dtype=np.int64),
        is_source=_is_source(variants),
    )


def columns(table: OptionTable) -> dict[str, Any]:
    """What both tables say about the options."""
    return {n: getattr(table, n) for n in ("adds", "reads", "writes", "exclusive", "computes")}


def _is_source(variants: Variants) -> Mask:
    """Per value: whether it is there from the start, in some layout."""
    pool, space = variants.pool, variants.space
    found = np.zeros(len(space.buffer), dtype=bool)
    found[[v for v in set(space.value) if space.is_source(v)]] = True
    found[[space.value[b] for b in pool.held | pool.resident]] = True
    return found
