"""Random attributes: one proposer per op, for types that are known on either side."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eqsat.hunt.expressions import kind_of
from eqsat.hunt.known import PADS, Surroundings
from eqsat.hunt.layouts import (
    random_pack,
    random_reshape,
    random_retype,
    random_transpose,
    random_unpack,
)
from eqsat.hunt.movements import random_concat, random_gather, random_pad, random_slice
from eqsat.hunt.nests import Misfit, Wish
from eqsat.hunt.signatures import propose_generic
from eqsat.model.attr import Attr
from eqsat.model.devices import Transfer
from eqsat.model.expr import read_literal
from eqsat.model.foreign import Custom
from eqsat.model.generic import Generic
from eqsat.model.layout import Encoding, Layout
from eqsat.model.leaves import Fill, Leaf
from eqsat.model.tensor import TensorType
from eqsat.ops.custom import sample
from eqsat.ops.registry import op_record


def fill(k: Surroundings) -> Fill:
    t = k.result or TensorType(k.element, k.any_shape())
    kind = kind_of(t.dtype)
    near = [read_literal(p) for a in k.relatives(Layout) for p in a.pads if p not in "-?"]
    value = k.rng.choice([*near, 0, *map(read_literal, PADS[kind])])
    if kind == "b":
        return Fill(bool(value), t)
    return Fill(float(value) if kind == "f" else int(value), t)


def weight(k: Surroundings) -> Leaf:
    t = k.result or TensorType(k.element, k.any_shape())
    key = f"{k.rng.getrandbits(32):08x}"
    return Leaf(f"w{key[:3]}", t, key=key)


def encoding(k: Surroundings) -> Encoding:
    shape = k.shape if k.shape is not None else k.source
    if shape is None:
        shape = k.any_shape(2)
    near = [e for e in k.relatives(Encoding) if e.source == shape]
    if near and k.chance(0.6):
        return k.rng.choice(near)
    return Encoding(shape, k.rng.choice(("lhs", "rhs", "result")), dtypes=(k.dtype,) * 3)


def transfer(k: Surroundings) -> Transfer:
    shape = k.shape if k.source is None else k.source
    shape = k.any_shape() if shape is None else shape
    origin = k.fixed.get("origin", k.rng.choice("ab"))
    return Transfer(shape, origin, k.fixed.get("device", f"{origin}2"))


def random_generic(k: Surroundings, index: int = 0, results: int = 1) -> Generic:
    w = Wish(k.rng, k.scale, k.operands, k.result, index, results)
    return propose_generic(w, k.relatives(Generic))


PROPOSERS: dict[str, Callable[[Surroundings], Attr]] = {
    "generic": random_generic,
    "transpose": random_transpose,
    "reshape": random_reshape,
    "pack": random_pack,
    "unpack": random_unpack,
    "retype": random_retype,
    "relax": random_retype,
    "pad": random_pad,
    "slice": random_slice,
    "concat": random_concat,
    "gather": random_gather,
    "fill": fill,
    "weight": weight,
    "set_encoding": encoding,
    "unset_encoding": encoding,
    "transfer": transfer,
}


def propose(op: str, k: Surroundings) -> Attr:
    """An attribute for `op`; Misfit if none was found."""
    known = PROPOSERS.get(op)
    return known(k) if known is not None else _custom(op, k)


def _custom(op: str, k: Surroundings) -> Attr:
    """What the sampler of an op's record proposes."""
    shape = next((s for s in (k.shape, k.source) if s is not None), None)
    rng = np.random.default_rng(k.rng.getrandbits(32))
    attr = sample(op_record(op), rng, k.any_shape() if shape is None else shape)
    near = [a for a in k.relatives(Custom) if a.op == op and k.chance(0.3)]
    for a in [*near, attr]:
        fits = a is not None and k.shape in (None, a.shape)
        if a is not None and fits and k.source in (None, a.sources[0]):
            return a
    raise Misfit
