"""A compiler that folds transposes and the search, on a target where folding costs a dispatch."""

from __future__ import annotations

import eqsat

SETTINGS = (
    "tiles.matmul=[{mnk: [16, 16, 16], rate: 0.68}]",
    "tiles_forced=true",
    "fusion.join={elementwise: [elementwise, reduction, conversion, move],"
    " conversion: [elementwise, reduction, conversion, move]}",
    "fusion.multi_result=true",
    "fusion.siblings=true",
    "limits.vector=8 KiB",
)


def folding_and_best() -> list[eqsat.Run]:
    """`transposed_pack` by the policy that always folds, and by the search."""
    program = eqsat.read("transposed_pack")
    return [
        eqsat.optimize(program, rules=(rules,), settings=SETTINGS, target="reference")
        for rules in ("policy/always-fold", "default")
    ]
