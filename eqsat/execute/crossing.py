"""The traced function itself, called with arguments and results in the layouts of the border."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from eqsat.execute.lowering import lax_pack, lax_unpack
from eqsat.model.border import Border
from eqsat.model.layout import Layout

if TYPE_CHECKING:
    from eqsat.execute.calls import Signature


def in_layouts(signature: Signature, layouts: Mapping[Border, Layout]) -> Callable[..., Any]:
    """`signature.original` of leaves that come, and results that go, in these layouts."""
    import jax

    if not layouts:
        return signature.original
    bindings = enumerate(signature.bindings)
    numbers = {at: Border("input", int(key)) for at, (kind, key) in bindings if kind == "input"}
    inputs = {at: layouts[border] for at, border in numbers.items() if border in layouts}

    def original(*leaves: Any) -> Any:
        plain = [lax_unpack(inputs[at], x) if at in inputs else x for at, x in enumerate(leaves)]
        flat, tree = jax.tree_util.tree_flatten(signature.original(*plain))
        borders = (Border("result", number) for number in range(len(flat)))
        pairs = zip(flat, map(layouts.get, borders), strict=True)
        return tree.unflatten([x if held is None else lax_pack(held, x) for x, held in pairs])

    return original
