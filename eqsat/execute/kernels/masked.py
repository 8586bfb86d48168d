"""Vector loads and stores under a mask, and of elements that lie apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import llvmlite.ir as ll

from eqsat.execute.kernels.kinds import I32, I64, POINTER, Value, mangled, nbytes, vector
from eqsat.plan.cores import NEAR

if TYPE_CHECKING:
    from eqsat.execute.kernels.ir import Code, Mask


def masked_load(code: Code, p: Value, wide: Any, stride: int, mask: Mask, other: Value) -> Value:
    """Elements `stride` apart as a vector; lanes out of the mask are those of `other`."""
    kind, lanes = wide.element, wide.count
    if stride == 1:
        name = f"llvm.masked.load.{mangled(wide)}.p0"
        return _aligned_call(code, name, wide, [p, code.mask(mask, lanes), other], 0, nbytes(kind))
    is_known = mask is None or isinstance(mask, int)
    count = mask if isinstance(mask, int) else lanes
    if 1 < stride <= NEAR and lanes >= NEAR and count * stride > lanes:
        return _near_load(code, p, wide, stride, mask, other)
    if is_known:
        found = other
        for i in range(count):
            x = code.builder.load(code.at(p, kind, i * stride), typ=kind, align=nbytes(kind))
            found = code.builder.insert_element(found, x, ll.Constant(I32, i))
        return found
    name = f"llvm.masked.gather.{mangled(wide)}.v{lanes}p0"
    arguments = [_addresses(code, p, kind, stride, lanes), code.mask(mask, lanes), other]
    return _aligned_call(code, name, wide, arguments, 0, nbytes(kind))


def _near_load(code: Code, p: Value, wide: Any, stride: int, mask: Mask, other: Value) -> Value:
    """Lanes out of `stride` vectors, which read elements of the mask's lanes and between these."""
    lanes, found = wide.count, other
    if mask is not None and not isinstance(mask, int):
        mask = code.mask(mask, lanes)
    places = [divmod(i * stride, lanes) for i in range(lanes)]
    for k in range(stride):
        own = _wide_mask(code, lanes, stride, k, mask)
        if own == 0 and isinstance(own, int):
            break
        more = code.load(code.at(p, wide.element, k * lanes), wide.element, lanes, mask=own)
        order = [lanes + at if v == k else i for i, (v, at) in enumerate(places)]
        found = _shuffled(code, found, more, order)
    if mask is None:
        return found
    return code.select(code.mask(mask, lanes), found, other)


def _wide_mask(code: Code, lanes: int, stride: int, k: int, mask: Mask) -> Mask:
    """Of the k-th vector of those that hold all elements: what may be read."""
    if mask is None or isinstance(mask, int):
        count = lanes if mask is None else mask
        left = (count - 1) * stride + 1 - k * lanes
        return None if left >= lanes else max(left, 0)
    none = ll.Constant(mask.type, [0] * lanes)
    elements = (divmod(k * lanes + i, stride) for i in range(lanes))
    order = [lane if rest == 0 else lanes for lane, rest in elements]
    return _shuffled(code, mask, none, order)


def _shuffled(code: Code, a: Value, b: Value, order: Sequence[int]) -> Value:
    mask = ll.Constant(vector(I32, len(order)), list(order))
    return code.builder.shuffle_vector(a, b, mask)


def masked_store(code: Code, value: Value, p: Value, stride: int, mask: Mask) -> None:
    """Write the lanes of a vector `stride` elements apart, those of the mask alone."""
    kind, lanes = value.type.element, value.type.count
    if stride == 1:
        name = f"llvm.masked.store.{mangled(value.type)}.p0"
        where = p
    elif mask is None or isinstance(mask, int):
        for i in range(lanes if mask is None else mask):
            to = code.at(p, kind, i * stride)
            code.builder.store(code.lane(value, i), to, align=nbytes(kind))
        return
    else:
        name = f"llvm.masked.scatter.{mangled(value.type)}.v{lanes}p0"
        where = _addresses(code, p, kind, stride, lanes)
    arguments = [value, where, code.mask(mask, lanes)]
    _aligned_call(code, name, ll.VoidType(), arguments, 1, nbytes(kind))


def _addresses(code: Code, p: Value, kind: Any, stride: int, lanes: int) -> Value:
    """Of the lanes, as a vector of pointers, which llvmlite's gep cannot type."""
    start = code.broadcast(code.builder.ptrtoint(p, I64), lanes)
    step = nbytes(kind) * stride
    offsets = ll.Constant(vector(I64, lanes), [i * step for i in range(lanes)])
    return code.builder.inttoptr(code.builder.add(start, offsets), vector(POINTER, lanes))


def _aligned_call(
    code: Code, name: str, result: Any, arguments: Sequence[Value], which: int, align: int
) -> Value:
    """Call an intrinsic whose argument `which` is an address (or addresses) so aligned."""
    known = code.module.globals.get(name)
    if known is None:
        kinds = [a.type for a in arguments]
        known = ll.Function(code.module, ll.FunctionType(result, kinds), name)
    call = code.builder.call(known, list(arguments), arg_attrs={which: ()})
    call.arg_attributes[which].align = align
    return call
