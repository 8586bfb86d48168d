"""Rule-set YAML → `model.rules.RuleSet`: typed, checked, imports resolved.

`override:` gives imported rules guards, tags, another way to apply.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from eqsat.lang.attributes import Scope
from eqsat.lang.content import file_key, known_keys, rule_content
from eqsat.lang.problems import read_record
from eqsat.lang.rule import (
    OverrideRecord,
    RuleReader,
    RuleRecord,
    RuleSetRecord,
    read_spreads,
    spread_conditions,
    spread_scope,
)
from eqsat.lang.source import KeyPath, Placed, YamlSource, load_yaml, read_yaml, refuse
from eqsat.lang.terms import ITEMS, TermReader
from eqsat.model.diag import Diagnostic, EqsatError, Note, Span, did_you_mean, fail
from eqsat.model.rules import (
    ROUNDINGS,
    Apply,
    AttrExpr,
    Compare,
    Function,
    Name,
    Rule,
    RuleSet,
    Splat,
    SpreadRule,
    Term,
    Value,
    Var,
    parts,
)
from eqsat.ops.attrs import FUNCTIONS, RULE_OPS
from eqsat.ops.vocabulary import PLURAL
from eqsat.plugins import find_names, search_path


def overridden(
    rules: list[Rule | SpreadRule],
    record: RuleSetRecord,
    source: YamlSource,
    problems: list[Diagnostic],
) -> list[Rule | SpreadRule]:
    """The rules with those that an `override:` names replaced; E009 for a name nothing has."""
    taken: set[str] = set()
    replacements: list[Rule | SpreadRule] = []
    for i, override in enumerate(record.override):
        path = ("override", i)
        for rule, span in _named(rules, source, (*path, "rules"), problems):
            taken.add(rule.name)
            rest = (override, record, source, path, problems)
            changed = _changed(rule, *rest) if isinstance(rule, Rule) else _restricted(rule, *rest)
            replacements.append(replace(changed, span=span))
    return [*(r for r in rules if r.name not in taken), *replacements]


def _named(
    rules: list[Rule | SpreadRule], source: YamlSource, path: KeyPath, problems: list[Diagnostic]
) -> Iterator[tuple[Rule | SpreadRule, Span]]:
    """The rules an `override:` names by name or tag, and where it does; each once."""
    rule_names = {r.name for r in rules} | {t for r in rules for t in r.tags}
    seen: set[str] = set()
    for placed in source.strings(path):
        if placed.text not in rule_names:
            message = f"no imported rule or tag is named `{placed.text}`"
            hint = did_you_mean(placed.text, rule_names, "eqsat list rules")
            problems.append(Diagnostic("E009", message, placed.whole(), help=hint))
        for rule in rules:
            if placed.text in (rule.name, *rule.tags) and rule.name not in seen:
                seen.add(rule.name)
                yield rule, placed.whole()


def _changed(
    rule: Rule,
    override: OverrideRecord,
    record: RuleSetRecord,
    source: YamlSource,
    path: KeyPath,
    problems: list[Diagnostic],
) -> Rule:
    left, guards = _single_use(rule) if override.single_use else (rule.left, [])
    reader = TermReader(scope_of(replace(rule, left=left)), problems)
    more = [reader.condition(t) for t in source.strings((*path, "where"))]
    tags = tuple(dict.fromkeys((*record.tags, *rule.tags, *override.tags)))
    bound = rule.bound or ((record.bound or ROUNDINGS) if "inexact" in tags else "")
    return replace(
        rule,
        name=f"{override.prefix}-{rule.name}",
        ruleset=record.ruleset,
        left=left,
        where=(*rule.where, *guards, *(c for c in more if c is not None)),
        apply=override.apply or rule.apply,
        phase=override.phase or rule.phase,
        tags=tags,
        bound=bound,
        source=override.source or rule.source,
        examples=(),  # what they reach may be what the new guards forbid
    )


_OF_REWRITES = ("apply", "single_use", "phase")


def _restricted(
    rule: SpreadRule,
    override: OverrideRecord,
    record: RuleSetRecord,
    source: YamlSource,
    path: KeyPath,
    problems: list[Diagnostic],
) -> SpreadRule:
    """A spread rule with further conditions; E028 for what only a rewrite has."""
    for key in _OF_REWRITES:
        if getattr(override, key):
            message = f"`{key}` is of rewrites: `{rule.name}` is a rule of spreads"
            help = "leave it out, or name rewrites only"
            span = source.span((*path, key), key=True)
            problems.append(Diagnostic("E028", message, span, help=help))
    reader = TermReader(spread_scope(rule.verb, rule.span), problems)
    more = spread_conditions(reader, source.strings((*path, "where")))
    return replace(
        rule,
        name=f"{override.prefix}-{rule.name}",
        ruleset=record.ruleset,
        where=(*rule.where, *more),
        tags=tuple(dict.fromkeys((*record.tags, *rule.tags, *override.tags))),
        source=override.source or rule.source,
    )


# ---- one use of every op inside of the left side -------------------------------------------------
def _single_use(rule: Rule) -> tuple[Apply, list[AttrExpr]]:
    """The left side with all inner ops named, and a condition on the uses of each."""
    names: list[Apply] = []
    operands = tuple(_name_ops(o, names) for o in rule.left.operands)
    return replace(rule.left, operands=operands), [_used_once(t) for t in names]


def _used_once(t: Apply) -> AttrExpr:
    text = f"uses({t.name}) == 1"  # as if it stood there
    at = replace(t.span, column=1, end=len(text) + 1, text=text)
    return Compare("==", Function("uses", (Name(t.name, at),), at), Value(1, at), at)


def _name_ops(term: Term, names: list[Apply]) -> Term:
    if not isinstance(term, Apply):
        return term
    at = len(names)
    named = replace(term, name=term.name or f"inner{at}")
    names.append(named)
    return replace(named, operands=tuple(_name_ops(o, names) for o in term.operands))


# ---- the variables of a rule that was read before ------------------------------------------------
def scope_of(rule: Rule) -> Scope:
    """Names that the conditions of a rule may use."""
    scope = Scope()
    for term in (rule.left, *rule.also):
        _bind_term(term, scope)
    for name, expr in rule.foreach:
        scope.bind(name, ITEMS.get(_given(expr, scope), ""), rule.span)
    for name, expr in rule.lets:
        scope.bind(name, _given(expr, scope), rule.span)
    return scope


def _given(expr: AttrExpr, scope: Scope) -> str:
    if not isinstance(expr, Function):
        return ""
    kinds = [scope.kind(a.name) if isinstance(a, Name) else "" for a in expr.args]
    return FUNCTIONS[expr.name].given(kinds)


def _bind_term(term: Term, scope: Scope, over: bool = False) -> None:
    if isinstance(term, Var):
        scope.bind(term.name, "tensors" if over else "tensor", term.span)
    if isinstance(term, Splat):
        _bind_term(term.inner, scope, over=True)
    if not isinstance(term, Apply):
        return
    if term.name:
        scope.bind(term.name, "tensor", term.span)
    for key, value in term.attrs:
        if isinstance(value, Name):
            kind = RULE_OPS[term.op].keys[key]
            is_list = over and key == RULE_OPS[term.op].whole
            scope.bind(value.name, PLURAL[kind] if is_list else kind, value.span)
    for o in term.operands:
        _bind_term(o, scope, over)


Folders = Iterable[str | Path]
AnyRule = Rule | SpreadRule


def find_rules(
    name: str,
    folders: Folders = (),
    span: Span | None = None,
    files: Mapping[str, Path] | None = None,
) -> Path:
    """The file of a rule set: a path, or a name on the search path (E007).

    files: those on it by name, if they were listed already.
    """
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if path.is_file():
            return path
        raise fail("E007", f"no rule file `{name}`", span)
    files = find_names("rules", ".yaml", folders) if files is None else files
    if name not in files:
        hint = did_you_mean(name, files, "eqsat list sets")
        raise fail("E007", f"no rule set named `{name}`", span, help=hint)
    return files[name]


def load_ruleset(name: str | Path, folders: Folders = ()) -> RuleSet:
    """A rule set by name or path, with the rules of its imports first.

    EqsatError holds all problems of the first file that has any, in reading order. A file that
    did not change, nor one that it imports, is read once per process, whoever imports it: reading
    takes longer than most searches.
    """
    folders = tuple(folders)
    return _Loader(folders).load(find_rules(str(name), folders), None)


Stamp = tuple[int, int]  # when a file was written, in ns, and its size
_READ: dict[tuple[Path, Path, tuple[Path, ...]], tuple[dict[Path, Stamp | None], RuleSet]] = {}


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def load_rulesets(names: Iterable[str | Path], folders: Folders = ()) -> RuleSet:
    """Several rule sets as one; a rule that comes from two of them is there once.

    E006 if two different rules have one name.
    """
    folders = tuple(folders)
    sets = [load_ruleset(n, folders) for n in names]
    if len(sets) == 1:
        return sets[0]
    problems: list[Diagnostic] = []
    everything = _merged([r for s in sets for r in s.everything], problems)
    refuse(problems)
    name, doc = " + ".join(s.name for s in sets), "; ".join(s.doc for s in sets)
    return _ruleset(name, doc, everything, sets)


def read_ruleset(text: str, file: str, folders: Folders = ()) -> RuleSet:
    """Rule-set YAML text → RuleSet."""
    return _Loader(tuple(folders)).read(read_yaml(text, file), ())


class _Loader:
    """Loads files once each; `above` are the files whose imports led here."""

    def __init__(self, folders: tuple[str | Path, ...]):
        self.folders = folders
        self.place = (Path.cwd(), search_path("rules", folders))
        self.stamps: dict[Path, dict[Path, Stamp | None]] = {}  # of each file and its imports

    @cached_property
    def names(self) -> dict[str, Path]:
        return find_names("rules", ".yaml", self.folders)

    def load(self, path: Path, span: Span | None, above: tuple[Path, ...] = ()) -> RuleSet:
        path = path.resolve()
        if path in above:
            chain = " → ".join(p.stem for p in (*above[above.index(path) :], path))
            raise fail("E008", f"rule sets import each other: {chain}", span)
        stamps, ruleset = _READ.get((path, *self.place), ({}, None))
        if ruleset is None or any(_stamp(p) != stamp for p, stamp in stamps.items()):
            stamps = self.stamps[path] = {path: _stamp(path)}
            ruleset = self.read(load_yaml(_shown(path)), (*above, path))
            _READ[path, *self.place] = stamps, ruleset
        for importing in above:
            self.stamps[importing].update(stamps)
        return ruleset

    def read(self, source: YamlSource, above: tuple[Path, ...]) -> RuleSet:
        record, problems = read_record(RuleSetRecord, source)
        if record is None:
            _read_what_fits(source, problems)
            refuse(problems)
            raise AssertionError("a refused record has problems")
        sets = self._imports(source, above, problems)
        imported = _merged([r for s in sets for r in s.everything], problems)
        imported = _selected(imported, record, source, problems)
        imported = overridden(imported, record, source, problems)
        rules: list[Rule] = []
        is_known = file_key(source.lines.text) in known_keys()  # so are its examples
        for i, rule in enumerate(record.rules):
            reader = RuleReader(source, ("rules", i), record, rule, problems)
            rules += reader.read(checks_examples=not is_known)
        _refuse_repeated_names(source, record, problems)
        _refuse_repeated_bodies(rules, problems)
        everything = _merged([*imported, *rules, *read_spreads(source, record, problems)], problems)
        refuse(problems)
        return _ruleset(record.ruleset, record.doc, everything, sets)

    def _imports(
        self, source: YamlSource, above: tuple[Path, ...], problems: list[Diagnostic]
    ) -> list[RuleSet]:
        imported: list[RuleSet] = []
        for placed in source.strings(("import",)):
            try:
                path = find_rules(placed.text, self.folders, placed.whole(), self.names)
                imported.append(self.load(path, placed.whole(), above))
            except EqsatError as error:
                problems += error.diagnostics
        return imported


def _read_what_fits(source: YamlSource, problems: list[Diagnostic]) -> None:
    """The terms of a file that breaks the schema elsewhere: all its problems come at once."""
    data = source.data if isinstance(source.data, dict) else {}
    rules = data.get("rules")
    ruleset = RuleSetRecord.model_construct(ruleset="", doc="")
    for i, raw in enumerate(rules if isinstance(rules, list) else []):
        if not isinstance(raw, dict):
            continue
        valid_keys = {k: v for k, v in raw.items() if k in RuleRecord.model_fields}
        try:
            rule = RuleRecord.model_validate({"name": "unnamed", "doc": "none"} | valid_keys)
        except ValidationError:
            continue
        RuleReader(source, ("rules", i), ruleset, rule, problems).read()


def _shown(path: Path) -> Path:
    """Paths below the working directory are shown relative to it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _ruleset(name: str, doc: str, everything: list[AnyRule], sets: list[RuleSet]) -> RuleSet:
    rules = tuple(r for r in everything if isinstance(r, Rule))
    spreads = tuple(r for r in everything if isinstance(r, SpreadRule))
    return RuleSet(name, doc, rules, parts(sets, everything), spreads)


def _merged(rules: Iterable[AnyRule], problems: list[Diagnostic]) -> list[AnyRule]:
    """Each rule once; E006 if two places define rules of one name."""
    by_name: dict[str, AnyRule] = {}
    for r in rules:
        first = by_name.setdefault(r.name, r)
        if first.span != r.span and first.span.file != r.span.file:
            message = f"two rules are named `{r.name}`"
            note = Note(first.span, "first here")
            problems.append(Diagnostic("E006", message, r.span, "again here", notes=(note,)))
    return list(by_name.values())


def _selected(
    rules: list[AnyRule], record: RuleSetRecord, source: YamlSource, problems: list[Diagnostic]
) -> list[AnyRule]:
    """Imported rules after `enable:` and `disable:`; E009 for a name nothing has."""
    names = {r.name for r in rules} | {t for r in rules for t in r.tags}
    for key in ("enable", "disable"):
        for placed in source.strings((key,)):
            if placed.text not in names:
                problems.append(_unknown(placed, names))
    if record.enable:
        rules = [r for r in rules if {r.name, *r.tags} & set(record.enable)]
    return [r for r in rules if not {r.name, *r.tags} & set(record.disable)]


def _unknown(placed: Placed, names: set[str]) -> Diagnostic:
    message = f"no imported rule or tag is named `{placed.text}`"
    hint = did_you_mean(placed.text, names, "eqsat list rules")
    return Diagnostic("E009", message, placed.whole(), help=hint)


def _refuse_repeated_names(
    source: YamlSource, record: RuleSetRecord, problems: list[Diagnostic]
) -> None:
    seen: dict[str, Span] = {}
    named = [
        (source.span(("rules", i, "name")), [r.name, *([f"{r.name}-back"] if r.both_ways else [])])
        for i, r in enumerate(record.rules)
    ]
    named += [(source.span(("spreads", i, "name")), [r.name]) for i, r in enumerate(record.spreads)]
    for span, names in named:
        for name in names:
            first = seen.setdefault(name, span)
            if first is not span:
                note = Note(first, "first here")
                message = f"two rules are named `{name}`"
                problems.append(Diagnostic("E006", message, span, "again here", notes=(note,)))


def _refuse_repeated_bodies(rules: list[Rule], problems: list[Diagnostic]) -> None:
    seen: dict[object, Rule] = {}
    for r in rules:
        first = seen.setdefault((rule_content(r), r.phase, r.apply), r)
        if first is not r and first.span != r.span:
            message = f"rule `{r.name}` is rule `{first.name}` over again"
            note = Note(first.span, "the same rewrite")
            problems.append(Diagnostic("E025", message, r.span, "again here", notes=(note,)))
