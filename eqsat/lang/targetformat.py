"""The schema of a target file."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    model_validator,
)

from eqsat.lang.problems import Bandwidth, Interval, Rate, Record, Size, Time, coded
from eqsat.model.diag import did_you_mean
from eqsat.model.executor import BUILT_IN
from eqsat.model.precision import PRECISIONS
from eqsat.model.target import Condition
from eqsat.model.tensor import DTYPES
from eqsat.plugins import plugged_in

ROLES = ("m", "n", "k", "batch")
CONVOLUTION_ROLES = ("c", "k", "batch")
KERNEL_ROLES = (*CONVOLUTION_ROLES, "window", "places")
TYPES = ("lhs", "rhs", "acc")
_CONDITION = re.compile(r"\s*(\w+)\s*(==|!=|<=|>=|<|>)\s*(\w+)\s*")

Kind = Literal["elementwise", "reduction", "contraction", "conversion", "move", "opaque"]
Clone = Literal[
    "fill", "broadcast", "cast", "cheap", "dequantise", "all",
    "elementwise", "reduction", "contraction", "conversion", "move",
]  # fmt: skip


def condition(text: str, roles: tuple[str, ...] = ROLES) -> Condition:
    """`m <= 8` or `lhs == f32`; E205 says what is wrong."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise coded("E205", f"cannot read the condition `{text}`", "write for example `m <= 8`")
    left, op, right = match.groups()
    if left in roles and right.isdigit():
        return Condition(left, op, int(right))
    if left in TYPES and right in DTYPES and op in ("==", "!="):
        return Condition(left, op, right)
    if left not in (*roles, *TYPES):
        hint = did_you_mean(left, (*roles, *TYPES))
        raise coded("E205", f"a condition cannot speak of `{left}`", hint)
    kind = "a whole number" if left in roles else "an element type, by `==` or `!=`"
    raise coded("E205", f"`{text}`: `{left}` is compared with {kind}")


def _positive(value: float) -> float:
    if value <= 0:
        raise coded("E201", "a figure here is more than 0")
    return value


def _share(value: float) -> float:
    if not 0 < value <= 1:
        raise coded("E201", f"`{value}` is no share of a peak: it lies between 0 and 1")
    return value


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


def _conditions(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Share = Annotated[float, AfterValidator(_share)]
When = Annotated[str, AfterValidator(lambda text: (condition(text), text)[1])]
ConvolutionWhen = Annotated[
    str, AfterValidator(lambda text: (condition(text, CONVOLUTION_ROLES), text)[1])
]
Precision = Annotated[
    str, AfterValidator(_precision), WithJsonSchema({"type": "string", "enum": list(PRECISIONS)})
]
_RATED = {
    "type": "string",
    "description": "an element type, or one and a precision of contractions: `f32/high`",
}
Rated = Annotated[str, AfterValidator(_rated), WithJsonSchema(_RATED)]
_MNK = {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 3, "maxItems": 3}


def _mnk(value: Any) -> Any:
    good = isinstance(value, list) and len(value) == 3
    if not good or any(type(v) is not int or v < 1 for v in value):
        raise coded("E206", "a tile has three extents of at least 1", "write `mnk: [16, 16, 1]`")
    return value


def _order(value: Any) -> Any:
    if not isinstance(value, list) or sorted(map(str, value)) != ["k", "m", "n"]:
        raise coded("E206", "`order` names m, n and k once each", "write `order: [m, n, k]`")
    return value


def _extent(value: Any) -> Any:
    if type(value) is not int or value < 1:
        raise coded("E206", "a tile's extents are whole numbers of at least 1")
    return value


Extent = Annotated[int, BeforeValidator(_extent), WithJsonSchema({"type": "integer", "minimum": 1})]
_ORDER = {"type": "array", "items": {"enum": ["m", "n", "k"]}, "minItems": 3, "maxItems": 3}
_WHEN = {"anyOf": [{"type": "string"}, {"type": "array"}]}


class MemoryRecord(Record):
    """One level of the memory hierarchy."""

    name: str
    size: Annotated[Size, AfterValidator(_positive)]
    bandwidth: Annotated[Bandwidth, AfterValidator(_positive)]


class TileRecord(Record):
    """A tile of the vocabulary and the share of the peak rate it reaches."""

    mnk: Annotated[list[int], BeforeValidator(_mnk), WithJsonSchema(_MNK)]
    rate: Share
    when: Annotated[list[When], BeforeValidator(_conditions), WithJsonSchema(_WHEN)] = Field(
        default=[]
    )
    order: Annotated[list[str], BeforeValidator(_order), WithJsonSchema(_ORDER)] = Field(
        default=["m", "n", "k"], description="in which the tile dims of an operand lie"
    )
    vnni: Extent = Field(default=1, description="elements of k that lie together innermost")

    @model_validator(mode="after")
    def _vnni_divides(self) -> TileRecord:
        if self.mnk[2] % self.vnni:
            raise coded("E206", f"`vnni: {self.vnni}` does not divide k = {self.mnk[2]}")
        return self


class ConvolutionTileRecord(Record):
    """A tile of a convolution: c input channels by k filters."""

    c: Extent
    k: Extent
    rate: Share
    when: Annotated[list[ConvolutionWhen], BeforeValidator(_conditions), WithJsonSchema(_WHEN)] = (
        Field(default=[])
    )


def _letters(letters: str) -> AfterValidator:
    """A dim order is these letters, each once, in any order."""

    def check(order: str) -> str:
        if sorted(order) != sorted(letters):
            raise coded("E424", f"`{order}` is no order of the dims {letters}")
        return order

    return AfterValidator(check)


class MatmulKernelRecord(Record):
    """The share of the peak that unpacked contractions reach; extents are those of whole roles."""

    rate: Share
    when: Annotated[list[When], BeforeValidator(_conditions), WithJsonSchema(_WHEN)] = Field(
        default=[]
    )


KernelWhen = Annotated[str, AfterValidator(lambda text: (condition(text, KERNEL_ROLES), text)[1])]
_KernelConditions = Annotated[list[KernelWhen], BeforeValidator(_conditions), WithJsonSchema(_WHEN)]
_IMAGE = "the order of the image's dims, and of the result's; left out: any"
_FILTERS = "the order of the filters' dims; left out: any"


class Conv1dKernelRecord(Record):
    """How fast unpacked convolutions over one place run in one order of dims."""

    image: Annotated[str, _letters("ncw")] = Field(default="", description=_IMAGE)
    filters: Annotated[str, _letters("oiw")] = Field(default="", description=_FILTERS)
    rate: Share
    when: _KernelConditions = Field(default=[])


class Conv2dKernelRecord(Record):
    """How fast unpacked convolutions over two places run in one order of dims."""

    image: Annotated[str, _letters("nchw")] = Field(default="", description=_IMAGE)
    filters: Annotated[str, _letters("oihw")] = Field(default="", description=_FILTERS)
    rate: Share
    when: _KernelConditions = Field(default=[])


class UntiledRecord(Record):
    """Kernels for unpacked contractions by kind of op; the first row that applies counts."""

    matmul: list[MatmulKernelRecord] = Field(default=[])
    conv1d: list[Conv1dKernelRecord] = Field(default=[])
    conv2d: list[Conv2dKernelRecord] = Field(default=[])


def _executor(name: str) -> str:
    known = [*BUILT_IN, *plugged_in("executors")]
    if name not in known:
        raise coded("E218", f"no executor named `{name}`", did_you_mean(name, known))
    return name


def _strategy(name: str) -> str:
    known = plugged_in("strategies")
    if name not in known:
        hint = did_you_mean(name, known) if known else "no installed package brings any"
        raise coded("E210", f"no tile strategy named `{name}`", hint)
    return name


class StrategyRecord(Record):
    """A vocabulary that a plug-in computes."""

    strategy: Annotated[str, AfterValidator(_strategy)]


def _form(value: Any) -> str:
    return "[strategy]" if isinstance(value, dict | StrategyRecord) else "[tiles]"


_Computed = Annotated[StrategyRecord, Tag("[strategy]")]
_Form = Discriminator(_form)
Tiles = Annotated[Annotated[list[TileRecord], Tag("[tiles]")] | _Computed, _Form]
ConvolutionTiles = Annotated[
    Annotated[list[ConvolutionTileRecord], Tag("[tiles]")] | _Computed, _Form
]


class TilesRecord(Record):
    """Tile vocabularies by kind of op: a list, or `{strategy: NAME}`."""

    matmul: Tiles = Field(default=[])
    conv1d: ConvolutionTiles = Field(default=[])
    conv2d: ConvolutionTiles = Field(default=[])


class FusionRecord(Record):
    """Which ops may share a dispatch; a key that is left out keeps its default."""

    roots: Annotated[int, Field(ge=0)] | None = None
    row_reductions: Annotated[int, Field(ge=1)] | None = None
    row_block: Annotated[int, Field(ge=0)] | None = None
    operands: Annotated[int, Field(ge=1)] | None = None
    members: Annotated[int, Field(ge=1)] | None = None
    template: Annotated[int, Field(ge=0)] | None = None
    multi_result: bool | None = None
    siblings: bool | None = None
    index_relation: Literal["identity", "permutation", "any"] | None = None
    result_relation: Literal["identity", "permutation", "any"] | None = None
    join: dict[Kind, list[Kind]] | None = None
    clone: list[Clone] | None = None


def _extents(value: Any) -> Any:
    found = value if isinstance(value, list) else [value]
    if not found or any(type(v) is not int or v < 1 for v in found):
        raise coded("E206", "extents of tiles are whole numbers of at least 1", "write `[64, 16]`")
    return found


_EXTENTS = {
    "anyOf": [
        {"type": "integer", "minimum": 1},
        {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 1},
    ]
}
Extents = Annotated[list[int], BeforeValidator(_extents), WithJsonSchema(_EXTENTS)]


class IntrinsicRecord(Record):
    """What one instruction of a matrix unit multiplies."""

    mnk: Annotated[list[int], BeforeValidator(_mnk), WithJsonSchema(_MNK)]
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
    when: Annotated[list[When], BeforeValidator(_conditions)] = Field(default=[])

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
    copy_rate: Annotated[Bandwidth, AfterValidator(_positive)] = Field(
        alias="copy", description="of copies to scratch, read and written"
    )
    overlap: Annotated[float, AfterValidator(_hidden)] = Field(
        default=1.0, description="share of the shorter of compute and traffic that is hidden"
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


class TargetRecord(Record):
    """A machine."""

    target: str
    doc: str
    executor: Annotated[str, AfterValidator(_executor)] = Field(
        description="who runs what is chosen: one of eqsat's own, or one that a plug-in brings"
    )
    data_tiling: bool
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
    fusion: FusionRecord = FusionRecord()
    pipelines: dict[PipelineName, PipelineRecord | None] = Field(
        default={}, description="of a GPU, for unpacked contractions; null: not this one"
    )
    kernels: KernelsRecord | None = Field(
        default=None, description="what `executor: kernels` plans and prices dispatches from"
    )
    limits: LimitsRecord = LimitsRecord()
    budget: BudgetRecord = BudgetRecord()
    originals: Literal["stored", "dropped", "held"] = Field(
        default="dropped",
        description="of weights: stored packed, dropped as they are packed, held by the caller",
    )
    source: str = Field(default="", description="where the figures come from")
    measured_on: MeasuredOnRecord | None = Field(
        default=None, description="on another machine than this one a search warns (E217)"
    )
    extends: str | None = Field(default=None, description="a target whose keys are taken over")
