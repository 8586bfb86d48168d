"""The part of a target file that says how contractions are cut, and what its kernels stream."""

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

from eqsat.lang.problems import Record, coded
from eqsat.model.diag import did_you_mean
from eqsat.model.target import Condition
from eqsat.model.tensor import DTYPES
from eqsat.ops.contractions.roles import innermost
from eqsat.plugins import plugged_in

ROLES = ("m", "n", "k", "batch")
CONVOLUTION_ROLES = ("c", "k", "batch")
KERNEL_ROLES = (*CONVOLUTION_ROLES, "window", "places")
TYPES = ("lhs", "rhs", "acc")
_CONDITION = re.compile(r"\s*(\w+)\s*(==|!=|<=|>=|<|>)\s*(\w+)\s*")


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


def _share(value: float) -> float:
    if not 0 < value <= 1:
        raise coded("E201", f"`{value}` is no share of a peak: it lies between 0 and 1")
    return value


def as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Share = Annotated[float, AfterValidator(_share)]
When = Annotated[str, AfterValidator(lambda text: (condition(text), text)[1])]
ConvolutionWhen = Annotated[
    str, AfterValidator(lambda text: (condition(text, CONVOLUTION_ROLES), text)[1])
]
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


def _innermost(text: str) -> str:
    try:
        innermost(text)
    except ValueError as e:
        raise coded("E206", str(e), "write for example `kn` or `k·n32`") from None
    return text


def _plain_innermost(text: str) -> str:
    if any(extent for _, extent in innermost(_innermost(text))):
        raise coded("E206", f"`{text}` names a tile, of a contraction that has none")
    return text


Innermost = Annotated[str, AfterValidator(_innermost)]
PlainInnermost = Annotated[str, AfterValidator(_plain_innermost)]
_STREAMED = "roles that lie innermost where the kernel streams it, as `k·n32`; left out: any"
_PLAIN = "roles that lie innermost, as `kn`; left out: any"


Mnk = Annotated[list[int], BeforeValidator(_mnk), WithJsonSchema(_MNK)]


class PanelRecord(Record):
    """A panel: the loops that it cuts; all others stay as they are, in every operand."""

    m: Extent = 1
    n: Extent = 1
    k: Extent = 1

    @model_validator(mode="after")
    def _cuts(self) -> PanelRecord:
        if self.m == self.n == 1:
            raise coded("E206", "a panel cuts m or n", "write `panel: {n: 32}`")
        return self


class ConvolutionPanelRecord(Record):
    """A panel of filters; the image and the result stay as they are."""

    c: Extent = 1
    k: Extent


class TileRecord(Record):
    """A tile of the vocabulary and the share of the peak rate it reaches."""

    mnk: Mnk | None = None
    panel: PanelRecord | None = Field(
        default=None, description="in place of `mnk`: only these loops are cut, [N/32, K, 32]"
    )
    rate: Share
    when: Annotated[list[When], BeforeValidator(as_list), WithJsonSchema(_WHEN)] = Field(default=[])
    order: Annotated[list[str], BeforeValidator(_order), WithJsonSchema(_ORDER)] = Field(
        default=["m", "n", "k"], description="in which the tile dims of an operand lie"
    )
    vnni: Extent = Field(default=1, description="elements of k that lie together innermost")
    lhs: Innermost = Field(default="", description=_STREAMED)
    rhs: Innermost = Field(default="", description=_STREAMED)
    swapped: Share | None = Field(
        default=None, description="`rate` with m and n exchanged; left out: the same"
    )

    inside: Mnk | None = Field(
        default=None, description="of a panel: the `mnk` of another row, whose blocks it cuts again"
    )

    @model_validator(mode="after")
    def _fits(self) -> TileRecord:
        self._check_inside()
        if (self.mnk is None) == (self.panel is None):
            raise coded("E206", "a tile is either `mnk` or a `panel`")
        if self.panel is not None:
            ours = self.model_fields_set & {"order", "vnni", "lhs", "rhs", "swapped"}
            if ours:
                raise coded("E206", f"a panel lies in one way: it has no `{min(ours)}`")
        if self.mnk is not None and self.mnk[2] % self.vnni:
            raise coded("E206", f"`vnni: {self.vnni}` does not divide k = {self.mnk[2]}")
        if self.mnk is not None:
            self._check_streams(dict(zip("mnk", self.mnk, strict=True)))
        return self

    def _check_inside(self) -> None:
        """Check that blocks are whole panels."""
        if self.inside is None:
            return
        if self.panel is None:
            raise coded("E206", "only a panel lies `inside` of blocks", "write `panel: {n: 16}`")
        for role, extent in zip("mnk", self.inside, strict=True):
            cut = getattr(self.panel, role)
            if cut > 1 and (extent % cut or extent == cut):
                raise coded("E206", f"`inside` has {role}{extent}, no panels of {role}{cut}")

    def _check_streams(self, extents: dict[str, int]) -> None:
        """Check that a kernel streams as its tile packs: extents, and the order of tile dims."""
        for key in ("lhs", "rhs"):
            named = innermost(getattr(self, key)) if getattr(self, key) else ()
            tiles = [r for r, extent in named if extent]
            for role, extent in named:
                if extent and extent != extents[role] and extents[role] > 1:
                    raise coded("E206", f"`{key}` has {role}{extent}, the tile {extents[role]}")
                if (extent > 0) != (extents[role] > 1):
                    cut = "cuts" if extents[role] > 1 else "does not cut"
                    raise coded("E206", f"the tile {cut} {role}: `{key}` says otherwise")
            if tiles != sorted(tiles, key=self.order.index):
                raise coded("E206", f"`{key}` has tile dims in another order than `order`")


class ConvolutionTileRecord(Record):
    """A tile of a convolution: c input channels by k filters."""

    c: Extent | None = None
    k: Extent | None = None
    panel: ConvolutionPanelRecord | None = Field(
        default=None, description="in place of c and k: only the filters are cut"
    )
    rate: Share
    when: Annotated[list[ConvolutionWhen], BeforeValidator(as_list), WithJsonSchema(_WHEN)] = Field(
        default=[]
    )

    @model_validator(mode="after")
    def _is_one(self) -> ConvolutionTileRecord:
        tile = (self.c is not None, self.k is not None)
        if tile != ((self.panel is None,) * 2):
            raise coded("E206", "a tile of a convolution is either `c` and `k` or a `panel`")
        return self


def _letters(letters: str) -> AfterValidator:
    """A dim order is these letters, each once, in any order."""

    def check(order: str) -> str:
        if sorted(order) != sorted(letters):
            raise coded("E424", f"`{order}` is no order of the dims {letters}")
        return order

    return AfterValidator(check)


class MatmulKernelRecord(Record):
    """The share of the peak that unpacked contractions reach; extents are those of whole roles."""

    lhs: PlainInnermost = Field(default="", description=_PLAIN)
    rhs: PlainInnermost = Field(default="", description=_PLAIN)
    rate: Share
    when: Annotated[list[When], BeforeValidator(as_list), WithJsonSchema(_WHEN)] = Field(default=[])


KernelWhen = Annotated[str, AfterValidator(lambda text: (condition(text, KERNEL_ROLES), text)[1])]
_KernelConditions = Annotated[list[KernelWhen], BeforeValidator(as_list), WithJsonSchema(_WHEN)]
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


class Conv3dKernelRecord(Record):
    """How fast unpacked convolutions over three places run in one order of dims."""

    image: Annotated[str, _letters("ncdhw")] = Field(default="", description=_IMAGE)
    filters: Annotated[str, _letters("oidhw")] = Field(default="", description=_FILTERS)
    rate: Share
    when: _KernelConditions = Field(default=[])


class PoolKernelRecord(Record):
    """In which order `orders_forced` has pools, over however many places."""

    image: Literal["nchw", "nhwc"] = Field(description="nhwc: channels last; nchw: any order")


class UntiledRecord(Record):
    """Kernels for unpacked contractions by kind of op; the first row that applies counts."""

    matmul: list[MatmulKernelRecord] = Field(default=[])
    conv1d: list[Conv1dKernelRecord] = Field(default=[])
    conv2d: list[Conv2dKernelRecord] = Field(default=[])
    conv3d: list[Conv3dKernelRecord] = Field(default=[])
    pool: list[PoolKernelRecord] = Field(default=[])


def _strategy(name: str) -> str:
    strategies = plugged_in("strategies")
    if name not in strategies:
        hint = did_you_mean(name, strategies) if strategies else "no installed package brings any"
        raise coded("E210", f"no tile strategy named `{name}`", hint)
    return name


class StrategyRecord(Record):
    """A vocabulary that a plug-in computes."""

    strategy: Annotated[str, AfterValidator(_strategy)]


def _form(value: Any) -> str:
    return "[strategy]" if isinstance(value, dict | StrategyRecord) else "[tiles]"


_Computed = Annotated[StrategyRecord, Tag("[strategy]")]
_Form = Discriminator(_form)


def _are_there(rows: list[TileRecord]) -> list[TileRecord]:
    """Rows inside of which others lie."""
    blocks = [r.mnk for r in rows]
    for r in rows:
        if r.inside is not None and r.inside not in blocks:
            text = ", ".join(map(str, r.inside))
            raise coded(
                "E206", f"no row has the blocks `mnk: [{text}]` that a panel lies inside of"
            )
    return rows


_Rows = Annotated[list[TileRecord], AfterValidator(_are_there), Tag("[tiles]")]
Tiles = Annotated[_Rows | _Computed, _Form]
ConvolutionTiles = Annotated[
    Annotated[list[ConvolutionTileRecord], Tag("[tiles]")] | _Computed, _Form
]


class TilesRecord(Record):
    """Tile vocabularies by kind of op: a list, or `{strategy: NAME}`."""

    matmul: Tiles = Field(default=[])
    conv1d: ConvolutionTiles = Field(default=[])
    conv2d: ConvolutionTiles = Field(default=[])
