"""Variations of an experiment: `vary:` names keys and values of cells, `ablate:` leaves rules out.

An ablation is every row again without one of its rules, sets or tags at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eqsat.lang.experimentformat import TogetherRecord
from eqsat.lang.requests import limits_of, parse_goals
from eqsat.lang.settings import override
from eqsat.lang.targetformat import TargetRecord
from eqsat.lang.units import read_budget
from eqsat.model.diag import EqsatError, did_you_mean, fail
from eqsat.model.limits import KEYS, Limits
from eqsat.model.rules import RuleSet
from eqsat.model.selection import EXTRACTORS
from eqsat.model.symbols import read_size
from eqsat.model.target import Memory, Target

if TYPE_CHECKING:
    from eqsat.lang.experiments import Cell

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
    """What a value of a varied key changes, as fields of a cell; EqsatError if it is none."""
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
