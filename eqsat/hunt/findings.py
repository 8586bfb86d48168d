"""Findings of hunts, kept on this machine; rules about to be used are hunted for a second first."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from eqsat.lang.content import SHIPPED, file_key, known_keys, rule_key
from eqsat.model.attr import Attr
from eqsat.model.diag import Diagnostic, EqsatError, EqsatWarning
from eqsat.model.files import cache_folder, code_digest, write_text
from eqsat.model.layout import Layout
from eqsat.model.rules import Apply, AttrExpr, Function, Rule, RuleCheck, RuleSet, Splat, Term
from eqsat.ops.op import Op
from eqsat.ops.registry import plugged_ops
from eqsat.plugins import data_folder, plugged_in


@dataclass(frozen=True)
class ConditionCount:
    """One entry of `where:`, evaluated for itself on every well-typed match."""

    text: str
    met: int
    missed: int


@dataclass(frozen=True)
class Counterexample:
    """The smallest instance found on which the sides differ.

    variables: name → its value as text, tensors first. why: the first lane that differs with what
    both sides hold, or what else is wrong. size: elements of all tensors, the measure of smallness.
    """

    variables: tuple[tuple[str, str], ...]
    why: str
    size: int

    @property
    def given(self) -> str:
        """The variables and their values."""
        return ", ".join(f"{name} = {value}" for name, value in self.variables)

    def __str__(self) -> str:
        return f"{self.given}; {self.why}"


@dataclass(frozen=True)
class Findings:
    """A hunt of one rule.

    instances: well-typed matches with a right side, both sides compared. padded: those of them
    with padding in some layout. refused: matches for which the rule's functions or conditions gave
    no right side. wanted: instances asked for; fewer were found if `instances` is less.
    """

    rule: Rule
    wanted: int
    instances: int
    padded: int
    refused: int
    conditions: tuple[ConditionCount, ...] = ()
    counterexample: Counterexample | None = None
    complete: bool = True  # an exhaustive check that left nothing of its domain out

    @property
    def is_short(self) -> bool:
        """Fewer instances than asked for could be made."""
        return self.counterexample is None and self.instances < self.wanted


def diagnose(findings: Findings) -> Diagnostic | None:
    """E100 at the right side of an unsound rule; None if no counterexample was found."""
    example = findings.counterexample
    if example is None:
        return None
    rule = findings.rule
    return Diagnostic(
        "E100",
        f"rule `{rule.name}` is unsound: {example.why}",
        rule.right.span,
        "not equal to the left side",
        help=f"counterexample after {findings.instances} instance(s): {example.given}",
    )


def shortage(findings: Findings) -> Diagnostic | None:
    """A warning (E102) if the rule was tried on fewer instances than asked for."""
    if not findings.is_short:
        return None
    return Diagnostic(
        "E102",
        f"rule `{findings.rule.name}` was tried on {findings.instances} instance(s) only,"
        f" of {findings.wanted} asked for ({findings.refused} matches gave no right side)",
        findings.rule.left.span,
        help="it is sound as far as it was tried; an example beside it shows where it applies",
        severity="warning",
    )


def bound_value_text(value: object) -> str:
    """An attribute, a list, or a literal as it stands in terms."""
    if isinstance(value, Attr):
        text = value.text("pack")  # without the shape, which comes behind
        of = f" of {list(value.source)}" if isinstance(value, Layout) else ""
        return f"({text})" + of if text else str(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(bound_value_text(v) for v in value) + "]"
    return str(value)


# ---- shipped rules -------------------------------------------------------------------------------
HEAD = "# The shipped rules by content; eqsat's tests hunt them. `make known` writes this file.\n"


def listing() -> str:
    """The table of shipped rules: key and name of every file under `rules/` and of every rule."""
    from eqsat.lang.rulesets import load_ruleset

    folder = data_folder("rules")
    files = sorted(p for p in folder.rglob("*.yaml"))
    rules = {(r.name, rule_key(r)) for p in files for r in load_ruleset(p).rules}
    rules |= {(p.relative_to(folder).as_posix(), file_key(p.read_text("utf-8"))) for p in files}
    return HEAD + "".join(f"{key}  {name}\n" for name, key in sorted(rules))


def write_listing() -> None:
    path: Path = data_folder("rules") / SHIPPED
    path.write_text(listing(), encoding="utf-8")
    print(f"wrote {path}")


# ---- remembered hunts ----------------------------------------------------------------------------
FORMAT = 1
LARGEST_BYTES = 1_000_000
_MEANING = ("hunt", "model", "ops", "saturate")  # folders whose code says what rules mean
_done: dict[str, Findings] = {}  # in this process: also where nothing can be written


def recall(rule: Rule) -> Findings | None:
    """Findings of an earlier hunt on this machine, with this version of everything; else None."""
    key = _key(rule)
    findings = (
        _done.get(key) or _read(_path(key, "refuted"), rule) or _read(_path(key, "held"), rule)
    )
    if findings is not None:
        _done[key] = findings
    return findings


def remember(findings: Findings) -> None:
    """Keep what a hunt found; a refutation is never replaced."""
    key = _key(findings.rule)
    earlier = _done.get(key)
    if earlier is not None and earlier.counterexample is not None:
        return
    _done[key] = findings
    kind = "held" if findings.counterexample is None else "refuted"
    try:
        write_text(_path(key, kind), json.dumps(_to_json(findings), indent=1) + "\n")
    except EqsatError:  # a folder that is read-only or full: hunted again by the next process
        return


def hunts_folder() -> Path:
    """Where hunts are kept: below `EQSAT_CACHE`, else the platform's cache folder for eqsat."""
    return cache_folder("hunts")


def _path(key: str, kind: str) -> Path:
    return hunts_folder() / f"{key}.{kind}.json"


def _key(rule: Rule) -> str:
    parts = (FORMAT, version("eqsat"), code_digest(*_MEANING), rule_key(rule), *_plugged(rule))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


# ---- what plug-ins say ---------------------------------------------------------------------------
def _plugged(rule: Rule) -> list[tuple[str, str, str]]:
    """Name, version and a hash of the code of each plug-in whose ops or functions a rule names."""
    words = {w for part in _parts(rule) for w in _words(part)}
    ops = [r for r in plugged_ops().values() if words & {r.name, *r.functions}]
    return [(r.name, _version(r), _code(r)) for r in sorted(ops, key=lambda r: r.name)]


def _parts(rule: Rule) -> list[Any]:
    bound = [e for _, e in (*rule.lets, *rule.foreach)]
    return [rule.left, *rule.also, rule.right, *rule.where, *bound]


def _words(part: Term | AttrExpr | tuple[Any, ...]) -> Iterator[str]:
    """Names of ops and functions."""
    if isinstance(part, Apply):
        yield part.op
        inner: tuple[Any, ...] = (*part.operands, *(v for _, v in part.attrs))
    elif isinstance(part, Function):
        yield part.name
        inner = part.args
    elif isinstance(part, Splat):
        inner = (part.inner,)
    else:
        inner = tuple(
            getattr(part, k) for k in ("left", "right", "inner", "base") if hasattr(part, k)
        )
    for each in inner:
        yield from _words(each)


def _version(r: Op) -> str:
    dist = plugged_in("ops")[r.name].dist
    return "" if dist is None else f"{dist.name} {dist.version}"


def _code(r: Op) -> str:
    """A hash of the files that the record's functions stand in."""
    functions = (r.shape, r.numpy, r.sample, *(f.meaning for f in r.functions.values()))
    codes = [getattr(f, "__code__", None) for f in functions]
    digest = hashlib.sha256()
    for name in sorted({c.co_filename for c in codes if c is not None}):
        path = Path(name)
        digest.update(path.read_bytes() if path.is_file() else name.encode())
    return digest.hexdigest()


# ---- as JSON -------------------------------------------------------------------------------------
def _to_json(f: Findings) -> dict[str, Any]:
    c = f.counterexample
    return {
        "format": FORMAT,
        "rule": f.rule.name,
        "wanted": f.wanted,
        "instances": f.instances,
        "padded": f.padded,
        "refused": f.refused,
        "counterexample": c and {"variables": c.variables, "why": c.why, "size": c.size},
    }


def _read(path: Path, rule: Rule) -> Findings | None:
    """None for what is not there, cannot be read, or is not as `_to_json` writes it."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            return None
        data = json.loads(path.read_text(encoding="utf-8"))
        numbers = [data[k] for k in ("wanted", "instances", "padded", "refused")]
        if data["format"] != FORMAT or not all(type(n) is int and n >= 0 for n in numbers):
            return None
        return Findings(rule, *numbers, counterexample=_counterexample(data["counterexample"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _counterexample(data: Any) -> Counterexample | None:
    if data is None:
        return None
    variables = tuple((str(name), str(value)) for name, value in data["variables"])
    return Counterexample(variables, str(data["why"]), int(data["size"]))


# ---- first use -----------------------------------------------------------------------------------
SECONDS = 1.0  # of CPU time, for all rules of a set that were never hunted
INSTANCES = 200  # of each at most, as `eqsat check --test` tries
_warned: set[str] = set()  # once per process is enough


def check_rules(ruleset: RuleSet, unchecked: bool = False) -> RuleCheck:
    """Hunt the rules of a set that are neither shipped nor were hunted on this machine.

    unchecked: hunt nothing, refuse nothing, and say which rules that holds for. Otherwise raises
    EqsatError (E100, exit code 1) with a counterexample for every rule that has one; an
    EqsatWarning (E103) names rules of which the hunt found no instance.
    """
    shipped = known_keys()
    unknown = [r for r in ruleset.rules if rule_key(r) not in shipped]
    count = len(ruleset.rules) - len(unknown)
    recalled = {r.name: recall(r) for r in unknown}
    if unchecked:
        trusted = {
            n
            for n, f in recalled.items()
            if f is not None and f.counterexample is None and f.instances > 0
        }
        rest = tuple(r.name for r in unknown if r.name not in trusted)
        return RuleCheck(count, tuple(r.name for r in unknown if r.name in trusted), (), rest)
    hunts = _hunted([r for r in unknown if recalled[r.name] is None])
    every = [recalled[r.name] or hunts[r.name] for r in unknown]
    _refuse(every)
    barren = tuple(f.rule.name for f in every if not f.instances)
    _warn([f for f in every if not f.instances])
    return RuleCheck(count, tuple(f.rule.name for f in every if f.instances), barren)


def _hunted(rules: list[Rule]) -> dict[str, Findings]:
    """Each gets its share of what is left of the time, so quick ones leave theirs to the rest."""
    if not rules:
        return {}
    from eqsat.hunt.search import hunt

    findings: dict[str, Findings] = {}
    end = time.thread_time() + SECONDS
    for i, rule in enumerate(rules):
        share = max(end - time.thread_time(), 0.0) / (len(rules) - i)
        findings[rule.name] = hunt(rule, instances=INSTANCES, seconds=share)
        remember(findings[rule.name])
    return findings


def _refuse(findings: list[Findings]) -> None:
    problems = [d for f in findings if (d := diagnose(f)) is not None]
    if problems:
        way = "`--unchecked` (`unchecked=True`) uses the rule all the same"
        raise EqsatError(*(replace(d, help=f"{d.help}; {way}") for d in problems), exit_code=1)


def _warn(barren: list[Findings]) -> None:
    for f in barren:
        if f.rule.name not in _warned:
            _warned.add(f.rule.name)
            warnings.warn(EqsatWarning(_untried(f.rule)), stacklevel=4)


def _untried(rule: Rule) -> Diagnostic:
    return Diagnostic(
        "E103",
        f"rule `{rule.name}` was not hunted: no instance of it was found in its share of a second",
        rule.left.span,
        help="an example beside it shows where it applies; `eqsat check FILE --test` takes longer",
        severity="warning",
    )


if __name__ == "__main__":
    write_listing()
