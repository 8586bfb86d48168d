"""Is a planner or generator that is wrong by one told? Mutants of their functions in, verdicts out.

The cases are those of `edges`: programs at the edges of their sizes, each planned for a machine. A
mutant runs in a process of its own on the cases that reach its line. Their nests and plans are held
against the ops by the checks of the product, and what is generated otherwise than before is called
between guard pages and held to the meaning of its program.
"""

from __future__ import annotations

import importlib
import logging
import os
import random
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from eqsat.execute.kernels.compiler import CannotCompile
from eqsat.execute.kernels.kernel import generate
from eqsat.lang.programs import parse_program
from eqsat.model.dispatch import Plan
from eqsat.model.nest import Nest, NoNest
from eqsat.model.program import Program
from eqsat.plan.plancheck import plan_faults
from eqsat.plan.planner import plan
from fuzz import codemutants, edges, guarded
from fuzz.codemutants import CodeMutant, mutants_of

Row = dict[str, Any]
PARTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "nests": ("eqsat.ops.nests", ("draft", "finish", "loops", "nest")),
    "planner": (
        "eqsat.plan",
        (
            "blocks", "contraction", "passes", "roles", "rowblocks", "rowroles", "rows", "stages",
            "strips", "tiling", "windows",
        ),
    ),
    "generator": (
        "eqsat.execute.kernels",
        (
            "contraction", "copies", "epilogue", "frame", "fused", "ir", "kernel", "kinds", "lanes",
            "matvec", "points", "rowblocks", "rowpass", "rowpasses", "rows", "tiles", "wide",
        ),
    ),
}  # fmt: skip
CHECKED, EXECUTED = 48, 24  # cases of a mutant that are planned, and of these the ones that run
CPU_SECONDS, BYTES = 30, 8 << 30  # of one mutant
REFUSED = "the check refuses"
_LOG = logging.getLogger("eqsat.check")  # what a check refuses is said there, whatever runs instead


@dataclass(frozen=True)
class Own:
    """What the code as it is makes of a case: nothing but `why` if it is no kernel."""

    edge: edges.Edge
    program: Program
    nest: Nest | None = None
    plan: Plan | None = None
    ir: str = ""
    why: str = ""


@dataclass(frozen=True)
class Known:
    """All cases, and the cases that reach a line of a file."""

    cases: tuple[Own, ...]
    reached: dict[tuple[str, int], list[int]] = field(repr=False)
    alarms: tuple[str, ...] = ()  # what the checks say of the code as it is

    def reaching(self, mutant: CodeMutant) -> list[int]:
        file = _file(mutant.module)
        return self.reached.get((file, mutant.line), [])


def _file(module: str) -> str:
    return str(importlib.import_module(module).__file__)


def modules(parts: Sequence[str] = tuple(PARTS)) -> Iterator[tuple[str, str]]:
    """(part, module)"""
    for part in parts:
        package, names = PARTS[part]
        yield from ((part, f"{package}.{name}") for name in names)


def known(numbers: range, kinds: Sequence[str] = edges.KINDS) -> Known:
    """The cases of these sizes as the code makes them now, and which lines each of them reaches."""
    files = {_file(m) for _, m in modules()}
    cases: list[Own] = []
    alarms: list[str] = []
    reached: dict[tuple[str, int], list[int]] = {}
    for edge in edges.cases(kinds, numbers):
        lines: set[tuple[str, int]] = set()
        _forget()
        with _traced(files, lines):
            own = _made(edge, parse_program(edge.text))
        if own.nest is None or own.plan is None:
            alarms += [f"{edge}: {own.why}"] if REFUSED in own.why else []
            continue
        if fault := next(plan_faults(own.nest, own.plan), ""):
            alarms.append(f"{edge}: {fault}")
            continue
        for line in lines:
            reached.setdefault(line, []).append(len(cases))
        cases.append(own)
    return Known(tuple(cases), reached, tuple(alarms))


def _made(edge: edges.Edge, program: Program) -> Own:
    machine = edges.MACHINES[edge.machine]
    try:
        with edges.small_items(), np.errstate(all="ignore"):
            nest = edges.whole_nest(program)
            chosen = plan(nest, machine)
            ir = generate(nest, chosen, machine, "edge").ir
    except NoNest as why:
        return Own(edge, program, why=str(why))
    return Own(edge, program, nest, chosen, ir)


class _traced:
    """Collects the lines of some files that run inside."""

    def __init__(self, files: set[str], lines: set[tuple[str, int]]):
        self.files, self.lines = files, lines

    def __enter__(self) -> None:
        sys.settrace(self._call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._line if frame.f_code.co_filename in self.files else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line


def _forget() -> None:
    codemutants.forget([m for name, m in sys.modules.items() if name.startswith("eqsat.")])


def drawn(
    found: Known, each: int, seed: int, parts: Sequence[str]
) -> Iterator[tuple[str, CodeMutant]]:
    """(part, mutant): `each` of a module at most, on lines that a case reaches."""
    for part, module in modules(parts):
        every = [m for m in mutants_of(module) if found.reaching(m)]
        rng = random.Random(f"{seed} {module}")
        yield from ((part, m) for m in rng.sample(every, min(each, len(every))))


# ---- one mutant ----------------------------------------------------------------------------------
def verdict(mutant: CodeMutant, found: Known) -> Row:
    """What became of a mutant, in a process of its own."""
    context = get_context("fork")
    pipe, end = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(mutant, found, end))
    process.start()
    end.close()
    row: Row = {"mutant": str(mutant), "kind": mutant.kind}
    while True:
        try:
            row |= pipe.recv()
        except EOFError:
            break
    process.join()
    if process.exitcode == guarded.STRAYED:
        row["wrong"] = f"{row.pop('running', '?')}: {row.get('stray', 'strays')}"
    elif process.exitcode:
        row["wrong"] = f"{row.pop('running', '?')}: ended by {-process.exitcode}"
    row.pop("running", None)
    return row | {"verdict": judged(row)}


def judged(row: Row) -> str:
    """One word for what became of a mutant."""
    if row.get("refused"):
        return "refused"
    if row.get("wrong"):
        return "caught"
    if row.get("crashes"):
        return "crashes"
    if row.get("differ"):
        return "right"
    return "raises" if row.get("raises") else "same"


def limited() -> None:
    """A process in which anything may go wrong: it ends, and says nothing itself."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _LOG.handlers[:], _LOG.propagate = [_SAID], False
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)


def _child(mutant: CodeMutant, found: Known, pipe: Connection) -> None:
    limited()
    guarded.tell_strays(lambda text: pipe.send({"stray": text}))
    reaching = found.reaching(mutant)
    rng = random.Random(str(mutant))
    some = rng.sample(reaching, min(CHECKED, len(reaching)))
    with codemutants.applied(mutant):
        _forget()
        _look([found.cases[i] for i in some], pipe.send)
    pipe.close()
    os._exit(0)


def _look(cases: Sequence[Own], tell: Callable[[Row], None]) -> None:
    """First what the checks say of all cases, then what the kernels write that differ."""
    counts: Counter[str] = Counter()
    texts: Row = {}
    open_: list[tuple[Own, Own]] = []
    for own in cases:
        tell({"running": str(own.edge)})
        kind, text, now = _checked(own)
        counts[kind] += 1
        texts.setdefault(kind, text)
        if now is not None:
            open_.append((own, now))
    tell({**counts, "cases": len(cases), "texts": {k: t for k, t in texts.items() if t}})
    slipped = ran = 0
    for own, now in open_[: EXECUTED if not counts["refused"] else 4]:
        tell({"running": str(own.edge)})
        wrong = executed(now)
        ran += 1
        if wrong:
            slipped += 1
            tell({"wrong": f"{own.edge}: {wrong}"})
            break
    tell({"executed": ran, "slipped": slipped})


class _Said(logging.Handler):
    """Keeps what was said last."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage().partition("\n")[0]


_SAID = _Said()


def _checked(own: Own) -> tuple[str, str, Own | None]:
    """(refused | raises | crashes | same | differ, words, what is made instead)

    A nest that its check refuses is refused, though another one may be found then.
    """
    _SAID.last = ""
    try:
        now = _once(own)
        assert now.nest is not None and now.plan is not None
        fault = _SAID.last or next(plan_faults(now.nest, now.plan), "")
    except NoNest as why:
        kind = "refused" if _SAID.last else "raises"  # pyrefly: ignore[redundant-condition] `_once` logs
        return kind, f"{own.edge}: {_SAID.last or why}", None
    except Exception as error:  # a mutant may do anything
        return "crashes", f"{own.edge}: {type(error).__name__}: {error}", None
    if fault:
        return "refused", f"{own.edge}: {fault}", None
    return ("same", "", None) if now.ir == own.ir else ("differ", str(own.edge), now)


def _once(own: Own) -> Own:
    machine = edges.MACHINES[own.edge.machine]
    with edges.small_items(), np.errstate(all="ignore"):
        nest = edges.whole_nest(own.program)
        chosen = plan(nest, machine)
        return Own(own.edge, own.program, nest, chosen, generate(nest, chosen, machine, "edge").ir)


def executed(now: Own) -> str:
    """What is wrong with what a kernel writes; "" if nothing is."""
    assert now.nest is not None and now.plan is not None
    program, machine = now.program, edges.MACHINES[now.edge.machine]
    inputs = edges.drawn(program)
    given = dict(zip(program.inputs, inputs, strict=True))
    types = {r: program.nodes[r].type for r in program.results}
    try:
        with np.errstate(all="ignore"):
            for written in edges.kernel_runs(now.nest, now.plan, machine, given, types):
                results = {program.results.index(w): x for w, x in written}
                if wrong := edges.differs(program, inputs, results):
                    return wrong
    except CannotCompile as why:
        return f"LLVM refuses it: {why}"
    except Exception as error:  # a mutant may do anything
        return f"{type(error).__name__}: {error}"
    return ""
