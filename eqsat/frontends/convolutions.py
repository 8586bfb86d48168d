"""`conv_general_dilated` in every form → a sum of products over windows.

Groups become a loop of their own: channels (or images) and filters are split by it. A dilated
image, as a transposed convolution has it, is spread out with zeros first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat.frontends.values import Context, Tensor, dtype_name
from eqsat.frontends.views import Edges, padded, reshaped
from eqsat.frontends.windows import contract
from eqsat.model.affine import Affine, affine, dim


@dataclass
class _Loops:
    """Loops so far, the result dims' loops, and what indexes each operand dim.

    A split dim has two indices.
    """

    sizes: list[int] = field(default_factory=list)
    result: dict[int, Affine] = field(default_factory=dict)
    image: dict[int, list[Affine]] = field(default_factory=dict)
    kernel: dict[int, list[Affine]] = field(default_factory=dict)

    def loop(self, extent: int) -> Affine:
        """A further loop."""
        self.sizes.append(extent)
        return dim(len(self.sizes) - 1)

    def loop_above_one(self, extent: int) -> Affine:
        """A further loop; none, and index 0, for an extent of 1."""
        return affine([]) if extent == 1 else self.loop(extent)


def conv_general_dilated(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    """Any layout, stride, dilation, padding and grouping."""
    p, dtype = eqn.params, dtype_name(eqn.outvars[0].aval.dtype)
    if dtype is None:
        return None
    x, kernel = padded(ctx, xs[0], _edges(p), 0), xs[1]
    shape = tuple(int(d) for d in eqn.outvars[0].aval.shape)
    nest = _Loops()
    group = _add_result(nest, p, shape)
    rank = len(nest.sizes)
    _add_channels(nest, p, kernel.shape, group)
    for j in range(len(shape) - 2):
        _add_window(nest, p, j, kernel.shape)
    operands = [_operand(ctx, x, nest.image, p), _operand(ctx, kernel, nest.kernel, p)]
    found = contract(ctx, nest.sizes, rank, operands, dtype, p["precision"])
    return found and [reshaped(ctx, found[0], shape)]


def _edges(p: Any) -> list[Edges]:
    spec = p["dimension_numbers"].lhs_spec
    edges: list[Edges] = [(0, 0, 0)] * len(spec)
    for d, (low, high), dilation in zip(spec[2:], p["padding"], p["lhs_dilation"], strict=True):
        edges[d] = (int(low), int(high), int(dilation) - 1)
    return edges


def _groups(p: Any) -> int:
    return int(p["feature_group_count"]) * int(p["batch_group_count"])  # one of them is 1


def _add_result(nest: _Loops, p: Any, shape: tuple[int, ...]) -> Affine:
    """Loops of the result's dims, its channels as groups and channels of each.

    Returns the index of the group.
    """
    groups, channels, group = _groups(p), p["dimension_numbers"].out_spec[1], affine([])
    for d, extent in enumerate(shape):
        if d == channels and groups > 1:
            group = nest.loop(groups)
            nest.result[d] = nest.loop_above_one(extent // groups)
        else:
            nest.result[d] = nest.loop(extent)
    return group


def _add_channels(nest: _Loops, p: Any, kernel: tuple[int, ...], group: Affine) -> None:
    """Everything that is no window: images, channels and filters."""
    spec, grouped = p["dimension_numbers"], _groups(p) > 1
    extent = kernel[spec.rhs_spec[1]]
    channel = nest.loop_above_one(extent) if grouped else nest.loop(extent)
    split = [group] if grouped else []
    images, channels = spec.lhs_spec[:2]
    nest.image[images] = [nest.result[spec.out_spec[0]]]
    nest.image[channels] = [channel]
    grouped_dim = channels if p["feature_group_count"] > 1 else images
    nest.image[grouped_dim] = split + nest.image[grouped_dim]
    nest.kernel[spec.rhs_spec[0]] = [*split, nest.result[spec.out_spec[1]]]
    nest.kernel[spec.rhs_spec[1]] = [channel]


def _add_window(nest: _Loops, p: Any, j: int, kernel: tuple[int, ...]) -> None:
    """Spatial dim j: stride * position + dilation * offset; no loop for a window of 1."""
    spec = p["dimension_numbers"]
    offset = nest.loop_above_one(kernel[spec.rhs_spec[2 + j]])
    ((position, _),) = nest.result[spec.out_spec[2 + j]].terms
    inside = [(d, int(p["rhs_dilation"][j])) for d, _ in offset.terms]
    nest.image[spec.lhs_spec[2 + j]] = [affine([(position, int(p["window_strides"][j])), *inside])]
    nest.kernel[spec.rhs_spec[2 + j]] = [offset]


def _operand(
    ctx: Context, x: Tensor, index: dict[int, list[Affine]], p: Any
) -> tuple[Tensor, list[Affine]]:
    """The operand with its split dims as two, and what indexes each of its dims."""
    groups, shape, flat = _groups(p), [], []
    for d, extent in enumerate(x.shape):
        split = len(index[d]) == 2 and extent > groups
        shape += [groups, extent // groups] if split else [extent]
        flat += index[d] if split else index[d][:1]
    return reshaped(ctx, x, tuple(shape)), flat
