"""Experiment YAML → `Experiment`: named cells, each one program × target × rules × goals."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from eqsat.lang.devices import find_devices
from eqsat.lang.experimentformat import (
    ExperimentRecord,
    Figure,
    RowRecord,
    SaturationRecord,
    TogetherRecord,
    ablated,
    change_of,
    changed,
    check_figure_room,
    check_setting,
    check_variable,
    figure_asked,
    named_values,
    rules_in,
    shown_rules,
)
from eqsat.lang.problems import read_record
from eqsat.lang.requests import limits_of, parse_goals
from eqsat.lang.rulesets import find_rules, load_rulesets
from eqsat.lang.source import KeyPath, YamlSource, load_yaml, read_yaml, refuse
from eqsat.lang.targets import find_target
from eqsat.model.diag import Diagnostic, EqsatError, Note, Span, check_known, did_you_mean, fail
from eqsat.model.limits import WORK_LIMIT, Limits
from eqsat.model.rules import RuleSet
from eqsat.model.selection import GoalRequest
from eqsat.model.symbols import read_size
from eqsat.plugins import find_names, search_path

Folders = Iterable[str | Path]
Axis = list[tuple[str, str, dict[str, Any]]]  # a varied key, its value as text, what that changes
PROGRAM_SUFFIXES = (".eqs", ".py", ".onnx", ".mlir")


@dataclass(frozen=True)
class Cell:
    """One run of an experiment. `set`, `budget` as on the command line; `varied` says what differs.

    expect: "", "no_program" (the run must find that nothing is admissible) or "any" (it may).
    covers: rows whose programs this row must have had the choice of, and must not be worse than.
    target: a target, or if `on_devices` a map of devices. judge: a file or folder.
    """

    name: str
    program: str
    target: str
    on_devices: bool = False
    rules: tuple[str, ...] = ("default",)
    goals: tuple[GoalRequest, ...] = (GoalRequest("time"),)
    set: tuple[str, ...] = ()
    budget: tuple[tuple[str, int], ...] = ()  # bytes, ps, a count
    without: tuple[str, ...] = ()
    unchecked: bool = False  # rules that nobody hunted are used as they are
    sizes: tuple[str, ...] = ()  # of symbols, `m=128` or `m=128:16`; later ones count
    seed: int = 0
    extractor: str = "cpsat"
    expect: str = ""
    varied: tuple[tuple[str, str], ...] = ()
    covers: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    weights: tuple[str, ...] = ()  # arguments of the program that are weights
    base: str = ""  # folder of the experiment's file, which paths start from
    whole: str = ""  # the row that this one is, but for the rules that `ablate:` leaves out
    left_out: tuple[str, ...] = ()  # those rules
    judge: str = ""  # what another compiler chose, which is the row's answer

    def from_folder(self, text: str) -> str:
        """A program, target or rule set as it is found from here: paths are those of the file."""
        return from_folder(text, self.base)


@dataclass(frozen=True)
class ExperimentFile:
    """Cells in the order of the file, and how each is run."""

    name: str
    doc: str
    cells: tuple[Cell, ...]
    repeat: int = 1
    time_limit_s: float | None = None
    runs: int = 0  # 0: search only, nothing is timed
    warmup: int = 0
    verify: bool = False
    work_limit: float = WORK_LIMIT  # of verifying
    file: str = ""
    figure: Figure | None = None
    processes: int = 1  # that time a row


def from_folder(text: str, base: str) -> str:
    """A path that exists from this folder on, as a path from here; other texts as they are."""
    file, colon, function = text.partition(":")
    path = Path(base, file)
    is_there = base not in ("", ".") and Path(file).suffix and path.is_file()
    return f"{path}{colon}{function}" if is_there else text


# ---- programs: also for the command line ---------------------------------------------------------
def find_program(name: str, folders: Folders = (), span: Span | None = None) -> str:
    """The path of a program: a name below `experiments/programs`, a file, or `file.py:function`.

    E261 if there is none.
    """
    file, colon, function = name.partition(":")
    places = [Path(), *(f / "programs" for f in search_path("experiments", folders))]
    if Path(file).suffix:
        for place in places:
            if (place / file).is_file():
                return str(place / file) + colon + function
        looked = ", ".join(f"`{p}`" for p in places[1:])
        raise fail("E261", f"no program file `{file}`", span, help=f"nor in {looked}")
    files: dict[str, Path] = {}
    for suffix in PROGRAM_SUFFIXES:
        files = find_names("experiments", suffix, folders) | files
    path = files.get(f"programs/{name}")
    if path is None:
        names = [k.removeprefix("programs/") for k in files if k.startswith("programs/")]
        hint = did_you_mean(name, names, "eqsat list programs") if names else ""
        raise fail("E261", f"no program named `{name}`", span, help=hint)
    return str(path)


# ---- reading -------------------------------------------------------------------------------------
def find_experiment(name: str | Path, folders: Folders = ()) -> Path:
    """The file of an experiment: a path, or a name on the search path (E266)."""
    if str(name).endswith((".yaml", ".yml")) and Path(name).is_file():
        return Path(name)
    files = find_names("experiments", ".yaml", folders)
    check_known(str(name), files, "E266", f"no experiment `{name}`")
    return files[str(name)]


def load_experiment(name: str | Path, folders: Folders = ()) -> ExperimentFile:
    """An experiment by name or path; EqsatError holds all problems of its file."""
    folders = tuple(folders)
    path = find_experiment(name, folders)
    return _CellReader(load_yaml(path), folders, base=str(path.parent)).read()


def read_experiment(text: str, file: str = "<text>", folders: Folders = ()) -> ExperimentFile:
    """Experiment YAML text → Experiment."""
    return _CellReader(read_yaml(text, file), tuple(folders)).read()


@dataclass
class _CellReader:
    source: YamlSource
    folders: tuple[str | Path, ...]
    problems: list[Diagnostic] = field(default_factory=list)
    base: str = ""

    def read(self) -> ExperimentFile:
        record, problems = read_record(ExperimentRecord, self.source)
        self.problems += problems
        if record is None:
            self._check_what_fits()
            refuse(self.problems)
        assert record is not None
        cells = self._rows(record) if record.rows else self._grid(record)
        figure = self._figure(record)
        refuse(self.problems)
        if record.ablate is not None:
            cells = ablated(cells, record.ablate, self._rules_of)
        if figure is not None:
            self._check_room(figure, cells)
            refuse(self.problems)
        m = record.measure
        return ExperimentFile(
            record.experiment, record.doc, tuple(cells), record.repeat, record.limits.time,
            m.runs if m else 0, m.warmup if m else 0, m.verify if m else False,
            m.work_limit if m else WORK_LIMIT, self.source.file, figure, m.processes if m else 1,
        )  # fmt: skip

    def _figure(self, r: ExperimentRecord) -> Figure | None:
        try:
            return None if r.figure is None else figure_asked(r.figure, r.vary, r.ablate)
        except EqsatError as error:
            self._place(error, self.source.span(("figure",), key=True))

    def _check_room(self, figure: Figure, cells: list[Cell]) -> None:
        try:
            check_figure_room(figure, cells)
        except EqsatError as error:
            self._place(error, self.source.span(("figure",), key=True))

    def _check_what_fits(self) -> None:
        """Names in a file that breaks the schema elsewhere: all its problems come at once."""
        data = self.source.data if isinstance(self.source.data, dict) else {}
        paths: list[KeyPath] = [()]
        self._check_names((), "programs", "targets")
        rows = data.get("rows")
        for i, row in enumerate(rows if isinstance(rows, list) else []):
            if isinstance(row, dict):
                paths.append(("rows", i))
                self._check_names(("rows", i), "program", "target")
        for path in paths:
            self._goals(path, [p.text for p in self.source.strings((*path, "goals"))])

    def report(self, code: str, message: str, span: Span, help: str = "", **extra: Any) -> None:
        self.problems.append(Diagnostic(code, message, span, help=help, **extra))

    def _check(self, path: KeyPath, look: Any) -> Any:
        """`look(text, span)` for every string at a path; problems get its place."""
        results = []
        for placed in self.source.strings(path):
            try:
                results.append(look(placed.text, placed.whole()))
            except EqsatError as error:
                self._place(error, placed.whole())
        return results

    def _place(self, error: EqsatError, span: Span) -> None:
        for d in error.diagnostics:
            self.problems.append(Diagnostic(d.code, d.message, span, help=d.help))

    def _check_names(self, path: KeyPath, program: str, target: str) -> None:
        self._check((*path, program), lambda t, s: find_program(self._at(t), self.folders, s))
        self._check((*path, target), lambda t, s: find_target(self._at(t), self.folders, s))
        self._check((*path, "devices"), lambda t, _: find_devices(self._at(t), self.folders))
        self._check_rules((*path, "rules"))
        self._check((*path, "set"), lambda t, _: check_setting(t))

    def _check_rules(self, path: KeyPath) -> None:
        """The rule sets of a list, of `together:`, or of a list with both."""
        for at in self.source.entries(path):
            inside = (*at, "together")
            placed = inside if inside in self.source.values else at
            if placed == inside or placed in self.source.scalars:
                self._check(placed, lambda t, s: find_rules(self._at(t), self.folders, s))

    def _at(self, text: str) -> str:
        return from_folder(text, self.base)

    def _goals(self, path: KeyPath, texts: list[str]) -> tuple[GoalRequest, ...]:
        try:
            return parse_goals(texts)
        except EqsatError as error:
            self._place(error, self.source.span((*path, "goals")))
            return ()

    def _base(self, r: ExperimentRecord) -> dict[str, Any]:
        return {
            "rules": rules_in(r.rules[0]) if r.rules else (), "set": tuple(r.set),
            "goals": self._goals((), r.goals), "budget": r.budget.bounds(),
            "without": tuple(r.without), "seed": r.seed,
            "sizes": self._sizes((), r.sizes), "limits": self._limits((), r.limits),
            "expect": r.expect or "",
            "unchecked": r.unchecked, "weights": tuple(r.weights), "extractor": r.extractor,
        }  # fmt: skip

    def _sizes(self, path: KeyPath, given: dict[str, Any]) -> tuple[str, ...]:
        texts = {name: f"{name}={size}" for name, size in given.items()}
        for name, text in texts.items():
            try:
                read_size(text)
            except EqsatError as error:
                self._place(error, self.source.span((*path, "sizes", name)))
        return tuple(texts.values())

    def _limits(self, path: KeyPath, record: SaturationRecord) -> Limits:
        limits = Limits()
        for key, value in record.given().items():
            try:
                limits = limits.updated(limits_of({key: value}))
            except EqsatError as error:
                self._place(error, self.source.span((*path, "limits", key)))
        return limits

    def _rules_of(self, names: tuple[str, ...]) -> RuleSet:
        return load_rulesets([self._at(n) for n in names], self.folders)

    # ---- rows ---------------------------------------------------------------------------------
    def _rows(self, r: ExperimentRecord) -> list[Cell]:
        if r.vary:
            span = self.source.span(("vary",), key=True)
            self.report("E265", "`vary` and `rows` do not go together", span)
        self._check_names((), "programs", "targets")
        base = self._base(r)
        seen: dict[str, Span] = {}
        cells = []
        for i, row in enumerate(r.rows):
            path = ("rows", i)
            span = self.source.span((*path, "name"))
            if row.name in seen:
                notes = (Note(seen[row.name], "first here"),)
                self.report("E263", f"two rows are named `{row.name}`", span, notes=notes)
            seen.setdefault(row.name, span)
            self._check_names(path, "program", "target")
            self._check((*path, "covers"), lambda t, s: _row_named(t, r.rows, s))
            cells.append(self._row(r, row, path, base))
        return cells

    def _row(
        self, r: ExperimentRecord, row: RowRecord, path: KeyPath, base: dict[str, Any]
    ) -> Cell:
        program = row.program or self._only(r.programs, "program", path)
        devices = row.devices or ("" if row.target else r.devices or "")
        target = devices or row.target or self._only(r.targets, "target", path)
        return Cell(
            row.name, program, target, bool(devices),
            self._one_set(r.rules if row.rules is None else row.rules, path),
            self._goals(path, row.goals) if row.goals is not None else base["goals"],
            (*base["set"], *row.set),
            tuple((dict(base["budget"]) | dict(row.budget.bounds())).items()),
            (*base["without"], *row.without),
            base["unchecked"] if row.unchecked is None else row.unchecked,
            (*base["sizes"], *self._sizes(path, row.sizes)),
            base["seed"] if row.seed is None else row.seed,
            row.extractor or base["extractor"],
            row.expect or r.expect or "", covers=tuple(row.covers),
            limits=base["limits"].updated(self._limits(path, row.limits)),
            weights=tuple(dict.fromkeys((*base["weights"], *row.weights))),
            base=self.base, judge=row.judge or "",
        )  # fmt: skip

    def _one_set(self, sets: list[str | TogetherRecord], path: KeyPath) -> tuple[str, ...]:
        """The rules of a row: one set, or several together."""
        if len(sets) != 1:
            span = self.source.span((*path, "rules"))
            names = ", ".join(shown_rules(rules_in(s)) for s in sets)
            self.report(
                "E260", f"a row has one rule set, not {len(sets)}", span,
                f"write `rules: {{together: [{names}]}}`, or a row for each",
            )  # fmt: skip
            return ()
        return rules_in(sets[0])

    def _only(self, names: list[str], what: str, path: KeyPath) -> str:
        if len(names) != 1:
            message = f"the row needs a `{what}`, as the file does not name exactly one"
            self.report("E260", message, self.source.span(path))
            return ""
        return names[0]

    # ---- grid ---------------------------------------------------------------------------------
    def _grid(self, r: ExperimentRecord) -> list[Cell]:
        targets = r.targets or ([r.devices] if r.devices else [])
        for key, names in (("programs", r.programs), ("targets", targets)):
            if not names:
                span = self.source.span(("experiment",))
                self.report("E260", f"nothing to run: no `{key}`", span, "or write `rows:`")
        self._check_names((), "programs", "targets")
        base = self._base(r)
        axes = [self._axis(key, values) for key, values in r.vary.items()]
        axes = [*self._compared(r), *axes]
        return [
            replace(self._cell(program, target, base, choice), on_devices=not r.targets)
            for program in r.programs
            for target in targets
            for choice in itertools.product(*axes)
        ]

    def _compared(self, r: ExperimentRecord) -> list[Axis]:
        """The rule sets of the file as an axis, if there are several."""
        if len(r.rules) < 2:
            return []
        if "rules" in r.vary:
            span = self.source.span(("vary", "rules"), key=True)
            self.report("E265", "`rules` and `vary: {rules: …}` both compare rule sets", span)
        names = [rules_in(s) for s in r.rules]
        return [[("rules", shown_rules(n), {"rules": n}) for n in names]]

    def _axis(self, key: str, values: list[Any] | dict[str, Any]) -> Axis:
        """(key, value as text, changes of the cell) for every value of a varied key."""
        path: KeyPath = ("vary", key)
        try:
            check_variable(key)
        except EqsatError as error:
            self._place(error, self.source.span(path, key=True))
            return []
        if not values:
            self.report("E260", f"nothing to run: `{key}` has no values", self.source.span(path))
        choices, names = [], list(values) if isinstance(values, dict) else range(len(values))
        for at, (name, value) in zip(names, named_values(values), strict=True):
            try:
                change = change_of(key, value, lambda t: find_rules(self._at(t), self.folders))
                choices.append((key, name, change))
            except EqsatError as error:
                self._place(error, self.source.span((*path, at)))
        return choices

    def _cell(
        self, program: str, target: str, base: dict[str, Any], choice: tuple[Any, ...]
    ) -> Cell:
        fields = dict(base)
        for _, _, change in choice:
            for key, value in change.items():
                fields[key] = changed(key, fields[key], value)
        varied = tuple((key, shown) for key, shown, _ in choice)
        name = " ".join([f"{program}@{target}", *(f"{k}={v}" for k, v in varied)])
        return Cell(name, program, target, varied=varied, base=self.base, **fields)


def _row_named(name: str, rows: list[RowRecord], span: Span) -> None:
    row_names = [r.name for r in rows]
    check_known(name, row_names, "E269", f"no row `{name}`", span=span)
