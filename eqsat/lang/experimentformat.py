"""Schema of an experiment file: records that its YAML is read into, and its figure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from eqsat.lang.problems import Duration, OneOrMore, Record
from eqsat.lang.targetformat import BudgetRecord
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.limits import KEYS, WORK_LIMIT


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


ROW = "row"  # the key that tells every row apart
ASKED = ("program", "target", "rules", "goals", "seed", "extractor")  # keys that every row has
MEASURED = "measured"  # the figure that the clock gives


@dataclass(frozen=True)
class Figure:
    """kind: bars | line | scatter. x: a key of the rows; of a scatter, one of their figures.

    y: figures; of several each is a series. series: a key that tells lines, bars or colours apart.
    versus: a value of `series`, or of `x`, by whose y the others are divided. where: keys and the
    values of the rows that are drawn. log: none | x | y | both. diagonal: a line where x and y are
    equal. Keys joined by `+` are one key.
    """

    kind: str
    x: str
    y: tuple[str, ...]
    series: str | None = None
    versus: str | None = None
    where: tuple[tuple[str, str], ...] = ()
    log: str = "none"
    diagonal: bool = False
    title: str = ""
    x_label: str = ""
    y_label: str = ""


def figure_asked(r: FigureRecord, varied: Iterable[str], ablate: str | None) -> Figure:
    """What a file asks for; EqsatError (E270) where its rows have no such keys."""
    figure = Figure(
        r.kind, r.x, tuple(r.y), r.series, r.versus, tuple(r.where.items()), r.log, r.diagonal,
        r.title, r.x_label,
        r.y_label,
    )  # fmt: skip
    _check(figure, (ROW, *ASKED, *varied, *(["without"] if ablate else [])))
    return figure


def _check(figure: Figure, keys_of_rows: Iterable[str]) -> None:
    asked = {"series": figure.series} | ({} if figure.kind == "scatter" else {"x": figure.x})
    keys = [(name, key) for name, joined in asked.items() for key in (joined or "").split("+")]
    for name, key in (*keys, *(("where", k) for k, _ in figure.where)):
        if key and key not in keys_of_rows:
            raise fail(
                "E270", f"{name}: no row has a key `{key}`", help=did_you_mean(key, keys_of_rows)
            )
    if len(figure.y) != 1 and (figure.series is not None or figure.kind == "scatter"):
        raise fail(
            "E270", f"`y` has {len(figure.y)} figures",
            help="one, with `series:` or in a scatter; several are a series each",
        )  # fmt: skip
