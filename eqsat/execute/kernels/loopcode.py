"""Loops and branches whose bodies are kernels → LLVM IR that runs all of their steps.

    ptr @loop(ptr frame, ptr pointers, ptr scratch)

The pointers are those of operands, then of results; what comes back is an error of XLA's, or null.
A body is calls of such functions, those of its kernels among them. Slices are read and written
where they lie in their stacks. A state is where it was made: the next step gets its address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from eqsat.model.control import COND, SCAN

ONCE = "once"  # a body that runs once, of constants alone: a program


@dataclass(frozen=True)
class StepCall:
    """callee: a function as above; buffers: what it reads and what it writes, by node."""

    callee: str
    buffers: tuple[int, ...]


@dataclass(frozen=True)
class LoopBody:
    """inputs, results: their buffers, by node. sizes: bytes of the results. written: by its calls.

    temporaries: buffer → offset in scratch of what of that is no result; fills: of constants, with
    their bytes and how often these are repeated. changed: inputs in whose place something is
    written: states, each its own next value.
    """

    inputs: tuple[int, ...]
    results: tuple[int, ...]
    sizes: tuple[int, ...]
    calls: tuple[StepCall, ...]
    written: tuple[int, ...]
    temporaries: tuple[tuple[int, int], ...]
    fills: tuple[tuple[int, int, bytes, int], ...]
    changed: tuple[int, ...]


@dataclass(frozen=True)
class Loop:
    """A loop as `model.control.Control`, or `ONCE`.

    homes: per state the offset in scratch of a second place for it.
    called: offset in scratch of what is the callees' own.
    """

    op: str
    consts: int
    carries: int
    length: int
    reverse: bool
    slices: tuple[int, ...]  # bytes of one, per stack that is read
    bodies: tuple[LoopBody, ...]
    homes: tuple[int, ...]
    called: int
    scratch_bytes: int

    @property
    def operands(self) -> int:
        return int(self.op == COND) + self.consts + self.carries + len(self.slices)

    @property
    def results(self) -> int:
        return len(self.bodies[-1].results)


def loop_ir(name: str, loop: Loop) -> str:
    """The definition of `@name`, and declarations of what it calls."""
    w = _LoopWriter(loop)
    w.begin()
    if loop.op == COND:
        w.branches()
    elif loop.op == ONCE:
        w.once()
    elif loop.op == SCAN:
        w.scan()
    else:
        w.while_loop()
    callees = dict.fromkeys(c.callee for b in loop.bodies for c in b.calls)
    declared = "\n".join(f"declare ptr @{c}(ptr, ptr, ptr)" for c in callees)
    return f"""{declared}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define ptr @{name}(ptr %frame, ptr %p, ptr %scratch) {{
entry:
{chr(10).join(w.lines)}
}}
"""


@dataclass
class _LoopWriter:
    loop: Loop
    lines: list[str] = field(default_factory=list)
    block: str = "entry"
    names: int = 0

    # ---- instructions ----------------------------------------------------------------------------
    def new(self, text: str) -> str:
        """A value of this instruction."""
        self.names += 1
        self.do(f"%v{self.names} = {text}")
        return f"%v{self.names}"

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def named(self) -> str:
        """A name for a block."""
        self.names += 1
        return f"b{self.names}"

    def at(self, base: str, offset: int | str) -> str:
        return self.new(f"getelementptr i8, ptr {base}, i64 {offset}") if offset != 0 else base

    def copy(self, to: str, source: str, nbytes: int | str) -> None:
        if to != source:
            self.do(
                f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {nbytes}, i1 false)"
            )

    def move(self, to: str, source: str, nbytes: int) -> None:
        """A copy, of nothing where both are one place."""
        same = self.new(f"icmp eq ptr {to}, {source}")
        self.copy(to, source, self.new(f"select i1 {same}, i64 0, i64 {nbytes}"))

    # ---- parts -----------------------------------------------------------------------------------
    def begin(self) -> None:
        """Operands, results and scratch by name; constants are written."""
        loop = self.loop
        most = max(len(c.buffers) for b in loop.bodies for c in b.calls or [StepCall("", ())])
        self.do(f"%a = alloca [{max(1, most)} x ptr], align 8")
        given = [
            self.new(f"load ptr, ptr {self.at('%p', 8 * i)}, align 8")
            for i in range(loop.operands + loop.results)
        ]
        self.operands, self.results = given[: loop.operands], given[loop.operands :]
        self.homes = [self.at("%scratch", h) for h in loop.homes]
        self.callee_scratch = self.at("%scratch", loop.called)
        self.starts = [self.start(k, loop.bodies[-1]) for k in range(loop.carries)]
        for _, offset, pattern, count in (f for b in loop.bodies for f in b.fills):
            self.fill(self.at("%scratch", offset), pattern, count)

    def start(self, state: int, body: LoopBody) -> str:
        """Where a state is in the first step; one that is written in place, in its result."""
        begin, end = self.operands[self.loop.consts + state], self.results[state]
        if body.inputs[self.loop.consts + state] not in body.changed:
            return begin
        self.move(end, begin, body.sizes[state])
        return end

    def fill(self, to: str, pattern: bytes, count: int) -> None:
        bits = 8 * len(pattern)
        value = int.from_bytes(pattern, "little")
        head, done, before = self.named(), self.named(), self.block
        self.do(f"br label %{head}")
        self.label(head)
        i = f"%i{self.names}"
        self.do(f"{i} = phi i64 [0, %{before}], [{i}.1, %{head}]")
        place = self.new(f"getelementptr i{bits}, ptr {to}, i64 {i}")
        self.do(f"store i{bits} {value}, ptr {place}, align {len(pattern)}")
        self.do(f"{i}.1 = add i64 {i}, 1")
        more = self.new(f"icmp ult i64 {i}.1, {count}")
        self.do(f"br i1 {more}, label %{head}, label %{done}")
        self.label(done)

    def body(
        self, body: LoopBody, inputs: Sequence[str], places: Sequence[tuple[int, str]]
    ) -> list[str]:
        """Run a body; where each of its results is. places: (result, where it may be written), the
        wanted ones first."""
        held = dict(zip(body.inputs, inputs, strict=True))
        for r, place in places:
            if body.results[r] in body.written:
                held.setdefault(body.results[r], place)
        for b, offset in (*body.temporaries, *(f[:2] for f in body.fills)):
            held[b] = self.at("%scratch", offset)
        for call in body.calls:
            for i, b in enumerate(call.buffers):
                self.do(f"store ptr {held[b]}, ptr {self.at('%a', 8 * i)}, align 8")
            error = self.new(
                f"call ptr @{call.callee}(ptr %frame, ptr %a, ptr {self.callee_scratch})"
            )
            self.leave_on(error)
        return [held[b] for b in body.results]

    def leave_on(self, error: str) -> None:
        fine = self.new(f"icmp eq ptr {error}, null")
        on, out = self.named(), self.named()
        self.do(f"br i1 {fine}, label %{on}, label %{out}")
        self.label(out)
        self.do(f"ret ptr {error}")
        self.label(on)

    # ---- the ops ---------------------------------------------------------------------------------
    def once(self) -> None:
        self.into_results(self.loop.bodies[0], self.operands)
        self.do("ret ptr null")

    def into_results(self, body: LoopBody, inputs: Sequence[str]) -> None:
        sources = self.body(body, inputs, list(enumerate(self.results)))
        for to, source, nbytes in zip(self.results, sources, body.sizes, strict=True):
            self.copy(to, source, nbytes)

    def branches(self) -> None:
        """The branch of the index, which is clipped."""
        bodies = self.loop.bodies
        index = self.new(f"load i32, ptr {self.operands[0]}, align 4")
        labels, end = [self.named() for _ in bodies], self.named()
        below = self.new(f"icmp slt i32 {index}, 0")
        index = self.new(f"select i1 {below}, i32 0, i32 {index}")
        cases = " ".join(f"i32 {i}, label %{k}" for i, k in enumerate(labels))
        self.do(f"switch i32 {index}, label %{labels[-1]} [{cases}]")
        for body, label in zip(bodies, labels, strict=True):
            self.label(label)
            self.into_results(body, self.operands[1:])
            self.do(f"br label %{end}")
        self.label(end)
        self.do("ret ptr null")

    def scan(self) -> None:
        loop, (body,) = self.loop, self.loop.bodies
        state = self.head()
        i = self.new(f"sub i64 {loop.length - 1}, %i") if loop.reverse else "%i"
        behind = loop.consts + loop.carries
        slices = [
            self.at(x, self.new(f"mul i64 {i}, {n}"))
            for x, n in zip(self.operands[behind:], loop.slices, strict=True)
        ]
        stacks = [
            self.at(x, self.new(f"mul i64 {i}, {n}"))
            for x, n in zip(self.results[loop.carries :], body.sizes[loop.carries :], strict=True)
        ]
        left = self.new(f"sub i64 {loop.length}, %i")
        homes = self.turning(left)  # of the last step, the results
        places = [*enumerate(stacks, loop.carries), *enumerate(homes)]
        inputs = [*self.operands[: loop.consts], *state, *slices]
        sources = self.body(body, inputs, places)
        for to, source, n in zip(
            stacks, sources[loop.carries :], body.sizes[loop.carries :], strict=True
        ):
            self.copy(to, source, n)
        following = self.following(sources, state, homes)
        count = self.new("add i64 %i, 1")
        more = self.new(f"icmp ult i64 {count}, {loop.length}")
        self.back(count, following, f"br i1 {more}, label %step, label %done")
        self.end(following)

    def while_loop(self) -> None:
        loop, (condition, body) = self.loop, self.loop.bodies
        state = self.head()
        inputs = [*self.operands[: loop.consts], *state]
        (flag,) = self.body(condition, inputs, [])
        byte = self.new(f"load i8, ptr {flag}, align 1")
        more, on = self.new(f"icmp ne i8 {byte}, 0"), self.named()
        self.do(f"br i1 {more}, label %{on}, label %done")
        self.label(on)
        homes = self.turning("%i")
        following = self.following(self.body(body, inputs, list(enumerate(homes))), state, homes)
        self.back(self.new("add i64 %i, 1"), following, "br label %step")
        self.end(state)

    def head(self) -> list[str]:
        """Begin a step, `%i`; where the states are."""
        before = self.block
        self.do("br label %step")
        self.label("step")
        self.phis, self.entered = len(self.lines), before
        self.lines += [""] * (1 + self.loop.carries)
        return [f"%c{k}" for k in range(self.loop.carries)]

    def turning(self, number: str) -> list[str]:
        """Per state where this step may write it: in results where the number is odd, else in
        scratch; never where the step before has."""
        odd = self.new(f"trunc i64 {number} to i1")
        pairs = zip(self.results, self.homes, strict=False)
        return [self.new(f"select i1 {odd}, ptr {r}, ptr {h}") for r, h in pairs]

    def following(
        self, sources: Sequence[str], state: Sequence[str], homes: Sequence[str]
    ) -> list[str]:
        """Where the next step finds its states. One that another state was is copied, as that may
        be written again in the next step."""
        body = self.loop.bodies[-1]
        moved = list(sources[: self.loop.carries])
        for k, source in enumerate(moved):
            if source in state and source != state[k]:
                self.copy(homes[k], source, body.sizes[k])
                moved[k] = homes[k]
        return moved

    def back(self, count: str, following: Sequence[str], branch: str) -> None:
        """To the next step, if there is one: its number, and where it finds its states."""
        begin = ["0", *self.starts]
        names = ["i64 %i", *(f"ptr %c{k}" for k in range(len(following)))]
        for i, (name, b, a) in enumerate(zip(names, begin, [count, *following], strict=True)):
            kind, register = name.split()
            values = f"[{b}, %{self.entered}], [{a}, %{self.block}]"
            self.lines[self.phis + i] = f"  {register} = phi {kind} {values}"
        self.do(branch)
        self.label("done")

    def end(self, states: Sequence[str]) -> None:
        """The last states into their results."""
        sizes = self.loop.bodies[-1].sizes
        for to, source, n in zip(self.results, states, sizes, strict=False):
            self.move(to, source, n)
        self.do("ret ptr null")
