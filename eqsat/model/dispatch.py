"""Dispatch, its plan and its buffers: a kernel of a schedule, how it runs, bytes at its border.

A plan is chosen from the nest and a target's `Machine` alone. The generator of kernels follows it,
and the price of a dispatch is that of its plan: `Work` counts what the kernel does, the target's
`constants` turn the counts into `Parts`. A buffer has a live range, and may be written where
another lay: whose bytes it is, and what of that makes no sense.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Self

from eqsat.model.files import JsonRecord, restored
from eqsat.model.printed import Printed
from eqsat.model.program import Program


@dataclass(frozen=True)
class Machine:
    """A core as a planner sees it: `kernels:` of a target, and its memory levels.

    caches: bytes of each level that is a core's own or shared, nearest first, without the last
    level, which holds everything.
    """

    vector_bytes: int  # of a vector register
    registers: int  # vector registers
    caches: tuple[int, ...]
    cores: int = 1
    features: tuple[str, ...] = ()  # of LLVM, such as avx512f; what kernels may use

    def lanes(self, nbytes: int = 4) -> int:
        """Elements of `nbytes` bytes in a vector."""
        return self.vector_bytes // nbytes


@dataclass(frozen=True)
class Work:
    """Counts of the work of a kernel in one call, over all of its work items.

    fma: vector multiply-adds issued, lanes of tails and stalls of short dependence chains included.
    loads: vector loads and broadcasts of the innermost loops. scalar: arithmetic of bodies, in
    additions of whole vectors (`plan.stages.cost` says what a function costs). strided:
    elements read or written one by one, as no vector lies along a unit stride. pages: rows of the
    innermost loops' vectors that lie a page (4 KiB) or more from the row before, each as often as
    it is fetched past the nearest cache: no prefetcher follows them, and their lines fall into few
    sets of a cache; rows that lie closer count as parts of one; and elements read or written one
    by one whose lines leave the caches so before the next row comes to them. tiles: register tiles
    begun. loops: innermost loops of rows begun. items: work items. copied: bytes copied to scratch.

    streams: what is fetched into the nearest cache *again*: (bytes that have to stay cached between
    two uses for it to come from there, bytes fetched). It comes from the nearest level of memory
    that holds the former. First fetches and writes, one of every byte, are not listed here: the
    price takes them from the nest's buffers.
    """

    fma: float = 0
    loads: float = 0
    scalar: float = 0
    strided: float = 0
    pages: float = 0
    tiles: float = 0
    items: int = 1
    copied: float = 0
    streams: tuple[tuple[float, float], ...] = ()
    loops: float = 0


@dataclass(frozen=True)
class Constants:
    """The time of a unit of each kind of `Work` on one core, in picoseconds.

    Loads issue beside arithmetic, so the longer of the two counts; all else adds. copy_rate:
    bytes per second, read and written. overlap: share of the shorter of compute and traffic that
    hides behind the longer. The bandwidths of memory and the cost of a launch are the target's.
    """

    fma_ps: float
    load_ps: float
    scalar_ps: float
    strided_ps: float
    page_ps: float
    tile_ps: float
    copy_rate: float
    overlap: float = 1.0
    loop_ps: float = 0.0


@dataclass(frozen=True)
class Kernels:
    """`kernels:` of a target: what a planner knows of the machine, and the plan's constants.

    xla_op_ps: the start of an op that XLA runs, where a dispatch has no plan.
    """

    vector_bytes: int
    registers: int
    features: tuple[str, ...]
    constants: Constants
    cores: int = 1
    source: str = ""  # where the constants come from, and the machine they are of
    xla_op_ps: int = 0


@dataclass(frozen=True)
class Parts(Printed):
    """The price of a dispatch: compute, traffic per memory level, relayout and launch.

    `time_ps` is the sum of the longer of compute and traffic, the part of the shorter one that does
    not hide (the constant `overlap`), relayout and launch. bound: the largest part: compute, the
    name of a memory level, relayout or launch.
    """

    time_ps: int
    compute_ps: int
    traffic_ps: tuple[tuple[str, int], ...]
    relayout_ps: int
    launch_ps: int
    peak_share: float = 0.0  # of the peak rate that the arithmetic reaches; 0: no arithmetic

    @property
    def bound(self) -> str:
        """The resource that takes longest."""
        sides = {"compute": self.compute_ps} | dict(self.traffic_ps)
        sides |= {"relayout": self.relayout_ps, "launch": self.launch_ps}
        return max(sides, key=lambda k: sides[k])

    @property
    def bound_text(self) -> str:
        """`compute-bound at 92 % of peak`."""
        share = f" at {100 * self.peak_share:.0f} % of peak" if self.peak_share else ""
        return f"{self.bound}-bound{share}"

    def to_text(self) -> str:
        """Every part in microseconds."""
        sides = {"compute": self.compute_ps} | dict(self.traffic_ps)
        sides |= {"relayout": self.relayout_ps, "launch": self.launch_ps}
        return ", ".join(f"{name} {ps / 1e6:.3f} us" for name, ps in sides.items() if ps)

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"traffic_ps": dict(self.traffic_ps), "bound": self.bound}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Parts:
        return restored(cls, {k: v for k, v in data.items() if k != "bound"})


@dataclass(frozen=True)
class Plan:
    """Base of plans. kind: which generator takes it.

    Subclasses are frozen dataclasses whose fields are numbers, texts, such records or named tuples,
    and (nested) tuples of them; they are known by their kind once their module is imported.
    """

    kind: ClassVar[str] = ""
    items: int = 1  # work items that may run on different cores
    scratch_bytes: int = 0  # of one core
    work: Work = field(default_factory=Work)

    def __init_subclass__(cls) -> None:
        _KINDS[cls.kind] = cls

    def changed(self, **fields: Any) -> Self:
        """The plan with other fields: `dataclasses.replace`, which is slow for so many."""
        plan = object.__new__(type(self))
        vars(plan).update(vars(self), **fields)
        return plan

    def to_text(self) -> str:
        """One line, in the field's words: vector and row loop, register tile, blocks, scratch."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Plan:
        """The plan of a kind; ValueError if the kind is unknown."""
        if data["kind"] not in _KINDS:
            raise ValueError(f"no plan of the kind `{data['kind']}`")
        return restored(_KINDS[data["kind"]], {k: v for k, v in data.items() if k != "kind"})


_KINDS: dict[str, type[Plan]] = {}


@dataclass(frozen=True)
class Dispatch(JsonRecord):
    """One kernel: nodes of the schedule's program computed together.

    A node may appear in several dispatches: it is then computed again in each. name: that of the
    first value it writes, so it occurs once; runs saved without names have its `ops` there.
    """

    members: tuple[int, ...]
    reads: tuple[int, ...]  # nodes whose buffers it reads
    writes: tuple[int, ...]  # nodes whose values it writes to buffers
    time_ps: int
    step: int
    ops: str  # what it computes, e.g. "contraction+elementwise"
    device: str = ""  # that runs it, if there are several
    pipeline: str = ""  # of the target, that computes its unpacked contractions
    plan: Plan | None = None  # of the kernel it runs as; None: as ops of XLA
    parts: Parts | None = None  # of the time of that plan
    no_plan: str = ""  # why a target with kernels has none for it
    name: str = field(default="", compare=False)

    @property
    def layouts_tie(self) -> bool:
        """Whether no layout changes its time: compute hides traffic, and nothing is converted."""
        if self.plan is None or self.parts is None or self.parts.bound != "compute":
            return False
        work = self.plan.work
        return not (work.strided or work.pages or work.copied or self.parts.relayout_ps)

    @property
    def price_lines(self) -> list[str]:
        """Its plan and the parts of its time, or why a target with kernels has none."""
        if self.plan is None or self.parts is None:
            return [f"no plan: {self.no_plan}"] if self.no_plan else []
        return [f"plan {self.plan.to_text()}", f"{self.bound_text}: {self.parts}"]

    @property
    def bound_text(self) -> str:
        """`compute-bound at 92 % of peak; layouts tie`; "" where it has no plan."""
        if self.parts is None:
            return ""
        return self.parts.bound_text + ("; layouts tie" if self.layouts_tie else "")

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Dispatch:
        return super().from_json({"ops": data["name"], **data})


@dataclass(frozen=True)
class Buffer:
    """Bytes at a dispatch border: live from step `first` to step `last`, both included.

    role: argument | result | temporary | weight. Arguments, results and weights are live all the
    time, as their owner is the caller. A temporary lies at `offset` in one arena, in bytes; None
    for all others, and where nothing was placed.
    """

    node: int
    nbytes: int
    role: str
    first: int
    last: int
    offset: int | None = None


Pairs = Sequence[tuple[int, int]]  # (written, operand): one buffer has both


def in_place_fault(program: Program, dispatches: Sequence[Dispatch], pairs: Pairs) -> str:
    """An overwritten buffer is read by its writer, by none after that, and is no result."""
    results = {program.behind_views(r) for r in program.results}
    there = {*program.inputs, *(w for d in dispatches for w in d.writes)}
    if any(len({p[side] for p in pairs}) < len(pairs) for side in (0, 1)):
        return "a value is written over twice, or in place of two"
    for new, old in pairs:
        same = program.nodes[old].type == program.nodes[new].type
        if not same or old in results or old not in there:
            return f"%{new} is no value in place of %{old}"
        writers = [d for d in dispatches if new in d.writes]
        late = [d.step for d in dispatches if old in d.reads and new not in d.writes]
        if len(writers) != 1 or any(step >= writers[0].step for step in late):
            return f"%{old} is read after %{new} was written in its place"
        if old not in writers[0].reads:
            return f"%{new} is written in place of %{old}, which is not read for it"
    return ""


def owners_of(program: Program, pairs: Pairs) -> dict[int, int]:
    """Per value that lies in bytes that others have, too, whose these are: an argument's, else
    those of a result, else of the first of them."""
    before, owners = dict(pairs), dict[int, int]()
    results = {program.behind_views(r) for r in program.results}
    for last in before.keys() - {old for _, old in pairs}:
        chain = [last]
        while chain[-1] in before:
            chain.append(before[chain[-1]])
        first = chain[-1]
        is_result = first not in program.inputs and last in results
        owners |= dict.fromkeys(chain, last if is_result else first)
    return owners
