"""A saved run, read back from its artefact folder."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.frontends.source import Source
from eqsat.model.compiled import Compiled
from eqsat.model.cycles import uncollected
from eqsat.model.diag import EqsatError, fail
from eqsat.model.egraph import EGraph
from eqsat.model.files import code_digest
from eqsat.model.limits import Limits
from eqsat.model.program import Program
from eqsat.model.restore import restored
from eqsat.model.rules import RuleCheck
from eqsat.model.schedule import Schedule
from eqsat.model.selection import GoalRequest, Selection
from eqsat.model.target import Target
from eqsat.plan import planner  # noqa: F401 - plans are read by their kinds, which it imports
from eqsat.run.artefact import FILES, read_folder
from eqsat.run.run import Run, RunUse
from eqsat.run.saving import READERS

if TYPE_CHECKING:
    from eqsat.model.executor import Executable
    from eqsat.run.run import Run

_CHECKED = ("program", "canonical", "egraph", "selection")
_INPUT = ("baseline", "baseline_schedule")  # executed where a plan for a mesh cuts it
SHOWN = 3  # faults of a run that are told at once
_reading = threading.RLock()


class _Later:
    """A stage that is read from its text when it is first looked at."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, held: _Texts | None, owner: type) -> Any:
        if held is None:
            return None  # as the field of a run that has no such stage
        with _reading:
            if self.name not in vars(held):
                vars(held)[self.name] = held.read_stage(self.name)
            return vars(held)[self.name]


def _later() -> Any:
    """As whatever type the field has."""
    return _Later()


class _Texts:
    """Stages that stay deflated text until they are looked at.

    To call the answer of a small convolution net took 20 MiB more with all of them.
    """

    def keep_texts(self, folder: Path, texts: Mapping[str, bytes]) -> None:
        """Read the stages of this class from these texts, once they are looked at."""
        own = [k for k, v in vars(type(self)).items() if isinstance(v, _Later)]
        vars(self).update(_folder=folder, _texts={k: texts[k] for k in own if k in texts})
        for key in own:
            vars(self).pop(key)

    def read_stage(self, key: str) -> Any:
        """A stage from its text, None if there is none; EqsatError (E309) if it cannot be read."""
        texts: dict[str, bytes] = vars(self)["_texts"]
        return _read(vars(self)["_folder"], key, texts.pop(key)) if key in texts else None


class SavedSource(_Texts, Source):
    """The program of a saved run, which is not what is called."""

    program = _later()


class SavedRun(_Texts, Run):
    """A run read from its folder, of which `schedule` and `target` are read at once.

    unchecked: the plug-in that is not installed, without which a schedule cannot be made again and
    compared: the run can be looked at, and does not execute.
    """

    unchecked: EqsatError | None = None

    @cached_property
    def executable(self) -> Executable:
        """As of a run; EqsatError (E601) if a plug-in is missing."""
        if self.unchecked is not None:
            raise self.unchecked
        return super().executable

    rules = _later()
    canonical = _later()
    family = _later()
    egraph = _later()
    selection = _later()
    baseline = _later()
    baseline_schedule = _later()
    mesh_plan = _later()
    measured = _later()
    checked = _later()
    curve = _later()
    orders = _later()

    def read_stage(self, key: str) -> Any:
        """As of `_Texts`; older runs did not keep the names of values in the e-graph."""
        found = super().read_stage(key)
        if key != "egraph" or found is None or found.names:
            return found
        return replace(found, names=self.canonical.value_names)


def _read(folder: Path, key: str, text: bytes) -> Any:
    with _readable(folder):
        return READERS[key](_data(text))


def _data(text: bytes) -> Any:
    """What deflated JSON says."""
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
    import eqsat.plan.planner  # noqa: F401 - its modules make the kinds of plans known
    from eqsat.execute.convention import Convention
    from eqsat.execute.verdict import Verification
    from eqsat.frontends.opaque import OpaqueCall

    place = Path(folder)
    held = read_folder(place)
    texts = held.texts
    with _readable(place):
        options = _data(texts["manifest"])["options"]
        goals = tuple(restored(GoalRequest, g) for g in options["goals"])
        search = {k: options[k] for k in ("time_limit", "seed", "threads")}
        search["extractor"] = options.get("extractor", "cpsat")  # runs of before have none
        seconds, limits = options["seconds"], Limits.of(options.get("limits"))
        fixed = dict(options.get("sizes", {}))
        checked, verified = options.get("rule_check"), options["verification"]
        rule_check = None if checked is None else RuleCheck.from_json(checked)
        verification = None if verified is None else restored(Verification, verified)
        machine = _read(place, "target", texts["target"])
        schedule = _read(place, "schedule", texts["schedule"]) if "schedule" in texts else None
        compiled = _read_compiled(texts)
        missing = [k for k in ("program", "canonical", "rules") if k not in texts]
        if missing:
            raise KeyError(FILES[missing[0]])
    opaque = {k: OpaqueCall.load(data) for k, data in held.opaque.items()}
    later: Any = None  # until `keep_texts`
    source = SavedSource(later, held.weights, opaque, fixed=fixed)
    source.keep_texts(place, texts)
    run = SavedRun(
        source, later, machine, later, goals, seconds, search, limits,
        rule_check, schedule=schedule, packed_file=held.packed,
        judged=bool(options.get("judged")), use=RunUse({}, verification, compiled),
    )  # fmt: skip
    run.keep_texts(place, texts)
    if "convention" in texts:
        with _readable(place):
            vars(run)["convention"] = Convention.from_json(_data(texts["convention"]))
    if "bodies" in texts:
        with _readable(place):
            vars(run)["bodies"] = _bodies_from_json(_data(texts["bodies"]), run)
    with uncollected():
        try:
            _check_stages(run, place, texts)
        except EqsatError as why:
            if why.diagnostics[0].code != NO_PLUGIN:
                raise
            vars(run)["unchecked"] = why
    return run


def _check_stages(run: SavedRun, place: Path, texts: Mapping[str, bytes]) -> None:
    """Whether the stages follow from the e-graph; they are read for it and not kept.

    EqsatError (E314) if they do not.
    """
    manifest = _data(texts["manifest"])
    names = (*_CHECKED, *_INPUT) if "mesh_plan" in texts else _CHECKED
    read = {k: _read(place, k, texts[k]) for k in names if k in texts}
    whole = Stages(run.target, **read, schedule=run.schedule, judged=run.judged)
    found = stage_faults(whole)
    for path, body in run.bodies.items():
        found += [f"{path}: {f}" for f in stage_faults(stages_of(body))]
    if found:
        told = f"`{place}` is not what eqsat makes of its e-graph: {'; '.join(found[:SHOWN])}"
        by = manifest["versions"].get("eqsat", "?")
        other = f"; it was saved by other code, eqsat {by}, which may have chosen otherwise"
        help = f"search again: `eqsat optimize PROGRAM -o {place}`, or `eqsat experiment FILE` for"
        is_own = manifest.get("code") == code_digest()
        raise fail("E314", told + ("" if is_own else other), help=f"{help} a row of a store")


def _read_compiled(texts: Mapping[str, bytes]) -> Compiled | None:
    """What compilers told of the run, which is no stage of its search."""
    return Compiled.from_json(_data(texts["compiled"])) if "compiled" in texts else None


def _named(stages: dict[str, Any], canonical: Program) -> dict[str, Any]:
    """With the names of values in the e-graph, which older runs did not keep there."""
    egraph = stages.get("egraph")
    if egraph is None or egraph.names:
        return stages
    return stages | {"egraph": replace(egraph, names=canonical.value_names)}


def _bodies_from_json(data: Sequence[dict[str, Any]], whole: Run) -> dict[str, Run]:
    """What `Run.save` wrote of bodies."""
    found: dict[str, Run] = {}
    free = replace(whole.target, budget=(), mesh=None)
    for d in data:
        stages = {k: READERS[k](v) for k, v in d["stages"].items()}
        source = Source(stages.pop("program"), {}, whole.source.opaque)
        goals = tuple(restored(GoalRequest, g) for g in d["goals"])
        rest = (free, whole.rules, goals, d["seconds"], d["search"], whole.limits)
        bodies = _bodies_from_json(d["bodies"], whole)
        canonical = stages.pop("canonical")
        run = Run(source, canonical, *rest, **_named(stages, canonical), bodies=bodies)
        found |= dict.fromkeys(d["paths"], run)
    return found


# ---- is it what eqsat makes of its e-graph -------------------------------------------------------
# what reading the figures of a stranger may raise
STRANGE = (
    ArithmeticError, AssertionError, AttributeError, EqsatError, LookupError, RecursionError,
    TypeError, ValueError,
)  # fmt: skip
NO_PLUGIN = "E601"


@dataclass(frozen=True)
class Stages:
    """What one search made, as it was read.

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
    """What they say that does not follow from the e-graph and the target; nothing if all does.

    EqsatError (E601) if that takes a plug-in that is not installed.
    """
    stage = "egraph"
    found: list[str] = []
    try:
        for stage, fault in _found(stages):
            found.append(f"`{FILES[stage]}`: {fault}")
    except STRANGE as e:
        if isinstance(e, EqsatError) and e.diagnostics[0].code == NO_PLUGIN:
            raise
        found.append(f"a stage behind `{FILES[stage]}` makes no sense: {type(e).__name__}: {e}")
    return found


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
    for chosen, selection, made, schedule in pairs:
        plans = [] if schedule is None else list(replanned_faults(schedule, run.target))
        if selection is None or plans:
            yield from ((made, f) for f in plans)
            continue
        illegal = [] if run.judged else check(run.egraph, run.target, selection)
        yield from ((chosen, f) for f in illegal)
        if schedule is not None and not illegal:
            rest = run.egraph, selection, run.target
            yield from ((made, f) for f in rebuilt_differences(schedule, *rest))
