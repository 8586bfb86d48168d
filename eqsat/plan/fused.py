"""How many integer products a machine's instructions multiply and add at once."""

from __future__ import annotations

from eqsat.model.nest import Nest
from eqsat.model.plan import Machine
from eqsat.plan.roles import ProductFactor

BYTES = frozenset({"i8", "u8"})
WORDS = BYTES | {"i16"}  # in pairs, as their sums wrap like those of i32


def products_at_once(
    nest: Nest,
    a: ProductFactor,
    b: ProductFactor,
    reduced: tuple[int, ...],
    machine: Machine,
    *,
    in_windows: bool = False,
) -> int:
    """4, 2 or 1 points of the reduction, for rows of factor `a` and columns of factor `b`.

    Both are copied to scratch in groups, which are parts of the innermost loop: it ends with one,
    or it is the only loop of the reduction, or rows lie in a window: what follows there is
    multiplied by columns that are 0.
    """
    if not reduced or a.narrow not in WORDS or b.narrow not in WORDS:
        return 1
    signs = {a.narrow, b.narrow}
    most = 4 if signs <= BYTES and "i8" in signs else 2
    found = min(most_at_once(machine), most)
    is_whole = len(reduced) == 1 or nest.sizes[reduced[-1]] % found == 0
    return found if is_whole or in_windows else 1


def in_groups(nest: Nest, loops: tuple[int, ...], together: int) -> int:
    """Points of these loops, each run along the last one filled up to whole groups."""
    if not loops:
        return 1
    return nest.points(loops[:-1]) * -(-nest.sizes[loops[-1]] // together) * together


def most_at_once(machine: Machine) -> int:
    """Products that one instruction of the machine multiplies and adds at the most."""
    has, lanes = set(machine.features), machine.lanes(4)
    if "avx512vnni" in has and (lanes == 16 or (lanes == 8 and "avx512vl" in has)):
        return 4
    return 2 if ("avx512bw" in has and lanes == 16) or ("avx2" in has and lanes == 8) else 1
