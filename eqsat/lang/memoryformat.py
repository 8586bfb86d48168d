"""The schema of what a target file says of an accelerator's memory, registers and units."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from eqsat.lang.problems import Record, Size, coded
from eqsat.lang.typeformat import ElementType, Rated


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
