"""Schema of a target file: memory, registers and units of accelerators among its parts."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from eqsat.lang.problems import Bandwidth, Interval, Rate, Record, Size, Time, coded
from eqsat.lang.tileformat import Mnk, Share, TilesRecord, UntiledRecord, When, as_list
from eqsat.model.diag import did_you_mean
from eqsat.model.executor import BUILT_IN
from eqsat.model.oracle import COMPILERS, parse_oracle
from eqsat.model.tensor import DTYPES, PRECISIONS
from eqsat.plugins import plugged_in


def _dtype(name: str) -> str:
    if name not in DTYPES:
        raise coded("E202", f"no element type named `{name}`", did_you_mean(name, DTYPES))
    return name


def _precision(name: str) -> str:
    if name not in PRECISIONS:
        raise coded("E215", f"no precision named `{name}`", did_you_mean(name, PRECISIONS))
    return name


def _rated(name: str) -> str:
    """`f32`, or `f32/high` for contractions of that precision."""
    dtype, slash, precision = name.partition("/")
    _dtype(dtype)
    if slash:
        _precision(precision)
    return name


_TYPE = {"type": "string", "description": "an element type, such as `bf16`"}
ElementType = Annotated[str, AfterValidator(_dtype), WithJsonSchema(_TYPE)]
Precision = Annotated[
    str, AfterValidator(_precision), WithJsonSchema({"type": "string", "enum": list(PRECISIONS)})
]
_RATED = {
    "type": "string",
    "description": "an element type, or one and a precision of contractions: `f32/high`",
}
Rated = Annotated[str, AfterValidator(_rated), WithJsonSchema(_RATED)]


def _figure(value: int) -> int:
    if value <= 0:
        raise coded("E201", "a figure here is more than 0")
    return value


def _power(value: Any) -> Any:
    if type(value) is not int or value < 1 or value & (value - 1):
        raise coded("E221", f"`{value}` is no power of two", "write the extent of a tile, as `8`")
    return value


Figure = Annotated[Size, AfterValidator(_figure)]
Power = Annotated[int, BeforeValidator(_power), WithJsonSchema({"type": "integer", "minimum": 1})]


class PaddingRecord(Record):
    """How a buffer's last two dims are padded."""

    rows: Power = Field(description="of the last dim but one; fewer are a power of two")
    lanes: Power = Field(description="of the last dim")
    granule: Figure = Field(default=1, description="what memory is given out by")
    narrowed: dict[Rated, ElementType] = Field(
        default={},
        description="the type in which temporaries are kept that only contractions of a type and"
        " precision read: `{f32/default: bf16}`",
    )


class RowPaddingRecord(Record):
    """Rows in memory that unpacked contractions read, which begin in any set of a cache."""

    line: Figure = Field(description="of the cache; rows are whole lines")
    sets: Power = Field(description="of the cache; no row is a multiple of all their lines")
    operands: Annotated[list[Literal["lhs", "rhs"]], Field(min_length=1)] = Field(
        description="whose rows: `[lhs]`, `[rhs]` or both"
    )


class PlacingRecord(Record):
    """What the compiler does with the temporaries of a chosen schedule."""

    scratchpad: Size = Field(
        default=0, description="beside main memory, for temporaries while all that is touched fits"
    )
    in_place: bool = Field(
        default=False, description="results may lie where operands lay that nothing reads later"
    )


def _tile(value: Any) -> Any:
    if not isinstance(value, list) or len(value) != 2:
        raise coded("E221", "a native tile has rows and lanes", "write `[8, 128]`")
    return [_power(v) for v in value]


NativeTile = Annotated[
    list[int],
    BeforeValidator(_tile),
    WithJsonSchema({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}),
]


class UnitsRecord(Record):
    """What runs workgroups, and what each of them has."""

    count: Annotated[int, Field(ge=1)] = Field(description="compute units or multiprocessors")
    scratch: Figure = Field(description="of one unit, for all its workgroups")
    subgroups: Annotated[int, Field(ge=1)] = Field(description="resident on one unit at most")
    lanes: Power = Field(default=32, description="of a subgroup")
    registers: Figure = Field(description="of one unit, for all its workgroups")
    lane: Figure = Field(description="registers of one lane at most")


def stages(value: Any) -> Any:
    """A number of stages, E221 if it is none."""
    if type(value) is not int or value < 1:
        message = f"`{value}` stages: a loop holds at least the one that it computes"
        raise coded("E221", message, "write `stages: 1`, or leave it out")
    return value


Stages = Annotated[int, BeforeValidator(stages), WithJsonSchema({"type": "integer", "minimum": 1})]


Kind = Literal["elementwise", "reduction", "contraction", "conversion", "move", "opaque"]
Row = Literal[Kind, "slice", "pad", "concat", "gather", "dequantise"]
Column = Literal[
    Kind, "slice", "pad", "concat", "gather", "table", "matvec", "convolution", "row_reduction"
]  # fmt: skip
Clone = Literal[
    "fill", "broadcast", "cast", "cheap", "dequantise", "slice", "all",
    "elementwise", "reduction", "contraction", "conversion", "move",
]  # fmt: skip


def _positive(value: float) -> float:
    if value <= 0:
        raise coded("E201", "a figure here is more than 0")
    return value


class MemoryRecord(Record):
    """One level of the memory hierarchy."""

    name: str
    size: Annotated[Size, AfterValidator(_positive)]
    bandwidth: Annotated[Bandwidth, AfterValidator(_positive)]
    temporaries: bool = Field(
        default=False,
        description="whether compilers keep temporaries here while they fit: on a mesh they take"
        " no bytes of the outermost level then",
    )


def _executor(name: str) -> str:
    executors = [*BUILT_IN, *plugged_in("executors")]
    if name not in executors:
        raise coded("E218", f"no executor named `{name}`", did_you_mean(name, executors))
    return name


def _oracle(text: str) -> str:
    try:
        return str(parse_oracle(" ".join(text.split())))
    except ValueError as error:
        compiler = text.split(maxsplit=1)[0] if text.split() else ""
        oracles = [f"{c} {d}" for c, devices in COMPILERS.items() for d in devices]
        of_compiler = [k for k in oracles if k.startswith(f"{compiler} ")] or oracles
        raise coded("E225", str(error), did_you_mean(text, of_compiler)) from None


_ORACLE = {
    "type": "string",
    "description": "the compiler that `--check-compile` asks, and for what: `libtpu v5e`",
}
OracleName = Annotated[str, AfterValidator(_oracle), WithJsonSchema(_ORACLE)]


class FusionRecord(Record):
    """Which ops may share a dispatch; a key that is left out keeps its default."""

    roots: Annotated[int, Field(ge=0)] | None = None
    row_reductions: Annotated[int, Field(ge=1)] | None = None
    row_block: Annotated[int, Field(ge=0)] | None = None
    output_reductions: Annotated[int, Field(ge=0)] | None = None
    staged: Annotated[int, Field(ge=0)] | None = None
    pads: bool | None = None
    operands: Annotated[int, Field(ge=1)] | None = None
    members: Annotated[int, Field(ge=1)] | None = None
    template: Annotated[int, Field(ge=0)] | None = None
    around: list[Literal["elementwise", "conversion", "move"]] | None = None
    multi_result: bool | None = None
    siblings: bool | None = None
    index_relation: Literal["identity", "permutation", "any"] | None = None
    result_relation: Literal["identity", "permutation", "any"] | None = None
    contraction_order: Literal["written", "any"] | None = None
    join: dict[Row, list[Column]] | None = None
    calls: list[Kind] | None = None
    clone: list[Clone] | None = None
    reshaped: bool | None = None


def _extents(value: Any) -> Any:
    extents = value if isinstance(value, list) else [value]
    if not extents or any(type(v) is not int or v < 1 for v in extents):
        raise coded("E206", "extents of tiles are whole numbers of at least 1", "write `[64, 16]`")
    return extents


_EXTENTS = {
    "anyOf": [
        {"type": "integer", "minimum": 1},
        {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 1},
    ]
}
Extents = Annotated[list[int], BeforeValidator(_extents), WithJsonSchema(_EXTENTS)]


class IntrinsicRecord(Record):
    """What one instruction of a matrix unit multiplies."""

    mnk: Mnk
    types: Annotated[
        list[Rated],
        BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
        Field(min_length=1, description="the element type that both operands have is one of these"),
    ]


class PipelineRecord(Record):
    """One way to compute unpacked contractions on a GPU."""

    m: Extents = Field(default=[1])
    n: Extents = Field(default=[1])
    k: Extents = Field(default=[1])
    cut: Literal["innermost", "any"] = Field(
        default="innermost", description="loops of a role that may be cut"
    )
    collapse: bool = Field(
        default=False, description="loops that lie together in all operands are one"
    )
    unaligned: Literal["refused", "padded", "whole"] = Field(
        default="refused", description="what becomes of a role that no extent divides"
    )
    promote: list[Literal["lhs", "rhs", "result"]] = Field(
        default=["lhs", "rhs"], description="tiles that are kept in scratch"
    )
    rate: Share | None = Field(
        default=None, description="share of the peak; left out: that of unpacked contractions"
    )
    rates: dict[Rated, Annotated[Rate, AfterValidator(_positive)]] = Field(
        default={}, description="peaks that are not those of the target"
    )
    intrinsics: list[IntrinsicRecord] = Field(
        default=[], description="of a matrix unit; none listed: any extents and types"
    )
    when: Annotated[list[When], BeforeValidator(as_list)] = Field(default=[])
    walk: Literal["workgroups", "grid"] = Field(
        default="workgroups",
        description="a grid holds blocks of operands and results in scratch, as a TPU's kernels do",
    )
    stages: Stages = Field(default=1, description="tiles of an operand that are there at once")
    from_scratch: list[Literal["lhs", "rhs"]] = Field(
        default=[], description="operands that the matrix unit reads in scratch, as wgmma does"
    )
    subgroups: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="warps or waves of a workgroup"
    )
    depth: Annotated[Size, AfterValidator(_positive)] | None = Field(
        default=None, description="bytes of an operand along k at most; left out: any"
    )
    row_pad: Size = Field(
        default=0, description="behind every row of a tile in scratch, against conflicts of banks"
    )

    @model_validator(mode="after")
    def _extents_fit(self) -> PipelineRecord:
        for i in self.intrinsics:
            for role, size in zip("mnk", i.mnk, strict=True):
                if all(e % size for e in getattr(self, role)) and role in self.model_fields_set:
                    what = "x".join(map(str, i.mnk))
                    raise coded(
                        "E206",
                        f"no extent of `{role}` is a multiple of the {size} of intrinsic {what}",
                        f"list {size} or a multiple of it",
                    )
        return self


def _pipeline_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise coded("E206", f"`{name}` is no name of a pipeline", "write it like `matrix-padded`")
    return name


_NAME = re.compile(r"[a-z][a-z0-9_-]*")
PipelineName = Annotated[str, AfterValidator(_pipeline_name)]


Positive = Annotated[Interval, AfterValidator(_positive)]


def _hidden(value: float) -> float:
    if not 0 <= value <= 1:
        raise coded("E201", f"`{value}` is no share: it lies between 0 and 1")
    return value


class KernelsRecord(Record):
    """What plans of kernels are made and priced from: one core, and a time per unit of work."""

    vector: Annotated[Size, AfterValidator(_positive)] = Field(
        description="bytes of a vector register"
    )
    registers: Annotated[int, Field(ge=8)] = Field(description="vector registers")
    features: list[str] = Field(
        default=[], description="of LLVM that kernels may use; none listed: those of the machine"
    )
    cores: Annotated[int, Field(ge=1)] = Field(default=1, description="that share a dispatch")
    fma: Positive = Field(description="a multiply-add of vectors")
    load: Positive = Field(description="a load or broadcast of a vector")
    scalar: Positive = Field(description="an addition of vectors in a body")
    strided: Positive = Field(description="an element that is read or written by itself")
    page: Positive = Field(description="a row that lies a page from the one before")
    tile: Positive = Field(description="the start of a register tile")
    loop: Time = Field(default=0, description="the start of an innermost loop of rows")
    copy_rate: Annotated[Bandwidth, AfterValidator(_positive)] = Field(
        alias="copy", description="of copies to scratch, read and written"
    )
    overlap: Annotated[float, AfterValidator(_hidden)] = Field(
        default=1.0, description="share of the shorter of compute and traffic that is hidden"
    )
    xla_op: Time = Field(
        default=0, description="the start of an op that XLA runs, where a dispatch has no plan"
    )
    source: Annotated[str, Field(min_length=1)] = Field(
        description="where the constants come from, and the machine they are of"
    )


class LimitsRecord(Record):
    """Hard limits of one dispatch."""

    scratch: Size | None = None
    vector: Size | None = None


class BudgetRecord(Record):
    """Hard upper bounds of goals."""

    memory: Size | None = None
    time: Time | None = None
    dispatches: Annotated[int, Field(ge=0)] | None = None
    permutes: Annotated[int, Field(ge=0)] | None = None
    resident: Size | None = Field(default=None, description="weights that stay in memory")
    load_peak: Size | None = Field(default=None, description="while weights are packed")

    def bounds(self) -> tuple[tuple[str, int], ...]:
        """Goal and bound (bytes, ps, a count) of every bound that is given."""
        return tuple((k, v) for k, v in self.model_dump().items() if v is not None)


class MeasuredOnRecord(Record):
    """The machine that the figures were measured on; `eqsat calibrate` writes it."""

    processor: str
    features: list[str] = Field(default=[], description="of LLVM, such as avx512f")
    caches: list[Size] = Field(default=[], description="nearest first")
    cores: Annotated[int, Field(ge=1)] = 1
    versions: dict[str, str] = Field(default={}, description="of eqsat and what ran the programs")
    figures: Annotated[int, Field(ge=0)] = Field(
        default=0, description="how many were measured, if all others are scaled by them"
    )


class AxisLinkRecord(Record):
    """What joins neighbours along an axis of a mesh."""

    bandwidth: Annotated[Bandwidth, AfterValidator(_positive)] = Field(
        description="of a link, one way"
    )
    latency: Time = Field(default=0, description="of one hop")


AxisName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


OpText = Annotated[str, StringConstraints(pattern=r"^\w+\(.*\)$")]


class RefusalRecord(Record):
    """A dispatch that a compiler refused (`eqsat compile --refusals`): no answer has it."""

    ops: Annotated[list[OpText], Field(min_length=1)] = Field(
        description="all its ops, each with the types of its operands: `pack(f32[512, 256], …)`"
    )
    says: str = Field(description="the compiler's words")
    source: str = Field(description="which compiler, for which device, about what")


class TargetRecord(Record):
    """A machine."""

    target: str
    doc: str = ""
    executor: Annotated[str, AfterValidator(_executor)] = Field(
        default="xla",
        description="who runs what is chosen: one of eqsat's own, or one that a plug-in brings",
    )
    data_tiling: bool = Field(default=True, description="whether packed layouts exist here")
    memory: Annotated[list[MemoryRecord], Field(min_length=1)]
    launch: Time = 0
    rates: dict[Rated, Annotated[Rate, AfterValidator(_positive)]] = Field(default={})
    precisions: list[Precision] = Field(
        default=[], description="those that programs may ask for; none listed: all"
    )
    untiled_rate: Share = 1.0
    elementwise_rate: Share = 1.0
    untiled: UntiledRecord = UntiledRecord()
    trips: Annotated[int, Field(ge=1)] = 1
    relayout: Annotated[Bandwidth, AfterValidator(_positive)] | None = None
    tiles: TilesRecord = TilesRecord()
    tiles_forced: bool = False
    orders_forced: bool = Field(
        default=False, description="ops read and write in the order of their kernels, or not at all"
    )
    fusion: FusionRecord = FusionRecord()
    pipelines: dict[PipelineName, PipelineRecord | None] = Field(
        default={}, description="of a GPU, for unpacked contractions; null: not this one"
    )
    padding: PaddingRecord | None = Field(
        default=None, description="of buffers in memory; left out: none"
    )
    row_padding: RowPaddingRecord | None = Field(
        default=None, description="of operands of contractions in memory; left out: none"
    )
    placing: PlacingRecord = Field(
        default=PlacingRecord(), description="of temporaries, by the compiler, behind the search"
    )
    native_tiles: dict[ElementType, NativeTile] = Field(
        default={}, description="rows and lanes that one register holds, by element type"
    )
    units: UnitsRecord | None = Field(
        default=None, description="of a GPU: what runs workgroups, and what each has"
    )
    kernels: KernelsRecord | None = Field(
        default=None, description="what `executor: kernels` plans and prices dispatches from"
    )
    mesh: dict[AxisName, Annotated[int, Field(ge=1, le=4096)]] = Field(
        default={}, description="devices along each axis, all like this one; the first is outermost"
    )
    mesh_links: dict[AxisName, AxisLinkRecord] = Field(
        default={}, description="what joins neighbours along an axis of the mesh"
    )
    limits: LimitsRecord = LimitsRecord()
    budget: BudgetRecord = BudgetRecord()
    oracle: OracleName | None = None
    refused: list[RefusalRecord] = Field(
        default=[], description="dispatches that a compiler refused, whatever the keys above allow"
    )
    originals: Literal["stored", "dropped", "held"] = Field(
        default="dropped",
        description="of weights: stored packed, dropped as they are packed, held by the caller",
    )
    source: str = Field(default="", description="where the figures come from")
    measured_on: MeasuredOnRecord | None = Field(
        default=None, description="on another machine than this one a search warns (E217)"
    )
    extends: str | None = Field(default=None, description="a target whose keys are taken over")
