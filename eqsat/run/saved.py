"""A run as an artefact folder, and read back from it."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.execute.compare import Verification
from eqsat.frontends.source import Source
from eqsat.model.deadline import gc_paused
from eqsat.model.diag import EqsatError, fail
from eqsat.model.files import code_digest, restored
from eqsat.model.limits import Limits
from eqsat.model.rules import RuleCheck
from eqsat.model.selection import GoalRequest, Selection
from eqsat.run.artefact import (
    FILES,
    PACKED,
    WEIGHTS,
    check_weights,
    file_stamps,
    manifest,
    read_folder,
    write_folder,
)
from eqsat.run.marks import MARKS, mark_of
from eqsat.run.run import Run, RunUse

if TYPE_CHECKING:
    from eqsat.model.compiled import Compiled
    from eqsat.model.egraph import EGraph
    from eqsat.model.executor import Executable
    from eqsat.model.program import Program
    from eqsat.model.schedule import Schedule
    from eqsat.model.target import Target

# stage of a run, also the name of its file -> the class that reads it; imported where it is read
READERS = {
    "program": "eqsat.model.program:Program",
    "canonical": "eqsat.model.program:Program",
    "family": "eqsat.model.equalities:Family",
    "target": "eqsat.model.target:Target",
    "rules": "eqsat.model.rules:RuleSet",
    "egraph": "eqsat.model.egraph:EGraph",
    "selection": "eqsat.model.selection:Selection",
    "baseline": "eqsat.model.selection:Selection",
    "schedule": "eqsat.model.schedule:Schedule",
    "baseline_schedule": "eqsat.model.schedule:Schedule",
    "mesh_plan": "eqsat.model.mesh:MeshPlan",
    "measured": "eqsat.model.compiled:Measured",
    "checked": "eqsat.model.compiled:Checked",
    "curve": "eqsat.model.progress:Curve",
    "orders": "eqsat.model.layout:MemoryOrders",
    "convention": "eqsat.run.convention:Convention",
}


def stage_from_json(key: str, data: Any) -> Any:
    """A stage from its JSON."""
    module, _, name = READERS[key].partition(":")
    if key.endswith("schedule"):
        import_module("eqsat.plan.planner")  # plans are read by their kinds, which it imports
    return getattr(import_module(module), name).from_json(data)


def stages_to_json(run: Run, names: Iterable[str]) -> dict[str, Any]:
    """The existing ones of these stages, as JSON."""
    there = {k: getattr(run, k) for k in names}
    return {k: v.to_json() for k, v in there.items() if v is not None}


def saved(run: Run, folder: Path, packed: bool, weights: bool = True) -> Path:
    """Write the artefact folder under another name, then rename it, so it is never partial.

    packed: also keep the weights as the schedule reads them, if it was executed or a function was
    traced, whose calls then need not pack. weights: as they came.
    """
    exported = {k: call.export() for k, call in run.source.opaque.items()}
    arrays: dict[str, Mapping[str, Any]] = {WEIGHTS: run.weights if weights else {}}
    if packed and _is_called(run) and run.mesh_plan is None and _has_weights(run):
        from eqsat.execute.weights import packed_arrays

        with suppress(EqsatError):  # types that nothing here executes
            arrays[PACKED] = packed_arrays(run.need_schedule(), run.executable.packed)
    return write_folder(folder, _values(run), _texts(run), arrays, exported)


def _is_called(run: Run) -> bool:
    """Whether the answer was executed, or somebody will call it."""
    return "executable" in vars(run) or (run.convention is not None and run.schedule is not None)


def _has_weights(run: Run) -> bool:
    """Whether every weight has an array; of some only the shape may be known."""
    program, arrays = run.program, run.weights
    return all(program.leaf(i).key in arrays for i in program.weights)


def _values(run: Run) -> dict[str, Any]:
    """The values that become JSON, by the name of the file."""
    values = stages_to_json(run, READERS)
    if run.bodies:
        values["bodies"] = bodies_to_json(run.bodies)
    if run.compiled is not None:
        values["compiled"] = run.compiled.to_json()
    values["summary"] = run.summary()
    options = {
        "goals": [vars(g) for g in run.goals],
        "verification": None if run.verification is None else vars(run.verification),
        "rule_check": None if run.rule_check is None else run.rule_check.to_json(),
        "seconds": run.seconds,
        "limits": run.limits.to_json(),
        "sizes": dict(run.source.fixed),
        "judged": run.judged,
        "searched_at": run.searched_at,
    } | run.search
    return values | {"manifest": manifest(options)}


def _texts(run: Run) -> dict[str, str]:
    """Texts to be read by people, by the name of the file."""
    texts = {"1-program.eqs": run.program.to_text()}
    if run.schedule is not None:
        texts["4-schedule.txt"] = run.schedule.to_text()
    if run.mesh_plan is not None:
        from eqsat.report.finished import by_figures
        from eqsat.report.mesh import plan_text

        by = by_figures(run.target, run.goals)
        texts["4-mesh.txt"] = plan_text(run.mesh_plan, run.cut_schedule.program, by)
    return texts


def bodies_to_json(bodies: Mapping[str, Run]) -> list[dict[str, Any]]:
    """The searches of bodies, equal ones once; targets and rules are those of the whole run."""
    paths: dict[int, list[str]] = {}
    for path, run in bodies.items():
        paths.setdefault(id(run), []).append(path)
    entries = []
    stages = [k for k in READERS if k not in ("target", "rules")]
    for listed in paths.values():
        run = bodies[listed[0]]
        entries.append(
            {
                "paths": listed,
                "goals": [vars(g) for g in run.goals],
                "search": run.search,
                "seconds": run.seconds,
                "stages": stages_to_json(run, stages),
                "bodies": bodies_to_json(run.bodies),
            }
        )
    return entries


_CHECKED = ("program", "canonical", "egraph", "selection")
_INPUT = ("baseline", "baseline_schedule")  # executed where a plan for a mesh cuts it
SHOWN = 3  # faults of a run that are told at once
_reading = threading.RLock()


class _Later:
    """A stage that is read from its text when it is first looked at."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: _Texts | None, owner: type) -> Any:
        if instance is None:
            return None  # as the field of a run that has no such stage
        with _reading:
            if self.name not in vars(instance):
                vars(instance)[self.name] = instance.read_stage(self.name)
            return vars(instance)[self.name]


def _later() -> Any:
    """A stage read later, typed as its field."""
    return _Later()


class _Texts:
    """Stages that stay deflated text until they are looked at.

    To call the answer of a small convolution net took 20 MiB more with all of them.
    """

    def keep_texts(self, folder: Path, texts: Mapping[str, bytes]) -> None:
        """Read the stages of this class from these texts, once they are looked at."""
        stages = [k for k, v in vars(type(self)).items() if isinstance(v, _Later)]
        vars(self).update(_folder=folder, _texts={k: texts[k] for k in stages if k in texts})
        for key in stages:
            vars(self).pop(key)

    def read_stage(self, key: str) -> Any:
        """A stage from its text, None if there is none; EqsatError (E309) if it cannot be read."""
        texts: dict[str, bytes] = vars(self)["_texts"]
        return _read(vars(self)["_folder"], key, texts.pop(key)) if key in texts else None


class SavedSource(_Texts, Source):
    """The program of a saved run, which is not what is called."""

    program = _later()


class SavedRun(_Texts, Run):
    """A run read from its folder.

    seal: a hash of all its files and of the code, if one may trust what is kept by it. unchecked:
    the plug-in that is not installed, without which a schedule cannot be made again and compared:
    the run can be looked at, and does not execute.
    """

    seal = ""
    unchecked: EqsatError | None = None

    @cached_property
    def executable(self) -> Executable:
        """The executable, as of a run; EqsatError (E601) if a plug-in is missing."""
        if self.unchecked is not None:
            raise self.unchecked
        return super().executable

    goals = _later()
    target = _later()
    rules = _later()
    rule_check = _later()
    canonical = _later()
    family = _later()
    egraph = _later()
    selection = _later()
    schedule = _later()
    baseline = _later()
    baseline_schedule = _later()
    mesh_plan = _later()
    measured = _later()
    checked = _later()
    curve = _later()
    orders = _later()

    def read_stage(self, key: str) -> Any:
        stage = super().read_stage(key)
        return _named(stage, self) if key == "egraph" else stage


def _goals(data: Sequence[Any]) -> tuple[GoalRequest, ...]:
    return tuple(restored(GoalRequest, g) for g in data)


def _rule_check(data: Any) -> RuleCheck | None:
    return None if data is None else RuleCheck.from_json(data)


# parts of a run that its manifest holds, and how they are read
_OPTIONS: dict[str, Callable[[Any], Any]] = {"goals": _goals, "rule_check": _rule_check}


def _read(folder: Path, key: str, text: bytes) -> Any:
    with _readable(folder):
        if key in _OPTIONS:
            return _OPTIONS[key](_data(text)["options"].get(key))
        return stage_from_json(key, _data(text))


def _data(text: bytes) -> Any:
    """The object that deflated JSON holds."""
    return json.loads(zlib.decompress(text))


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """EqsatError (E309) where what is read is not as expected."""
    try:
        yield
    except STRANGE as e:
        if isinstance(e, EqsatError):
            raise
        raise fail("E309", f"`{folder}` cannot be read: {type(e).__name__}: {e}") from e


def load_folder(folder: str | Path) -> Run:
    """A saved run; EqsatError (E309) if the folder is not one."""
    place = Path(folder)
    files = read_folder(place)
    texts = files.texts
    with _readable(place):
        options = _data(texts["manifest"])["options"]
        search = {k: options[k] for k in ("time_limit", "seed", "threads")}
        search["extractor"] = options.get("extractor", "cpsat")  # runs of before have none
        seconds, limits = options["seconds"], Limits.of(options.get("limits"))
        fixed = dict(options.get("sizes", {}))
        use = RunUse({}, _read_verification(options["verification"]), _read_compiled(texts))
        missing = [k for k in ("program", "canonical", "target", "rules") if k not in texts]
        if missing:
            raise KeyError(FILES[missing[0]])
    opaque = _read_opaque(files.opaque)
    later: Any = None  # until `keep_texts`
    source = SavedSource(later, files.weights, opaque, fixed=fixed)
    source.keep_texts(place, texts)
    run = SavedRun(
        source, later, later, later, later, seconds, search, limits, use=use,
        packed_file=files.packed, judged=bool(options.get("judged")),
        searched_at=str(options.get("searched_at", "")),
    )  # fmt: skip
    run.keep_texts(place, texts | {k: texts["manifest"] for k in _OPTIONS})
    if "convention" in texts:
        vars(run)["convention"] = _read(place, "convention", texts["convention"])
    if "bodies" in texts:
        with _readable(place):
            vars(run)["bodies"] = bodies_from_json(_data(texts["bodies"]), run)
    mark, stamps = mark_of(zlib.decompress(texts["manifest"])), file_stamps(place)
    vars(run)["seal"] = mark
    if mark and stamps and MARKS.read(mark) == stamps.encode():
        return run
    check_weights(place, _data(texts["manifest"]))
    with gc_paused():
        try:
            _check_stages(run, place, texts)
        except EqsatError as why:
            if why.diagnostics[0].code != NO_PLUGIN:
                raise
            vars(run)["unchecked"] = why
            return run
    if mark:
        MARKS.write({mark: stamps.encode()})
    return run


def _read_opaque(blobs: Mapping[str, bytes]) -> dict[str, Any]:
    if not blobs:
        return {}
    from eqsat.frontends.opaque import OpaqueCall

    return {k: OpaqueCall.load(data) for k, data in blobs.items()}


def _read_verification(data: Mapping[str, Any] | None) -> Verification | None:
    if data is None:
        return None
    return restored(Verification, data)


def _check_stages(run: SavedRun, place: Path, texts: Mapping[str, bytes]) -> None:
    """Whether the stages follow from the e-graph; they are read for it and not kept.

    EqsatError (E314) if they do not.
    """
    manifest = _data(texts["manifest"])
    names = (*_CHECKED, *_INPUT) if "mesh_plan" in texts else _CHECKED
    read = {k: _read(place, k, texts[k]) for k in names if k in texts}
    schedule = run.schedule
    stages = Stages(run.target, **read, schedule=schedule, judged=run.judged)
    if run.convention is not None and schedule is not None:
        with _readable(place):
            run.convention.check(len(schedule.program.inputs), len(schedule.program.results))
    problems = stage_faults(stages)
    for path, body in run.bodies.items():
        problems += [f"{path}: {f}" for f in stage_faults(stages_of(body))]
    if problems:
        message = f"`{place}` is not what eqsat makes of its e-graph: {'; '.join(problems[:SHOWN])}"
        by = manifest["versions"].get("eqsat", "?")
        other = f"; it was saved by other code, eqsat {by}, which may have chosen otherwise"
        help = f"search again: `eqsat optimize PROGRAM -o {place}`, or `eqsat experiment FILE` for"
        is_own = manifest.get("code") == code_digest()
        raise fail("E314", message + ("" if is_own else other), help=f"{help} a row of a store")


def _read_compiled(texts: Mapping[str, bytes]) -> Compiled | None:
    """The compilers' answers about the run, which are no stage of its search."""
    if "compiled" not in texts:
        return None
    from eqsat.model.compiled import Compiled

    return Compiled.from_json(_data(texts["compiled"]))


def _named(egraph: EGraph | None, run: Run) -> EGraph | None:
    """With the names of values, which older runs did not keep in the e-graph."""
    if egraph is None or egraph.names:
        return egraph
    return replace(egraph, names=run.canonical.value_names)


def bodies_from_json(data: Sequence[dict[str, Any]], parent: Run) -> dict[str, Run]:
    """The searches of bodies that `Run.save` wrote."""
    by_path: dict[str, Run] = {}
    free = replace(parent.target, budget=(), mesh=None)
    for d in data:
        stages = {k: stage_from_json(k, v) for k, v in d["stages"].items()}
        source = Source(stages.pop("program"), {}, parent.source.opaque)
        goals = _goals(d["goals"])
        rest = (free, parent.rules, goals, d["seconds"], d["search"], parent.limits)
        bodies = bodies_from_json(d["bodies"], parent)
        canonical = stages.pop("canonical")
        run = Run(source, canonical, *rest, **stages, bodies=bodies)
        run = replace(run, egraph=_named(run.egraph, run))
        by_path |= dict.fromkeys(d["paths"], run)
    return by_path


# ---- is it what eqsat makes of its e-graph -------------------------------------------------------
# what reading the figures of a stranger may raise
STRANGE = (
    ArithmeticError, AssertionError, AttributeError, EqsatError, LookupError, RecursionError,
    TypeError, ValueError,
)  # fmt: skip
NO_PLUGIN = "E601"


@dataclass(frozen=True)
class Stages:
    """The stages of one search, as they were read.

    judged: the answer is another compiler's, which the target need not permit, and the baseline is
    of another e-graph.
    """

    target: Target
    program: Program
    canonical: Program
    egraph: EGraph | None = None
    selection: Selection | None = None
    baseline: Selection | None = None
    schedule: Schedule | None = None
    baseline_schedule: Schedule | None = None
    judged: bool = False


def stages_of(run: Run) -> Stages:
    """The stages of a run that was read."""
    return Stages(**{f.name: getattr(run, f.name) for f in fields(Stages)})


def stage_faults(stages: Stages) -> list[str]:
    """Stages that do not follow from the e-graph and the target, as sentences; none if all do.

    EqsatError (E601) if that takes a plug-in that is not installed.
    """
    stage = "egraph"
    problems: list[str] = []
    try:
        for stage, fault in _found(stages):
            problems.append(f"`{FILES[stage]}`: {fault}")
    except STRANGE as e:
        if isinstance(e, EqsatError) and e.diagnostics[0].code == NO_PLUGIN:
            raise
        problems.append(f"a stage behind `{FILES[stage]}` makes no sense: {type(e).__name__}: {e}")
    return problems


def _found(run: Stages) -> Iterator[tuple[str, str]]:
    """(stage, fault) of each fault; what follows from a faulty stage is not looked at."""
    from eqsat.extract import check
    from eqsat.schedule.rebuilt import rebuilt_differences, replanned_faults

    run.program.verify()
    run.canonical.verify()
    if run.egraph is None:
        return
    run.egraph.verify()
    pairs = [("selection", run.selection, "schedule", run.schedule)]
    if not run.judged:
        pairs.append(("baseline", run.baseline, "baseline_schedule", run.baseline_schedule))
    for chosen, selection, stage, schedule in pairs:
        plans = [] if schedule is None else list(replanned_faults(schedule, run.target))
        if selection is None or plans:
            yield from ((stage, f) for f in plans)
            continue
        illegal = [] if run.judged else check(run.egraph, run.target, selection)
        yield from ((chosen, f) for f in illegal)
        if schedule is not None and not illegal:
            rest = run.egraph, selection, run.target
            yield from ((stage, f) for f in rebuilt_differences(schedule, *rest))
