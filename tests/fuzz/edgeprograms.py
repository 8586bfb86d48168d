"""Programs of one dispatch at the edges of their sizes, by the kind of kernel they are hard for.

A form says what is computed: a product that reads a part of a concatenation, a transposed copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fuzz import edgecopies, edgepoints, edgeproducts, edgerows, edgewindows
from fuzz.edgelines import Sizes

Form = Callable[[Sizes], str]
FORMS: dict[str, tuple[Form, ...]] = {
    "contraction": (
        edgeproducts.plain,
        edgeproducts.finished,
        edgeproducts.batched,
        edgeproducts.few_rows,
        edgeproducts.one_row,
        edgeproducts.heads,
        edgeproducts.short_types,
        edgeproducts.integers,
        edgeproducts.a_slice_beside_the_whole,
        edgeproducts.two_slices,
        edgeproducts.gated,
        edgeproducts.part_of_a_result,
        edgeproducts.every_second_row,
        edgeproducts.edges_of_a_result,
        edgeproducts.packed,
        edgeproducts.packed_beside_parts,
        edgeproducts.panels_beside_the_whole,
        edgeproducts.slices_of_packed,
        edgeproducts.unrelated,
    ),
    "points": (
        edgepoints.computed_rows,
        edgepoints.computed_columns,
        edgepoints.joined_sums,
        edgepoints.joined_products,
        edgepoints.joined_rows,
        edgepoints.joined_columns,
        edgepoints.stacked,
        edgepoints.encoded,
        edgepoints.padded_operand,
        edgepoints.padded_columns,
        edgepoints.edges_of_an_operand,
        edgepoints.gathered,
        edgepoints.unpacked_rows,
        edgepoints.broadcast_operand,
    ),
    "windows": (
        edgewindows.convolution,
        edgewindows.many_channels,
        edgewindows.depthwise,
        edgewindows.computed_depthwise,
        edgewindows.joined_channels,
        edgewindows.repeated_pixels,
        edgewindows.channels_first,
        edgewindows.grouped,
        edgewindows.integer_windows,
        edgewindows.pooled,
    ),
    "rows": (
        edgerows.elementwise,
        edgerows.compared,
        edgerows.softmax,
        edgerows.norm,
        edgerows.reduced,
        edgerows.two_results,
        edgerows.of_parts,
        edgerows.reduced_parts,
        edgerows.conversions,
        edgerows.looked_up,
    ),
    "row_blocks": (
        edgerows.attention,
        edgerows.decoding,
        edgerows.joined_attention,
        edgerows.joined_norm,
        edgerows.norm_before,
        edgerows.product_between,
    ),
    "copies": (
        edgecopies.transposed,
        edgecopies.permuted,
        edgecopies.sliced,
        edgecopies.joined_parts,
        edgecopies.padded_copy,
        edgecopies.edges_copied,
        edgecopies.packed_copy,
        edgecopies.gathered_copy,
        edgecopies.broadcast_copy,
        edgecopies.regrouped,
        edgecopies.repeated_and_padded,
        edgecopies.pixels_shuffled,
    ),
}
KINDS = tuple(FORMS)


def programs(kind: str, lanes: int, number: int) -> Iterator[tuple[str, str]]:
    """(name, text) of every form of a kind at its sizes of this number."""
    for write in FORMS[kind]:
        body = write(Sizes(write.__name__, number, lanes))
        yield f"{kind}.{write.__name__}.{number}", f"program edge\n{body}\n"
