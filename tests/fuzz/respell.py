"""Programs that compute the same, written in another way: one respelling of a random place.

Each respelling takes a program and a source of random draws, and gives the program back with one
place written differently, or None if the program has no such place.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from eqsat.model.program import Program
from fuzz.identities import (
    neutral_ops,
    packs,
    pad_and_slice,
    reshapes,
    slices_and_concat,
    transposes,
)
from fuzz.respelledbodies import (
    duplicated,
    lines_reordered,
    merged_elementwise,
    operands_swapped,
    recomputed,
    split_elementwise,
    two_step_extremum,
    two_step_sum,
)
from fuzz.respelledmaps import (
    broadcast,
    loops_collapsed,
    map_for_slice,
    map_for_transpose,
    result_transposed,
    transpose_for_map,
    transpose_into_map,
    unit_dims,
)

Respelling = Callable[[Program, random.Random], Program | None]

IDENTITIES: dict[str, Respelling] = {
    "transposes": transposes,
    "reshapes": reshapes,
    "slices-and-concat": slices_and_concat,
    "pad-and-slice": pad_and_slice,
    "neutral-ops": neutral_ops,
    "packs": packs,
}
RESPELLINGS: dict[str, Respelling] = IDENTITIES | {
    "map-for-transpose": map_for_transpose,
    "map-for-slice": map_for_slice,
    "transpose-for-map": transpose_for_map,
    "transpose-into-map": transpose_into_map,
    "result-transposed": result_transposed,
    "broadcast": broadcast,
    "loops-collapsed": loops_collapsed,
    "unit-dims": unit_dims,
    "operands-swapped": operands_swapped,
    "split-elementwise": split_elementwise,
    "merged-elementwise": merged_elementwise,
    "recomputed": recomputed,
    "duplicated": duplicated,
    "two-step-extremum": two_step_extremum,
    "two-step-sum": two_step_sum,
    "lines-reordered": lines_reordered,
}
