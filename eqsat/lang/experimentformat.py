"""What an experiment file may hold: the records that its YAML is read into."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from eqsat.lang.problems import Duration, OneOrMore, Record
from eqsat.lang.targetformat import BudgetRecord
from eqsat.model.limits import KEYS
from eqsat.model.work import WORK_LIMIT


class MeasureRecord(Record):
    """How a cell is timed."""

    runs: int = Field(default=20, ge=1)
    warmup: int = Field(default=3, ge=0)
    verify: bool = True
    work_limit: float = Field(default=WORK_LIMIT, ge=1)


class SaturationRecord(Record):
    """When saturation stops; `model.limits.Limits` says what the keys mean."""

    nodes: int | None = None
    rounds: int | None = None
    matches: int | None = None
    seconds: float | str | None = None

    def given(self) -> dict[str, Any]:
        """What is said about saturation."""
        return {k: v for k in KEYS if (v := getattr(self, k)) is not None}


class RunLimitsRecord(SaturationRecord):
    """Limits of one run; time: wall time of all of it."""

    time: Duration | None = None


class TogetherRecord(Record):
    """Rule sets that are used as one."""

    together: OneOrMore


def _as_sets(value: Any) -> Any:
    return [value] if isinstance(value, str | dict) else value


_SET = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"together": {"type": "array", "items": {"type": "string"}}},
            "required": ["together"],
            "additionalProperties": False,
        },
    ]
}
# a rule set, `{together: [...]}`, or a list of these, which are compared
RuleSets = Annotated[
    list[str | TogetherRecord],
    BeforeValidator(_as_sets),
    WithJsonSchema({"anyOf": [_SET, {"type": "array", "items": _SET}]}),
]
Extractor = Literal["cpsat", "greedy"]


class FigureRecord(Record):
    """The picture of an experiment: keys and figures of its rows."""

    kind: Literal["bars", "line", "scatter"]
    x: str
    y: OneOrMore = Field(default=["time_us"])
    series: str | None = None
    versus: str | None = None
    log: Literal["none", "x", "y", "both"] = "none"
    where: dict[str, str] = Field(default={})
    diagonal: bool = False
    title: str = ""
    x_label: str = ""
    y_label: str = ""


class RowRecord(Record):
    """One row written out; what it leaves out comes from the keys of the file."""

    name: str
    program: str | None = None
    target: str | None = None
    rules: RuleSets | None = None
    goals: OneOrMore | None = None
    set: OneOrMore = Field(default=[])
    budget: BudgetRecord = BudgetRecord()
    without: OneOrMore = Field(default=[])
    weights: OneOrMore = Field(default=[])
    unchecked: bool | None = None
    sizes: dict[str, int | str] = Field(default={})
    limits: SaturationRecord = SaturationRecord()
    devices: str | None = None
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    extractor: Extractor | None = None
    expect: Literal["no_program", "any"] | None = None
    covers: OneOrMore = Field(default=[])
    judge: str | None = None  # a run's folder or HLO text: its choice is the row's answer


class ExperimentRecord(Record):
    """An experiment: a grid (programs × targets × vary), or rows."""

    experiment: str
    doc: str = ""
    programs: OneOrMore = Field(default=[])
    targets: OneOrMore = Field(default=[])
    rules: RuleSets = Field(default=["default"])
    goals: OneOrMore = Field(default=["time"])
    set: OneOrMore = Field(default=[])
    budget: BudgetRecord = BudgetRecord()
    without: OneOrMore = Field(default=[])
    weights: OneOrMore = Field(default=[])
    unchecked: bool = False
    sizes: dict[str, int | str] = Field(default={})
    devices: str | None = None
    seed: int = Field(default=0, ge=0, lt=2**31)
    extractor: Extractor = "cpsat"
    vary: dict[str, list[Any] | dict[str, Any]] = Field(default={})  # values may have names
    ablate: Literal["rules", "sets", "tags"] | None = None
    rows: list[RowRecord] = Field(default=[])
    expect: Literal["any"] | None = None
    repeat: int = Field(default=1, ge=1)
    limits: RunLimitsRecord = RunLimitsRecord()
    measure: MeasureRecord | None = None
    figure: FigureRecord | None = None
