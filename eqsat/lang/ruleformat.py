"""The schema of a rule-set file."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from eqsat.lang.problems import OneOrMore, Record, coded

_NAME = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"


def _named(what: str, pattern: str, sample: str) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise coded("E005", f"`{value}` is not {what}", f"small letters, as in `{sample}`")
        return value

    return AfterValidator(check)


def _schema(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$"})


RuleName = Annotated[str, _named("a rule name", _NAME, "fold-transpose"), _schema(_NAME)]
_SET = rf"{_NAME}(/{_NAME})*"
SetName = Annotated[str, _named("a rule-set name", _SET, "layout/pack"), _schema(_SET)]
Phase = Literal["canonicalise", "contract", "propagate", "cancel"]
Bound = Literal["roundings", "finite"]
_BOUND = "of `inexact` rules: how far apart rounding takes their sides"


class ExampleRecord(Record):
    """`start` must become equal to `reaches`, or must not become equal to `avoids`."""

    name: RuleName = Field(default="", description="`example-1` and so on if left out")
    given: dict[str, str] = Field(description="operand name → type, e.g. `f32[64, 48]`")
    start: str
    reaches: str | None = None
    avoids: str | None = None


class RuleRecord(Record):
    """One rewrite rule."""

    name: RuleName
    doc: str = Field(default="", description="one sentence: what the rule does and why it is true")
    rewrite: str = Field(description="the left side, a pattern")
    to: str = Field(description="the right side")
    both_ways: bool = False
    also: OneOrMore = Field(default=[], description="patterns that must match somewhere")
    where: OneOrMore = Field(default=[], description="conditions; all must hold")
    let: OneOrMore = Field(default=[], description="`c = pack_loops(g, tile)`")
    foreach: OneOrMore = Field(default=[], description="`tile in target.tiles(g)`")
    phase: Phase | None = None
    apply: Literal["add", "replace"] = "add"
    tags: list[RuleName] = Field(default=[])
    source: str = Field(default="", description="the paper or upstream pattern it comes from")
    max_matches: Annotated[int, Field(ge=1)] | None = None
    bound: Bound | None = Field(default=None, description=_BOUND)
    examples: list[ExampleRecord] = Field(default=[])


Cut = Literal["parallel", "summed", "moved", "streamed", "parts", "nothing"]
Keep = Literal["whole", "blocks", "parts"]
Convert = Literal["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "slice"]
_CUT = "what an axis does to an op: `nothing` is to compute it on every device"
_KEEP = "how an axis may leave a value: all of it on every device, blocks of a dim, parts of a sum"
_CONVERT = "the collective that takes a value from one spread to another"


class SpreadRecord(Record):
    """A permission on a mesh of devices: exactly one of `cut`, `keep` and `convert`."""

    name: RuleName
    doc: str = Field(default="", description="one sentence: what becomes of operands and result")
    cut: Cut | None = Field(default=None, description=_CUT)
    keep: Keep | None = Field(default=None, description=_KEEP)
    convert: Convert | None = Field(default=None, description=_CONVERT)
    where: OneOrMore = Field(default=[], description="conditions; all must hold")
    tags: list[RuleName] = Field(default=[])
    source: str = Field(default="", description="the paper it comes from")


class OverrideRecord(Record):
    """Imported rules in another form; the rules as they were are left out."""

    rules: list[str] = Field(description="imported rules or tags")
    prefix: RuleName = Field(description="in front of their names")
    apply: Literal["add", "replace"] | None = None
    single_use: bool = Field(
        default=False,
        description="every op inside of the left side has one use in the input program",
    )
    where: OneOrMore = Field(default=[], description="further conditions")
    phase: Phase | None = None
    tags: list[RuleName] = Field(default=[], description="further tags")
    source: str = Field(default="", description="in place of theirs")


class RuleSetRecord(Record):
    """A rule set."""

    ruleset: SetName
    doc: str = ""
    imports: list[str] = Field(default=[], alias="import")
    enable: list[str] = Field(default=[], description="keep only these imported rules or tags")
    disable: list[str] = Field(default=[], description="drop these imported rules or tags")
    override: list[OverrideRecord] = Field(default=[], description="change imported rules")
    tags: list[RuleName] = Field(default=[])
    phase: Phase = "canonicalise"
    bound: Bound | None = Field(default=None, description=_BOUND)
    rules: list[RuleRecord] = Field(default=[])
    spreads: list[SpreadRecord] = Field(default=[], description="what may be done on a mesh")
