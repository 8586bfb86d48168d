"""Target: one machine – memory, rates, tiles, what may fuse, and what is legal.

Its compiler may do more with temporaries behind the search, as the file says (`Placing`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from eqsat.model.devices import Link
from eqsat.model.dispatch import Kernels, Machine
from eqsat.model.files import restored
from eqsat.model.mesh import AxisLink, Mesh
from eqsat.model.oracle import parse_oracle
from eqsat.model.pipelines import Condition, Padding, Pipeline, RowPadding, Units
from eqsat.model.tensor import NONE


@dataclass(frozen=True)
class CompilerPlacing:
    """scratchpad_bytes: of a memory beside the main one in which temporaries are kept as long as
    all that dispatches touch fits. in_place: a result may lie where an operand lay that is read
    element by element, by it and by nothing later."""

    scratchpad_bytes: int = 0
    in_place: bool = False


# how the loops of a producer relate to those of its consumer inside a dispatch
INDEX_RELATIONS = ("identity", "permutation", "any")
# where packed weights come from: a file that has them so; originals that are dropped as they are
# packed; originals that the caller holds all the time
STORED, DROPPED, HELD = "stored", "dropped", "held"
ORIGINALS = (STORED, DROPPED, HELD)
# kinds of ops as fusion sees them
KINDS = ("elementwise", "reduction", "contraction", "conversion", "move", "opaque")
MOVES = ("slice", "pad", "concat", "gather")
# kinds that only `Fusion.join` tells apart -> the kind that stands for them in a table without
FINER = dict.fromkeys((*MOVES, "table"), "move") | {"row_reduction": "reduction"}
FINER |= dict.fromkeys(("matvec", "convolution"), "contraction")
# of `Fusion.clone`: what widens elements beside any reader; what reads no more than it writes
DEQUANTISE, CHEAP = "dequantise", "cheap"
_FUSED = KINDS[:-1]  # an opaque op is a dispatch of its own


@dataclass(frozen=True)
class Memory:
    """One level of the memory hierarchy, nearest first."""

    name: str
    size_bytes: int
    bandwidth: float  # bytes per second
    # compilers keep temporaries here while they fit: no bytes of the outermost level on a mesh
    temporaries: bool = False


@dataclass(frozen=True)
class Tile:
    """A tile of the vocabulary: extents per role, and the share of the peak rate it reaches.

    panel: roles of extent 1 are never cut, even if an operand is; the cut dim is innermost, behind
    the dim that is summed over: [N/32, K, 32]. lhs, rhs: the innermost roles of an operand, such as
    `k·n32`; an operand in another order is not packed by this tile. swapped: the share with m and n
    exchanged; None: the same. inside: (m, n, k) of the tile whose inner loops this one cuts again:
    registers inside of a block of a cache.
    """

    # role -> extent, 1 leaves the loop alone; m, n, k of a contraction, or c, k of a convolution
    sizes: tuple[tuple[str, int], ...]
    rate: float
    when: tuple[Condition, ...] = ()
    order: tuple[str, ...] = ("m", "n", "k")  # in which the tile dims of an operand lie
    vnni: int = 1  # elements of k that lie together innermost, in a second-level pack
    panel: bool = False
    lhs: str = ""
    rhs: str = ""
    swapped: float | None = None
    inside: tuple[int, ...] = ()

    def __getitem__(self, role: str) -> int:
        return dict(self.sizes)[role]

    @property
    def extents(self) -> tuple[int, int, int]:
        """(m, n, k); a convolution cuts its filters and its input channels like n and k loops."""
        sizes = dict(self.sizes)
        if "c" in sizes:
            return 1, sizes["k"], sizes["c"]
        return sizes.get("m", 1), sizes.get("n", 1), sizes.get("k", 1)

    @property
    def is_single(self) -> bool:
        """Whether it packs plain operands, once."""
        return self.vnni == 1 and not self.inside

    @property
    def m(self) -> int:
        """Extent by which the tile cuts m loops."""
        return self.extents[0]

    @property
    def n(self) -> int:
        """Extent by which the tile cuts n loops, or filters."""
        return self.extents[1]

    @property
    def k(self) -> int:
        """Extent by which the tile cuts k loops, or input channels."""
        return self.extents[2]


@dataclass(frozen=True)
class UntiledKernel:
    """How fast the executor runs unpacked contractions of one kind.

    image, filters: the orders of dims in which a kernel for convolutions works, such as nhwc and
    hwio; the result has the order of the image. lhs, rhs: the innermost roles of the operands of a
    matmul, such as mk and kn. "" is any order.
    """

    rate: float  # share of the peak
    when: tuple[Condition, ...] = ()
    image: str = ""
    filters: str = ""
    lhs: str = ""
    rhs: str = ""


@dataclass(frozen=True)
class Fusion:
    """Which ops may share a dispatch."""

    roots: int = 1  # contractions and reductions per dispatch
    # reductions over the same rows that count as one root (softmax and layer norm have two)
    row_reductions: int = 1
    # rows that a contraction may keep in scratch of what roots inside compute for it; 0: none
    row_block: int = 0
    # reductions of what a contraction of their dispatch computes that count as one root with it
    output_reductions: int = 0
    # rows and columns of a contraction's result for which what it reads inside is computed in
    # scratch, and then again for the next ones; 0: it is computed for every multiply-add
    staged: int = 0
    pads: bool = False  # windows of a contraction may reach over its operand, where it is padded
    operands: int = 16  # operands + results per dispatch
    members: int = 4  # ops per dispatch the search enumerates in every way
    # ops of a template: a contraction or reduction, its elementwise prologue and epilogue; 0: none
    template: int = 32
    around: tuple[str, ...] = ("elementwise", "conversion")  # kinds beside the root of a template
    multi_result: bool = False  # values used outside may become extra results
    siblings: bool = False  # consumers of one operand may share a dispatch
    index_relation: str = "permutation"  # of the loops of a producer and those of its reader
    result_relation: str = "permutation"  # of an op's loops and the dims of its results
    contraction_order: str = "written"  # of answers that tie, those that keep it; any: no matter
    # producer kind -> kinds of the ops that may use it in their dispatch; closed (`missing_joins`)
    join: tuple[tuple[str, tuple[str, ...]], ...] = (
        *((kind, _FUSED) for kind in _FUSED),
        ("opaque", ()),
    )
    # kinds that are calls of a library: what they share with other ops of a dispatch is in memory
    calls: tuple[str, ...] = ()
    # what may be computed again in several dispatches: kinds, or fill, broadcast, cast, cheap,
    # dequantise, all
    clone: tuple[str, ...] = ("fill", "broadcast", "cast")
    reshaped: bool = True  # what is computed inside may be read in another shape, dims of 1 aside

    def joins(self, producer: str, consumer: str) -> bool:
        """Whether the table has this pair, or one of the kinds that stand for these."""
        rows = self.rows
        if producer == DEQUANTISE and producer not in rows:
            return True
        row = rows.get(producer, rows.get(FINER.get(producer, ""), ()))
        return consumer in row or FINER.get(consumer) in row

    @cached_property
    def rows(self) -> dict[str, tuple[str, ...]]:
        return dict(self.join)

    @cached_property
    def cloned(self) -> frozenset[str]:
        """Kinds of their own that are cloned beside a reader, by whatever map it reads them."""
        return frozenset({DEQUANTISE, *MOVES}.intersection(self.clone, self.rows))

    @property
    def missing_joins(self) -> tuple[tuple[str, str], ...]:
        """(producer, consumer) pairs that an elementwise op between them would allow.

        Such a table is not closed: an op that changes nothing, inserted on an edge, would make a
        dispatch legal. Conversions, copies and moves need no such row: what is between a producer
        and its user is looked through.
        """
        through = self.rows.get("elementwise", ())
        return tuple(
            (producer, consumer)
            for producer, consumers in self.join
            if "elementwise" in consumers
            for consumer in through
            if not self.joins(producer, consumer)
        )


@dataclass(frozen=True)
class DispatchLimits:
    """Hard limits of one dispatch in bytes; None is no limit."""

    scratch_bytes: int | None = None
    vector_bytes: int | None = None  # a member that cannot be tiled with its group is one vector


@dataclass(frozen=True)
class CompilerRefusal:
    """A dispatch that a compiler refused: its ops as `model.text.op_text` has them, sorted.

    says: in the compiler's words. source: which compiler, and of what.
    """

    ops: tuple[str, ...]
    says: str
    source: str


@dataclass(frozen=True)
class MeasuredOn:
    """The machine that a target's figures were measured on, as `eqsat.host` describes one."""

    processor: str
    features: tuple[str, ...] = ()  # of LLVM, sorted
    caches: tuple[int, ...] = ()  # bytes, nearest first
    cores: int = 1
    versions: tuple[tuple[str, str], ...] = ()  # of eqsat and of what ran the programs
    figures: int = 0  # how many were measured, if all others are scaled by them; 0: all were


@dataclass(frozen=True)
class Target:
    """A machine as the search sees it; figures carry their `source`."""

    name: str
    doc: str
    executor: str  # its name, see `model.executor`
    data_tiling: bool
    memory: tuple[Memory, ...]
    launch_ps: int
    # dtype, or dtype/precision of contractions -> operations per second; empty: compute is free
    rates: tuple[tuple[str, float], ...]
    untiled_rate: float  # share of the peak an unpacked contraction reaches
    elementwise_rate: float  # share of the peak scalar bodies reach
    tiles: tuple[tuple[str, tuple[Tile, ...]], ...]  # op kind -> vocabulary
    tiles_forced: bool = False  # no unpacked contraction may remain
    orders_forced: bool = False  # no op reads or writes in another order than its kernel's
    fusion: Fusion = field(default_factory=Fusion)
    limits: DispatchLimits = field(default_factory=DispatchLimits)
    budget: tuple[tuple[str, int], ...] = ()  # goal -> hard upper bound
    source: str = ""
    file: str = ""
    # key path of the file -> "file:line:column", for messages that name a limit
    places: tuple[tuple[str, str], ...] = ()
    # op kind -> the plugged-in strategy that computes its vocabulary
    strategies: tuple[tuple[str, str], ...] = ()
    # of buffers in memory; None: a tensor takes the bytes of its elements
    padding: Padding | None = None
    # of operands in memory that unpacked contractions read; None: any rows will do
    row_padding: RowPadding | None = None
    # dtype -> rows and lanes that one register holds: a tensor packed so lies as if it were not
    native_tiles: tuple[tuple[str, tuple[int, int]], ...] = ()
    units: Units | None = None  # of a GPU, that run workgroups
    # of a GPU, for unpacked contractions; none: only tiles of packed ones are in scratch
    pipelines: tuple[Pipeline, ...] = ()
    # op kind -> kernels for unpacked contractions, the first one that applies counts
    untiled: tuple[tuple[str, tuple[UntiledKernel, ...]], ...] = ()
    trips: int = 1  # how often a while loop is taken to run
    relayout: float | None = None  # bytes per second of a pass that changes the innermost dim
    # of a machine made of several: device -> its target, in which case all above is the first one's
    devices: tuple[tuple[str, Target], ...] = ()
    links: tuple[Link, ...] = ()
    placed: tuple[tuple[str, str], ...] = ()  # values that name a device: `x` of a leaf, `%h`
    precisions: tuple[str, ...] = ()  # that programs may ask for; empty: all
    originals: str = DROPPED  # of weights: see `ORIGINALS`
    kernels: Kernels | None = None  # what plans are made and priced from; None: there are no plans
    mesh: Mesh | None = None  # of devices like this one, over which programs are cut
    mesh_links: tuple[AxisLink, ...] = ()  # of axes that a mesh of these devices may have
    measured_on: MeasuredOn | None = None
    chosen: str = ""  # why this target, where nobody named one (`target: auto`)
    calls: int = 1  # times are of so many runs: what runs here is called so often
    # bytes between two uses of a weight, where the program is part of what runs; None: as it says
    touched_bytes: int | None = None
    spelling: str = ""  # how XLA is told contractions, as a compiler preferred: `model.compiled`
    # of temporaries, behind the search
    placing: CompilerPlacing = field(default_factory=CompilerPlacing)
    oracle: str | None = None  # the compiler that is asked about answers, see `model.oracle`
    refused: tuple[CompilerRefusal, ...] = ()  # dispatches that no answer may have

    @property
    def is_planned(self) -> bool:
        """Whether dispatches run as kernels by a plan, and cost what their plan does."""
        return self.executor == "kernels" and self.kernels is not None

    @cached_property
    def machine(self) -> Machine:
        """The machine as a planner sees it; ValueError if the target has no `kernels`."""
        k = self.kernels
        if k is None:
            raise ValueError(f"target {self.name} has no `kernels`")
        caches = tuple(m.size_bytes for m in self.memory[:-1])
        return Machine(k.vector_bytes, k.registers, caches, k.cores, k.features)

    @property
    def has_parts(self) -> bool:
        """Whether its devices are one machine that runs several programs, one after another.

        They have no links: weights are on all of them, and nothing else leads from one to another.
        """
        return bool(self.devices) and not self.links

    @property
    def default_device(self) -> str:
        return self.devices[0][0] if self.devices else ""

    def link(self, origin: str, device: str) -> Link:
        """The link between two devices; KeyError if there is none."""
        return {(k.origin, k.device): k for k in self.links}[origin, device]

    def verify_devices(self) -> None:
        """ValueError if a link or a value names a device that is not there, or twice."""
        if not self.devices:  # one of several: the links are those of the whole
            return
        devices, pairs = dict(self.devices), [(k.origin, k.device) for k in self.links]
        if len(devices) < len(self.devices) or len(set(pairs)) < len(pairs):
            raise ValueError("a device or a link is named twice")
        if not {*(d for p in pairs for d in p), *dict(self.placed).values()} <= devices.keys():
            raise ValueError("a link or a value names a device that is not there")
        for _, target in self.devices:
            target.verify()

    @property
    def is_layered(self) -> bool:
        """Whether tiles lie inside of others."""
        parts = (self, *(t for _, t in self.devices))
        return any(t.inside for part in parts for _, tiles in part.tiles for t in tiles)

    def vocabulary(self, kind: str) -> tuple[Tile, ...]:
        return dict(self.tiles).get(kind, ()) if self.data_tiling else ()

    def untiled_kernels(self, kind: str) -> tuple[UntiledKernel, ...]:
        """The kernels of unpacked contractions of an op kind; none: all run at `untiled_rate`."""
        if self.devices:
            return tuple(dict.fromkeys(k for _, t in self.devices for k in t.untiled_kernels(kind)))
        return dict(self.untiled).get(kind, ())

    def strategy(self, kind: str) -> str:
        """The name of the strategy for an op kind; "" if its vocabulary is a list."""
        return dict(self.strategies).get(kind, "") if self.data_tiling else ""

    def rate(self, dtype: str, precision: str = NONE) -> float | None:
        """Operations per second for an element type; None if compute is free here.

        precision: of a contraction; one without a rate of its own has that of the type.
        """
        if not self.rates:
            return None
        rates = dict(self.rates)
        rate = rates.get(f"{dtype}/{precision}", rates.get(dtype))
        if rate is None:
            rate = min([r for key, r in self.rates if "/" not in key] or rates.values())
        return rate

    def place(self, path: str) -> str:
        """The place of a key in the target's file, for messages."""
        return dict(self.places).get(path, self.file or self.name)

    def to_text(self) -> str:
        """Memory, rates, tiles and legality, a line each."""
        lines = [f"target {self.name}: {self.doc}"]
        lines += [
            f"  memory {m.name}: {m.size_bytes} bytes, {m.bandwidth:g} B/s" for m in self.memory
        ]
        lines += [f"  rate {dtype}: {rate:g} op/s" for dtype, rate in self.rates]
        lines += [f"  precisions {', '.join(self.precisions)}"] if self.precisions else []
        lines += [
            f"  {'panel' if t.panel else 'tile'} {kind} {_extents(t)}: {t.rate:g} of the peak"
            for kind, tiles in self.tiles
            for t in tiles
        ]
        lines += [f"  a while loop: {self.trips} steps"] if self.trips != 1 else []
        lines += [f"  tiles of {kind}: strategy {name}" for kind, name in self.strategies]
        lines += [
            f"  untiled {kind} {k.image or k.rhs or 'in any order'}: {k.rate:g} of the peak"
            for kind, kernels in self.untiled
            for k in kernels
        ]
        lines += [f"  relayout: {self.relayout:g} B/s"] if self.relayout else []
        lines += [f"  kernels: {self.kernels}"] if self.kernels else []
        lines += [f"  {self.fusion}", f"  {self.limits}"]
        lines += [f"  {p.to_text()}" for p in self.pipelines]
        lines += [f"  {self.padding.to_text()}"] if self.padding else []
        lines += [f"  {self.row_padding.to_text()}"] if self.row_padding else []
        lines += [f"  native tile {d}: {r}x{c}" for d, (r, c) in self.native_tiles]
        lines += [f"  {self.units.to_text()}"] if self.units else []
        lines += [f"  budget {goal}: {bound}" for goal, bound in self.budget]
        lines += [f"  refused {' and '.join(r.ops)}: {r.says}" for r in self.refused]
        lines += [f"  device {name}: {t.name}" for name, t in self.devices]
        lines += [
            f"  mesh axis {a.name}: {a.devices} devices, {a.bandwidth:g} B/s, hop {a.latency_ps} ps"
            for a in (self.mesh.axes if self.mesh else ())
        ]
        lines += [
            f"  link {k.origin} to {k.device}: {k.bandwidth:g} B/s, {k.latency_ps} ps"
            for k in self.links
        ]
        return "\n".join([*lines, f"  source: {self.source}"]) + "\n"

    __str__ = to_text

    def to_json(self) -> dict[str, Any]:
        return {"format": 1} | asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Target:
        return restored(cls, {k: v for k, v in data.items() if k != "format"})

    def verify(self) -> None:
        """ValueError if a figure makes no sense."""
        if self.oracle is not None:
            parse_oracle(self.oracle)
        if self.originals not in ORIGINALS:
            raise ValueError(f"originals are one of {', '.join(ORIGINALS)}")
        self.verify_devices()
        if self.mesh is not None:
            self.mesh.verify()
        if not self.memory or any(m.bandwidth <= 0 or m.size_bytes <= 0 for m in self.memory):
            raise ValueError("a target needs memory levels with positive size and bandwidth")
        if self.fusion.index_relation not in INDEX_RELATIONS:
            raise ValueError(f"index_relation is one of {', '.join(INDEX_RELATIONS)}")
        if self.fusion.result_relation not in INDEX_RELATIONS:
            raise ValueError(f"result_relation is one of {', '.join(INDEX_RELATIONS)}")


def _extents(tile: Tile) -> dict[str, int]:
    return {r: s for r, s in tile.sizes if s > 1 or not tile.panel}
