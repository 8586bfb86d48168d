"""Nests written by hand or drawn at random, run as kernels and held against their meaning."""

from __future__ import annotations

import numpy as np
from fuzz import guarded, nestmeaning
from test_kernel_math import MACHINE

from eqsat.execute.kernels.kernel import generate
from eqsat.model.expr import arg, call, const
from eqsat.model.nest import Access, Bound, Nest, Stage, Store
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.programs import element_dtype
from eqsat.plan import rows

F32 = np.float32


def spans(nest):
    """Elements of every buffer that the nest can touch."""
    found = {}
    accesses = list(nest.accesses)
    for a in accesses:
        accesses += a.indices
        ends = a.base + sum(max(0, s * (n - 1)) for s, n in zip(a.strides, nest.sizes, strict=True))
        ends += sum(k.stride * (k.extent - 1) for k in a.lookups)
        found[a.buffer] = max(found.get(a.buffer, 0), ends + 1)
    return found


def drawn(nest, draw):
    """Flat buffers for what a nest reads."""
    size, types = spans(nest), {}
    for a in nest.accesses:
        types[a.buffer] = a.dtype
        types |= {x.buffer: x.dtype for x in a.indices}
    found = {}
    for b in nest.reads:
        dtype = types[b]
        if dtype == "bool":
            found[b] = draw.random(size[b]) < 0.5
        elif dtype.startswith(("i", "u")):
            found[b] = draw.integers(0, 100, size[b]).astype(element_dtype(dtype))
        else:
            found[b] = draw.normal(size=size[b]).astype(F32).astype(element_dtype(dtype))
    return found, size, types


def check(nest, name, machine=MACHINE, seed=0, within=2e-6, sizes=None, plan=None):
    """The kernel's results are the nest's meaning, and no byte beside is touched."""
    buffers, size, types = drawn(nest, np.random.default_rng(seed))
    size |= sizes or {}
    plan = plan or rows.plan(nest, machine)
    kernel = generate(nest, plan, machine, name)
    inputs = [buffers[b] for b in kernel.reads]
    shapes = [((size[b],), element_dtype(types[b])) for b in kernel.writes]
    held = {b: x.astype(scalar.held_dtype(types[b])) for b, x in buffers.items()}
    want = nestmeaning.evaluate(nest, held, {b: size[b] for b in nest.writes})
    found = guarded.run(kernel, machine, inputs, shapes)
    for b, got in zip(kernel.writes, found, strict=True):
        compare(got, want[b], (name, b, plan.to_text(), str(nest)), within)
    return plan


def compare(got, want, what, within):
    """Equal within a part of the largest; what no store writes, or with anything, is left out."""
    said = (
        ~np.isnan(want)
        if want.dtype.kind == "f"
        else want
        != nestmeaning.anything(
            {"b": "bool", "i": f"i{8 * want.itemsize}", "u": f"u{8 * want.itemsize}"}[
                want.dtype.kind
            ]
        )
    )
    got, want = got[said].astype(want.dtype), want[said]
    if want.dtype.kind != "f":
        assert (got == want).all(), what
        return
    finite = np.isfinite(want)
    assert (got[~finite] == want[~finite]).all(), what
    largest = max(np.abs(want[finite]).max(initial=0), 1e-30)
    error = np.abs(got[finite] - want[finite]).max(initial=0)
    assert error <= within * largest, (*what, error / largest)


# ---- nests by hand -------------------------------------------------------------------------------
def flat(sizes, loops=None):
    """Row-major strides of a tensor over these loops of a nest."""
    loops = range(len(sizes)) if loops is None else loops
    strides, step = [0] * len(sizes), 1
    for i in reversed(loops):
        strides[i] = step
        step *= sizes[i]
    return tuple(strides)


def softmax(rows_, width):
    sizes, both = (rows_, width), flat((rows_, width))
    x, y = Access(0, "f32", both), Access(9, "f32", both)
    return Nest(
        sizes,
        (
            Stage(1, (0,), arg(0), (x,), "f32", "max", (1,)),
            Stage(2, (0, 1), call("exp", call("sub", arg(0), arg(1))), (x, 0), "f32"),
            Stage(3, (0,), arg(0), (1,), "f32", "add", (1,)),
            Stage(4, (0, 1), call("div", arg(0), arg(1)), (1, 2), "f32"),
        ),
        (Store(y, 3, (0, 1)),),
    )


def layer_norm(rows_, width):
    sizes, both = (rows_, width), flat((rows_, width))
    x, scale, shift = Access(0, "f32", both), Access(1, "f32", (0, 1)), Access(2, "f32", (0, 1))
    centred = call("sub", arg(0), arg(1))
    norm = call("mul", arg(0), arg(1))
    return Nest(
        sizes,
        (
            Stage(3, (0,), arg(0), (x,), "f32", "add", (1,)),
            Stage(4, (0,), call("div", arg(0), const(float(width))), (0,), "f32"),
            Stage(5, (0, 1), centred, (x, 1), "f32"),
            Stage(6, (0,), call("mul", arg(0), arg(0)), (2,), "f32", "add", (1,)),
            Stage(
                7,
                (0,),
                call("rsqrt", call("add", call("div", arg(0), const(float(width))), const(1e-5))),
                (3,),
                "f32",
            ),
            Stage(8, (0, 1), norm, (2, 4), "f32"),
            Stage(
                10,
                (0, 1),
                call("add", call("mul", arg(0), arg(1)), arg(2)),
                (5, scale, shift),
                "f32",
            ),
        ),
        (Store(Access(9, "f32", both), 6, (0, 1)),),
    )


def moved(sizes, to, dtype="f32", body=None):
    """A transpose: the result's loops in the order `to` of the operand's."""
    source = flat(sizes)
    target = [0] * len(sizes)
    step = 1
    for i in reversed(to):
        target[i] = step
        step *= sizes[i]
    loops = tuple(range(len(sizes)))
    return Nest(
        tuple(sizes),
        (Stage(1, loops, body or arg(0), (Access(0, dtype, source),), dtype),),
        (Store(Access(9, dtype, tuple(target)), 0, loops),),
    )


def reduced(sizes, over, how="add", dtype="f32", body=None):
    kept = tuple(i for i in range(len(sizes)) if i not in over)
    return Nest(
        tuple(sizes),
        (
            Stage(
                1, kept, body or arg(0), (Access(0, dtype, flat(sizes)),), dtype, how, tuple(over)
            ),
        ),
        (Store(Access(9, dtype, flat(sizes, kept)), 0, kept),),
    )


def bounded(strides, base, extent):
    return Bound(tuple(strides), base, extent)


# ---- nests at random -----------------------------------------------------------------------------
SIZES = (1, 2, 3, 5, 7, 8, 16, 17, 20, 33, 70)
LIMIT = 6_000  # points of all loops


def random_nest(draw):
    """Elementwise stages, reductions of them over some loops, and what follows from those."""
    while True:
        sizes = tuple(int(n) for n in draw.choice(SIZES, draw.integers(1, 5)))
        if np.prod(sizes) <= LIMIT:
            break
    made = _Random(draw, sizes)
    loops = tuple(range(len(sizes)))
    first = made.elementwise(loops, [made.read(loops), made.read(loops)])
    last = first
    if draw.random() < 0.7:
        over = tuple(i for i in loops if draw.random() < 0.5) or (len(sizes) - 1,)
        rest = tuple(i for i in loops if i not in over)
        total = made.reduction(rest, over, [first, made.read(loops)])
        if draw.random() < 0.6:
            last = made.elementwise(loops, [first, total, made.read(loops)])
            if draw.random() < 0.5:
                again = made.reduction(rest, over, [last])
                last = made.elementwise(loops, [last, again])
        elif len(rest) > 1 and draw.random() < 0.6:
            last = made.reduction(rest[1:], rest[:1], [total])
        else:
            last = made.elementwise(rest, [total, made.read(rest)])
    stores = [made.store(last, 900)]
    if draw.random() < 0.3 and first != last:
        stores.append(made.store(first, 901))
    return Nest(sizes, tuple(made.stages), tuple(stores), made.bounds())


class _Random:
    def __init__(self, draw, sizes):
        self.draw, self.sizes, self.stages, self.buffers = draw, sizes, [], 0

    def strides(self, loops, gaps):
        """Some order of the loops, the innermost at one element (or now and then more)."""
        order = list(loops)
        if self.draw.random() < 0.5:
            self.draw.shuffle(order)
        strides, step = [0] * len(self.sizes), 1 + (gaps and self.draw.random() < 0.1)
        for i in reversed(order):
            strides[i] = int(step)
            step = step * self.sizes[i] + (gaps and int(self.draw.integers(0, 3)))
        return tuple(strides)

    def read(self, loops):
        loops = tuple(i for i in loops if self.draw.random() < 0.8)
        self.buffers += 1
        base = int(self.draw.integers(0, 4))
        bounds, fill = (), None
        if loops and self.draw.random() < 0.2:
            bounds, fill = (self.bound(loops),), float(self.draw.choice([0.0, 1.5]))
        return Access(self.buffers, "f32", self.strides(loops, True), base, bounds, fill)

    def bound(self, loops):
        strides = [0] * len(self.sizes)
        strides[loops[int(self.draw.integers(len(loops)))]] = int(self.draw.choice([1, 1, 2, -1]))
        extent = int(self.draw.integers(1, 1 + max(self.sizes)))
        return Bound(tuple(strides), int(self.draw.integers(-3, 4)), extent)

    def bounds(self):
        if self.draw.random() < 0.75:
            return ()
        strides = [0] * len(self.sizes)
        loop = int(self.draw.integers(len(self.sizes)))
        strides[loop] = 1
        return (Bound(tuple(strides), 0, max(1, self.sizes[loop] - 2)),)

    def body(self, count):
        body = arg(0)
        for i in range(1, count):
            body = call(str(self.draw.choice(["add", "mul", "sub", "max"])), body, arg(i))
        if self.draw.random() < 0.4:
            body = call(str(self.draw.choice(["tanh", "logistic", "abs", "erfc"])), body)
        return body

    def elementwise(self, loops, arguments):
        self.stages.append(
            Stage(
                len(self.stages), tuple(loops), self.body(len(arguments)), tuple(arguments), "f32"
            )
        )
        return len(self.stages) - 1

    def reduction(self, loops, over, arguments):
        how = str(self.draw.choice(["add", "add", "max", "min"]))
        body = self.body(len(arguments))
        self.stages.append(
            Stage(len(self.stages), tuple(loops), body, tuple(arguments), "f32", how, tuple(over))
        )
        return len(self.stages) - 1

    def store(self, stage, buffer):
        loops = self.stages[stage].loops
        access = Access(buffer, "f32", self.strides(loops, False))
        if loops and self.draw.random() < 0.15:
            access = Access(buffer, "f32", access.strides, 0, (self.bound(loops),), 0.25)
        return Store(access, stage, loops)
