"""Rule-set YAML → `model.rules.RuleSet`: typed, checked, imports resolved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from eqsat.lang.content import file_key, known_keys, rule_content
from eqsat.lang.override import overridden
from eqsat.lang.problems import read_record
from eqsat.lang.rule import RuleReader, read_spreads
from eqsat.lang.ruleformat import RuleRecord, RuleSetRecord
from eqsat.lang.source import Placed, YamlSource, load_yaml, read_yaml, refuse
from eqsat.model.diag import Diagnostic, EqsatError, Note, Span, did_you_mean, fail
from eqsat.model.rules import Rule, RuleSet, SpreadRule, parts
from eqsat.plugins import find_names, search_path

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
        raise fail("E007", f"no rule set named `{name}`", span, help=did_you_mean(name, files))
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
    return Diagnostic("E009", message, placed.whole(), help=did_you_mean(placed.text, names))


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
