"""Builder of LLVM IR with structured loops, guards and vector accesses, over llvmlite's IRBuilder.

Arithmetic of indices is in `kinds`. Loops carry values as phis. Loads and stores state their
alignment and never touch a lane that their mask leaves out; elements may lie apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as ll

from eqsat.execute.kernels.kinds import (
    I1,
    I32,
    I64,
    POINTER,
    Index,
    IndexCode,
    Value,
    lanes_of,
    mangled,
    nbytes,
    vector,
)
from eqsat.plan.stages import NEAR


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
        result = other
        for i in range(count):
            x = code.builder.load(code.at(p, kind, i * stride), typ=kind, align=nbytes(kind))
            result = code.builder.insert_element(result, x, ll.Constant(I32, i))
        return result
    name = f"llvm.masked.gather.{mangled(wide)}.v{lanes}p0"
    arguments = [_addresses(code, p, kind, stride, lanes), code.mask(mask, lanes), other]
    return _aligned_call(code, name, wide, arguments, 0, nbytes(kind))


def _near_load(code: Code, p: Value, wide: Any, stride: int, mask: Mask, other: Value) -> Value:
    """Lanes out of `stride` vectors, which read elements of the mask's lanes and between these."""
    lanes, result = wide.count, other
    if mask is not None and not isinstance(mask, int):
        mask = code.mask(mask, lanes)
    places = [divmod(i * stride, lanes) for i in range(lanes)]
    for k in range(stride):
        part_mask = _wide_mask(code, lanes, stride, k, mask)
        if part_mask == 0 and isinstance(part_mask, int):
            break
        more = code.load(code.at(p, wide.element, k * lanes), wide.element, lanes, mask=part_mask)
        order = [lanes + at if v == k else i for i, (v, at) in enumerate(places)]
        result = _shuffled(code, result, more, order)
    if mask is None:
        return result
    return code.select(code.mask(mask, lanes), result, other)


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
    function = code.module.globals.get(name)
    if function is None:
        kinds = [a.type for a in arguments]
        function = ll.Function(code.module, ll.FunctionType(result, kinds), name)
    call = code.builder.call(function, list(arguments), arg_attrs={which: ()})
    call.arg_attributes[which].align = align
    return call


Mask = Any  # None: all lanes; int: so many first lanes; else a vector of i1


def new_module(name: str) -> Any:
    module = ll.Module(name)
    module.triple = ""  # whoever compiles says for which machine
    return module


@dataclass
class Code(IndexCode):
    """A function being written; `builder` is llvmlite's, for instructions not wrapped here."""

    @classmethod
    def begin(
        cls, module: Any, name: str, kinds: Sequence[Any], *, internal: bool = False
    ) -> tuple[Code, tuple[Value, ...]]:
        """Start `define void @name(kinds…)`; the code and the function's arguments.

        internal: a part of a kernel that only it calls, never inlined, so that registers are
        allocated to each tile on its own.
        """
        function = ll.Function(module, ll.FunctionType(ll.VoidType(), list(kinds)), name)
        if internal:
            function.linkage = "internal"
            function.attributes.add("noinline")
        function.attributes.add("nounwind")
        builder = ll.IRBuilder(function.append_basic_block("entry"))
        return cls(module, function, builder), tuple(function.args)

    def end(self) -> None:
        self.builder.ret_void()

    def both(self, a: Any, b: Any) -> Any:
        """Conjunction of conditions, each a bool, an i1 or a mask of lanes; True counts as none."""
        if isinstance(a, bool):
            return b if a else False
        if isinstance(b, bool):
            return a if b else False
        lanes = max(lanes_of(a), lanes_of(b))
        return self.builder.and_(self.broadcast(a, lanes), self.broadcast(b, lanes))

    def within(self, condition: Any, mask: Mask, lanes: int) -> Any:
        """Where a condition holds in the mask."""
        return self.both(condition, True if mask is None else self.mask(mask, lanes))

    # ---- control flow ----------------------------------------------------------------------------
    def loop(
        self,
        start: Index,
        stop: Index,
        step: int,
        carried: Sequence[Value],
        body: Callable[..., Sequence[Value] | None],
    ) -> list[Value]:
        """`for i in range(start, stop, step): carried = body(i, *carried)`; carried at the end.

        One that is known to run once is no loop, one that may run not at all is guarded.
        """
        if isinstance(start, int) and isinstance(stop, int):
            if start >= stop:
                return list(carried)
            if start + step >= stop:
                return list(body(start, *carried) or ())
            return self._turns(start, stop, step, carried, body)
        return self.when(
            self.compare("<", start, stop),
            lambda: self._turns(start, stop, step, carried, body),
            lambda: carried,
        )

    def strips(self, size: Index, lanes: int, body: Callable[[Index, Mask], None]) -> None:
        """`body(i, None)` for whole vectors of `size` elements; the rest under a mask."""
        whole = self.mul(self.div(size, lanes), lanes)
        self.loop(0, whole, lanes, [], lambda i: body(i, None))
        rest = self.sub(size, whole)
        there = rest > 0 if isinstance(rest, int) else self.compare(">", rest, 0)
        self.when(there, lambda: body(whole, self.first_lanes(rest, lanes)))

    def _turns(
        self, start: Index, stop: Index, step: int, carried: Sequence[Value], body: Any
    ) -> list[Value]:
        b = self.builder
        before = b.block
        head = self.function.append_basic_block("loop")
        b.branch(head)
        b.position_at_end(head)
        i = b.phi(I64)
        phis = [b.phi(x.type) for x in carried]
        for phi, x in zip([i, *phis], [self.index(start), *carried], strict=True):
            phi.add_incoming(x, before)
        after = list(body(i, *phis) or ())
        following = b.add(i, self.index(step), flags=("nsw",))
        more = b.icmp_signed("<", following, self.index(stop))
        latch = b.block
        for phi, x in zip([i, *phis], [following, *after], strict=True):
            phi.add_incoming(x, latch)
        done = self.function.append_basic_block("done")
        b.cbranch(more, head, done)
        b.position_at_end(done)
        return after

    def when(
        self,
        condition: Any,
        then: Callable[[], Sequence[Value] | None],
        otherwise: Callable[[], Sequence[Value] | None] | None = None,
    ) -> list[Value]:
        """`then() if condition else otherwise()`: the values of the branch that is taken."""
        if isinstance(condition, bool):
            chosen = then if condition else otherwise
            return list((chosen() if chosen else None) or ())
        b = self.builder
        yes, no, join = (self.function.append_basic_block(n) for n in ("then", "else", "join"))
        b.cbranch(condition, yes, no)
        ends = []
        for block, branch in ((yes, then), (no, otherwise)):
            b.position_at_end(block)
            values = list((branch() if branch else None) or ())
            ends.append((values, b.block))
            b.branch(join)
        b.position_at_end(join)
        merged = []
        for pair in zip(*(values for values, _ in ends), strict=True):
            phi = b.phi(pair[0].type)
            for x, (_, block) in zip(pair, ends, strict=True):
                phi.add_incoming(x, block)
            merged.append(phi)
        return merged

    # ---- values ----------------------------------------------------------------------------------
    def constant(self, kind: Any, value: float, lanes: int = 1) -> Value:
        """A scalar of an element type in every lane; floats are rounded to f32 for f32."""
        one = ll.Constant(kind, value)
        return one if lanes == 1 else ll.Constant(vector(kind, lanes), [one] * lanes)

    def zero(self, kind: Any, lanes: int = 1) -> Value:
        return ll.Constant(vector(kind, lanes), None if lanes > 1 else 0)

    def broadcast(self, x: Value, lanes: int) -> Value:
        """A scalar in every lane; a vector stays as it is."""
        if lanes == 1 or lanes_of(x) > 1:
            return x
        if isinstance(x, ll.Constant):
            return ll.Constant(vector(x.type, lanes), [x] * lanes)
        undefined = ll.Constant(vector(x.type, lanes), ll.Undefined)
        first = self.builder.insert_element(undefined, x, ll.Constant(I32, 0))
        return self.builder.shuffle_vector(
            first, undefined, ll.Constant(vector(I32, lanes), [0] * lanes)
        )

    def lane(self, x: Value, i: int) -> Value:
        return self.builder.extract_element(x, ll.Constant(I32, i)) if lanes_of(x) > 1 else x

    def iota(self, lanes: int) -> Value:
        """0 … lanes - 1 as i64."""
        return ll.Constant(vector(I64, lanes), list(range(lanes)))

    def select(self, condition: Any, a: Value, b: Value) -> Value:
        """a where the condition holds, else b; the condition is a bool, an i1 or a mask."""
        if isinstance(condition, bool):
            return a if condition else b
        return self.builder.select(condition, a, b)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a · b + c, rounded once."""
        return self.intrinsic("llvm.fma", a, b, c)

    def sum_of_lanes(self, x: Value) -> Value:
        """All lanes added, in a tree."""
        if lanes_of(x) == 1:
            return x
        kind = x.type.element
        name = f"llvm.vector.reduce.fadd.{mangled(x.type)}"
        function = self.module.globals.get(name)
        if function is None:
            function = ll.Function(self.module, ll.FunctionType(kind, [kind, x.type]), name)
        start = ll.Constant(kind, -0.0)
        return self.builder.call(function, [start, x], fastmath=("reassoc",))

    def any_lane(self, mask: Value) -> Value:
        """Whether the mask has a lane, as i1."""
        if lanes_of(mask) == 1:
            return mask
        return self.intrinsic("llvm.vector.reduce.or", mask, result=I1)

    def transposed(self, rows: Sequence[Value]) -> list[Value]:
        """The columns of a square of vectors: as many as they have lanes, a power of two.

        Halves of pairs are exchanged between rows 1, 2, 4 … apart, by shuffles of two vectors.
        """
        columns, n = list(rows), len(rows)
        step = 1
        while step < n:
            low = [i if not i & step else i - step + n for i in range(n)]
            high = [i + step if not i & step else i + n for i in range(n)]
            masks = [ll.Constant(vector(I32, n), m) for m in (low, high)]
            for i in (i for i in range(n) if not i & step):
                pair = columns[i], columns[i + step]
                columns[i], columns[i + step] = (
                    self.builder.shuffle_vector(*pair, m) for m in masks
                )
            step *= 2
        return columns

    # ---- memory ----------------------------------------------------------------------------------
    def at(self, pointer: Value, kind: Any, offset: Index) -> Value:
        """The address `offset` elements of `kind` on."""
        if isinstance(offset, int) and offset == 0:
            return pointer
        return self.builder.gep(pointer, [self.index(offset)], source_etype=kind)

    def entries(self, table: Sequence[int], *at: Index) -> list[Value]:
        """Entries of a table of constants, which is part of the code."""
        kind = ll.ArrayType(I32, len(table))
        name = self.module.get_unique_name(f"{self.function.name}.table")
        numbers = ll.GlobalVariable(self.module, kind, name)
        numbers.linkage, numbers.global_constant = "internal", True
        numbers.initializer = ll.Constant(kind, list(table))
        places = (self.at(numbers, I32, i) for i in at)
        return [self.builder.zext(self.builder.load(p, typ=I32, align=4), I64) for p in places]

    def opaque(self, pointer: Value) -> Value:
        """Address that LLVM does not know to be the same: loads through it are made again."""
        kind = ll.FunctionType(POINTER, [POINTER])
        return self.builder.call(ll.InlineAsm(kind, "", "=r,0", side_effect=True), [pointer])

    def shifted(self, first: Value, second: Value, by: int) -> Value:
        """16 elements of 32 that two vectors of f32 hold, from the one numbered `by` on.

        Written as the instruction: LLVM would make a load of what it knows to have been loaded, or
        a permutation that takes its order from another register.
        """
        kind = ll.FunctionType(first.type, [first.type, first.type])
        text = f"valignd $${by}, $1, $2, $0"
        return self.builder.call(ll.InlineAsm(kind, text, "=v,v,v"), [first, second])

    def first_lanes(self, count: Index, lanes: int) -> Mask:
        """The mask of the first `count` lanes: None where all are, an int where it is known."""
        if isinstance(count, int):
            return None if count >= lanes else max(count, 0)
        return self.builder.icmp_signed("<", self.iota(lanes), self.broadcast(count, lanes))

    def mask(self, mask: Mask, lanes: int) -> Value:
        """A mask as a vector of i1."""
        if mask is None or isinstance(mask, int):
            on = lanes if mask is None else mask
            return ll.Constant(vector(I1, lanes), [int(i < on) for i in range(lanes)])
        return self.broadcast(mask, lanes)

    def load(
        self,
        pointer: Value,
        kind: Any,
        lanes: int = 1,
        stride: int = 1,
        mask: Mask = None,
        fill: Value = None,
    ) -> Value:
        """Elements `stride` apart; lanes that the mask leaves out are `fill` (zero).

        A stride of 0 reads one element into every lane; then the mask may only be None, since a
        lane that is not read has no value of its own.
        """
        b, align = self.builder, nbytes(kind)
        if lanes == 1 and not isinstance(mask, (int, type(None))):  # one lane behind a condition
            other = self.zero(kind) if fill is None else fill
            return self.when(
                mask, lambda: [b.load(pointer, typ=kind, align=align)], lambda: [other]
            )[0]
        if mask == 0 and isinstance(mask, int):
            return self.zero(kind, lanes) if fill is None else self.broadcast(fill, lanes)
        if lanes == 1 or stride == 0:
            return self.broadcast(b.load(pointer, typ=kind, align=align), lanes)
        wide = vector(kind, lanes)
        if stride == 1 and mask is None:
            return b.load(pointer, typ=wide, align=align)
        other = self.zero(kind, lanes) if fill is None else self.broadcast(fill, lanes)
        return masked_load(self, pointer, wide, stride, mask, other)

    def store(
        self, value: Value, pointer: Value, kind: Any, stride: int = 1, mask: Mask = None
    ) -> None:
        """Write the lanes of a value `stride` elements apart, those of the mask alone."""
        b, align, lanes = self.builder, nbytes(kind), lanes_of(value)
        if lanes == 1:
            if mask is None or (isinstance(mask, int) and mask > 0):
                b.store(value, pointer, align=align)
            elif not isinstance(mask, int):
                self.when(mask, lambda: b.store(value, pointer, align=align) and None)
        elif stride == 1 and mask is None:
            b.store(value, pointer, align=align)
        elif isinstance(mask, int) and mask == 1:
            # LLVM 22 writes too many bytes for a mask of one lane behind a truncation
            b.store(self.lane(value, 0), pointer, align=align)
        else:
            masked_store(self, value, pointer, stride, mask)

    def prefetch(self, pointer: Value, write: bool = False, level: int = 1) -> None:
        """Ask for the cache line of an address into this level and those behind it."""
        constants = [ll.Constant(I32, x) for x in (int(write), 4 - level, 1)]
        self.call_external("llvm.prefetch.p0", ll.VoidType(), [pointer, *constants])
