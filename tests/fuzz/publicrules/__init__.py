"""Public rules about tensors as pairs of JAX functions: `public_rules` has all of them."""

from fuzz.pairs.catalogue import Sizes

from . import products, saturated, scalars, shapes, updates
from .reasons import REASONS
from .rule import CONSTABLE, TENSORRIGHT, Rule, rules_of

FAMILIES = (
    *((TENSORRIGHT.format(name), family) for name, family in (
        ("add", scalars.add), ("broadcast", shapes.broadcast), ("clamp", scalars.clamp),
        ("compare", scalars.compare), ("concat", shapes.concat), ("conv", products.conv),
        ("divmod", scalars.divmod_), ("dot", products.dot), ("dyslice", updates.dynamic_slice),
        ("dyupslice", updates.dynamic_update), ("iota", shapes.iota), ("logical", scalars.logical),
        ("max", scalars.max_), ("mul", scalars.mul), ("not", scalars.not_), ("pad", shapes.pad),
        ("reduce", products.reduce), ("relabel", shapes.relabel), ("reverse", shapes.reverse),
        ("select", scalars.select), ("slice", shapes.slice_), ("sub", scalars.sub),
    )),
    (CONSTABLE.format("converted"), saturated.single),
    (CONSTABLE.format("converted_multi"), saturated.several),
    ("smjleo/tensat converted", saturated.first),
)  # fmt: skip


def public_rules(sizes: Sizes = int) -> list[Rule]:
    """All rules, in the order of their sources; sizes: what a size of scale 1 becomes."""
    return [r for source, family in FAMILIES for r in rules_of(source, family, sizes)]


__all__ = ["REASONS", "Rule", "public_rules"]
