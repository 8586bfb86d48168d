"""Schema of an experiment file, its figure, and its variations.

`vary:` names keys and values of cells, `ablate:` leaves rules out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from eqsat.lang.problems import Duration, OneOrMore, Record
from eqsat.lang.requests import limits_of, override, parse_goals
from eqsat.lang.targetformat import BudgetRecord, TargetRecord
from eqsat.lang.units import read_budget
from eqsat.model.diag import EqsatError, did_you_mean, fail
from eqsat.model.limits import KEYS, WORK_LIMIT, Limits
from eqsat.model.rules import RuleSet
from eqsat.model.selection import EXTRACTORS
from eqsat.model.symbols import read_size
from eqsat.model.target import Memory, Target

if TYPE_CHECKING:
    from eqsat.lang.experiments import Cell


class MeasureRecord(Record):
    """How a cell is timed: `runs` samples, shared out among fresh processes."""

    runs: int = Field(default=20, ge=1)
    warmup: int = Field(default=3, ge=0)
    processes: int = Field(default=3, ge=1)
    verify: bool = True
    work_limit: float = Field(default=WORK_LIMIT, ge=1)


class SaturationRecord(Record):
    """When saturation stops; `model.limits.Limits` says what the keys mean."""

    nodes: int | None = None
    rounds: int | None = None
    matches: int | None = None
    seconds: float | str | None = None

    def given(self) -> dict[str, Any]:
        """The keys of saturation that are written."""
        return {k: v for k in KEYS if (v := getattr(self, k)) is not None}


class RunLimitsRecord(SaturationRecord):
    """Limits of one run; time: CPU time of all of it."""

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
    """The figure a file asks for; EqsatError (E270) where its rows have no such keys."""
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


def cell_key(cell: Cell, key: str) -> str | None:
    """The value of a row's key: what is varied, else what is asked; None if it has no such key.

    Keys joined by `+` are one key.
    """
    if "+" in key:
        parts = [cell_key(cell, part) for part in key.split("+")]
        return None if None in parts else " ".join(map(str, parts))
    varied = dict(cell.varied)
    if key in varied:
        return varied[key]
    asked = {
        ROW: cell.name, "program": cell.program, "target": cell.target, "rules": cell.rules,
        "goals": tuple(g.name for g in cell.goals), "seed": cell.seed, "extractor": cell.extractor,
    }  # fmt: skip
    value = asked.get(key)
    return ", ".join(value) if isinstance(value, tuple) else None if value is None else str(value)


def check_figure_room(figure: Figure, cells: Sequence[Cell]) -> None:
    """EqsatError (E273) if rows would be drawn over each other; a scatter has room for all."""
    if figure.kind == "scatter":
        return
    drawn = [c for c in cells if all(cell_key(c, k) == v for k, v in figure.where)]
    keys = (figure.x, *([figure.series] if figure.series else []))
    places: dict[object, list[Cell]] = {}
    for c in drawn:
        places.setdefault(tuple(cell_key(c, k) for k in keys), []).append(c)
    if len(places) == len(drawn):
        return
    able = dict.fromkeys([*ASKED, *(k for c in drawn for k, _ in c.varied)])
    names = [
        key for key in able
        if any(len({cell_key(c, key) for c in place}) > 1 for place in places.values())
    ] or [ROW]  # fmt: skip
    at = "series" if len(figure.y) == 1 else "x"
    named = getattr(figure, at)
    more = "+".join([*([named] if named else []), *names])
    raise fail(
        "E273",
        f"{len(drawn)} rows have {len(places)} places: {', '.join(f'`{n}`' for n in names)}"
        " would be drawn over each other",
        help=f"add what differs, `{at}: {more}`, or choose rows, `where: {{{names[0]}: …}}`",
    )


Check = Callable[[str], object]  # of a rule set's name: EqsatError if there is none
TABLES = ("sizes", "limits")  # keys with keys of their own, which vary one by one, too
# what may vary beside keys of a target
VARIABLE = (
    "rules", "goals", "without", "weights", "set", "budget", "seed", "extractor", *TABLES,
)  # fmt: skip
_ADDED = ("set", "without", "weights", "budget", "sizes")  # to what the file says for all rows
# settings are checked against this one: whether a key exists does not depend on the target
_ANY = Target(
    "any", "", "xla", True, (Memory("ram", 1, 1.0),), 0, (), 1.0, 1.0, (),
)  # fmt: skip


def check_variable(key: str) -> None:
    """EqsatError (E262) if a key cannot be varied."""
    head = key.partition(".")[0]
    if key in VARIABLE or _is_table(key) or head in TargetRecord.model_fields:
        return
    variables = (*VARIABLE, *TargetRecord.model_fields)
    raise fail("E262", f"`{key}` cannot be varied", help=did_you_mean(key, variables))


def _is_table(key: str) -> bool:
    """Whether a key is `sizes` or `limits` of saturation, or one of theirs.

    Targets have `limits` too, with other keys (`limits.scratch`).
    """
    head, _, name = key.partition(".")
    return head == "sizes" or (head == "limits" and name in ("", *KEYS))


def named_values(values: Sequence[Any] | Mapping[str, Any]) -> list[tuple[str, Any]]:
    """(what a row calls it, the value) for each value; those of a mapping have names."""
    if isinstance(values, Mapping):
        return list(values.items())
    return [(shown_value(v), v) for v in values]


def change_of(key: str, value: Any, check_rules: Check) -> dict[str, Any]:
    """Changes by a value of a varied key, as fields of a cell; EqsatError if it is none."""
    head, _, name = key.partition(".")
    if _is_table(key):
        return {head: _table(head, {name: value} if name else value)}
    if key == "rules":
        return {"rules": rule_names(value, check_rules)}
    if key == "seed":
        if type(value) is not int:
            raise fail("E262", f"`{value}` is no seed: a whole number is wanted here")
        return {"seed": value}
    if key == "extractor":
        if value not in EXTRACTORS:
            raise fail("E262", f"`{value}` is not one of {', '.join(EXTRACTORS)}")
        return {"extractor": value}
    if key not in VARIABLE:
        setting = f"{key}={shown_value(value)}"
        check_setting(setting)
        return {"set": (setting,)}
    return _texts_change(key, _texts(value))


def _texts_change(key: str, texts: list[str]) -> dict[str, Any]:
    if key == "goals":
        return {"goals": parse_goals(texts)}
    if key == "budget":
        return {"budget": tuple(read_budget(t) for t in texts)}
    if key == "set":
        for t in texts:
            check_setting(t)
    return {key: tuple(texts)}


def changed(key: str, before: Any, value: Any) -> Any:
    """The field of a cell after a change of it."""
    if key == "limits":
        assert isinstance(before, Limits)
        return before.updated(value)
    return before + value if key in _ADDED else value


def check_setting(text: str) -> None:
    """EqsatError if no target has such a key, or not with this value.

    Whether an axis of a mesh has a link (E230) depends on the row's target, which is asked then.
    """
    try:
        override(_ANY, [text])
    except EqsatError as error:
        if any(d.code != "E230" for d in error.diagnostics):
            raise


def rule_names(value: Any, check: Check) -> tuple[str, ...]:
    """The rule sets of a row: one, or several that are used together."""
    if isinstance(value, TogetherRecord):
        value = {"together": value.together}
    if isinstance(value, dict) and list(value) == ["together"]:
        names = _texts(value["together"])
    elif isinstance(value, str):
        names = [value]
    else:
        raise fail(
            "E262", "a rule set is wanted here",
            help="`{together: [default, algebra/merge]}` uses several as one",
        )  # fmt: skip
    for name in names:
        check(name)
    return tuple(names)


def rules_in(entry: str | TogetherRecord) -> tuple[str, ...]:
    """The names of one entry of `rules:`."""
    return (entry,) if isinstance(entry, str) else tuple(entry.together)


def shown_rules(names: Sequence[str]) -> str:
    """The rule sets of a row in one word."""
    return "+".join(names)


def shown_value(value: Any) -> str:
    """A value as YAML would be given on a command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(shown_value, value)) + "]"
    if isinstance(value, dict) and list(value) == ["together"]:
        return shown_rules([shown_value(v) for v in _texts(value["together"])])
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {shown_value(v)}" for k, v in value.items()) + "}"
    return str(value)


def _table(key: str, value: Any) -> Any:
    """A varied value that has keys: `sizes`, or `limits` of saturation."""
    if not isinstance(value, dict):
        sample = "{nodes: 20000}" if key == "limits" else "{m: 128}"
        raise fail("E262", f"{key} are `{sample}`, a number for each name")
    if key == "limits":
        return limits_of(value)
    sizes = tuple(f"{name}={size}" for name, size in value.items())
    for text in sizes:
        read_size(text)
    return sizes


def _texts(value: Any) -> list[str]:
    """A varied value that is one text or a list of them."""
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(t, str) for t in texts):
        raise fail("E262", "text, or a list of texts, is wanted here")
    return texts


NOTHING_LEFT_OUT = "–"
Loader = Callable[[tuple[str, ...]], RuleSet]  # the rule sets of a cell as one


def ablated(cells: Iterable[Cell], what: str, load: Loader) -> list[Cell]:
    """Each cell, and behind it one cell for each of its rules (what: `rules`, `sets` or `tags`).

    Those say by `whole` which row they are compared with, and by `left_out` the rules they lack.
    """
    cells_without = []
    for cell in cells:
        cells_without.append(replace(cell, varied=(*cell.varied, ("without", NOTHING_LEFT_OUT))))
        ruleset = load(cell.rules).without(*cell.without)
        for name, rules in _parts(ruleset, what).items():
            cells_without.append(
                replace(
                    cell,
                    name=f"{cell.name} without={name}",
                    without=(*cell.without, *rules),
                    varied=(*cell.varied, ("without", name)),
                    whole=cell.name,
                    left_out=rules,
                )
            )
    return cells_without


def _parts(ruleset: RuleSet, what: str) -> dict[str, tuple[str, ...]]:
    """Name of a rule, set or tag -> its rules, in the order of the set."""
    rules_of: dict[str, tuple[str, ...]] = {}
    for r in ruleset.rules:
        names = {"rules": (r.name,), "sets": (r.ruleset,), "tags": r.tags}[what]
        for name in names:
            rules_of[name] = (*rules_of.get(name, ()), r.name)
    return rules_of
