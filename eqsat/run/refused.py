"""Dispatches that a compiler refused → rows of a target, so that no later answer has them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from eqsat.execute.compilers.ask import refused_dispatches
from eqsat.lang.targets import find_target, load_target
from eqsat.model.compiled import RefusedDispatch
from eqsat.model.diag import EqsatError, fail
from eqsat.model.files import read_text, write_text
from eqsat.model.schedule import Schedule
from eqsat.model.target import CompilerRefusal, Target
from eqsat.schedule.fused import OneDispatch

MARK = "# Refusals that `eqsat compile` recorded."
LARGEST = 1 << 24


def logged_dispatches(log: Path) -> tuple[RefusedDispatch, ...]:
    """The dispatches that a compiler's recorded errors name, by lines of the module they are about.

    The module is one that `eqsat export --to mlir` wrote, beside the log or where its errors say.
    EqsatError E466 if none is named.
    """
    refused = refused_dispatches(
        read_text(log, "E466", LARGEST), lambda file: _module_lines(log, file)
    )
    if not refused:
        raise fail(
            "E466",
            f"`{log}` names no dispatch: none of its lines is `FILE:LINE:COLUMN: error: …` about an"
            " exported module",
            help="say which one it was: `--dispatch N`",
        )
    return refused


def _module_lines(log: Path, file: str) -> Sequence[str]:
    for path in (Path(file), log.parent / file):
        if path.is_file():
            return read_text(path, "E466", LARGEST).splitlines()
    message = f"`{log}` has errors about `{file}`, which is not here"
    raise fail("E466", message, help="put the exported module beside the log")


def logged_about(log: Path, dispatch: int) -> tuple[RefusedDispatch, ...]:
    """What a log says, as said about this dispatch: its first line."""
    lines = [line.strip() for line in read_text(log, "E466", LARGEST).splitlines() if line.strip()]
    if not lines:
        raise fail("E466", f"`{log}` is empty", help="it has to hold what the compiler said")
    return (RefusedDispatch(dispatch, lines[0]),)


def refusals_of(
    schedule: Schedule, target: Target, refused: Iterable[RefusedDispatch], source: str
) -> tuple[CompilerRefusal, ...]:
    """Rows of a target; EqsatError E466 for a dispatch that the schedule does not have."""
    rows = []
    for r in refused:
        if not 0 <= r.dispatch < len(schedule.dispatches):
            has = f"it has {len(schedule.dispatches)}, counted from 0"
            raise fail("E466", f"the run has no dispatch {r.dispatch}: {has}")
        dispatch = schedule.dispatches[r.dispatch]
        ops = OneDispatch(r.dispatch, dispatch, schedule.program, target).op_texts
        rows.append(
            CompilerRefusal(ops, r.says, f"{source}, dispatch {r.dispatch} ({dispatch.name})")
        )
    return tuple(rows)


def _named(target: Target) -> str:
    """A target by its name where that finds it, else by its file."""
    try:
        is_named = Path(find_target(target.name)).samefile(target.file)
    except (EqsatError, OSError):
        is_named = False
    return target.name if is_named else target.file


def record(file: Path, target: Target, rows: Sequence[CompilerRefusal]) -> int:
    """Write a target that extends another one with rows; the number of those that are new.

    target: of the run. A file that is there keeps its rows and what it extends. EqsatError E467 for
    a file that this did not write.
    """
    base, before = _named(target), target.refused
    if file.exists():
        text = read_text(file, "E467", LARGEST)
        if not text.startswith(MARK):
            what = f"`{file}` was not written by `eqsat compile` and is left alone"
            raise fail("E467", what, help="write to another file with `--refusals`")
        before = load_target(file).refused
        base = text.split("extends: ", 1)[1].splitlines()[0]
    new = [r for r in rows if r.ops not in {b.ops for b in before}]
    every = [*before, *new]
    lines = [MARK, f"target: {file.stem}", f"extends: {base}", "refused:"]
    for r in every:
        ops = [f"      - {json.dumps(op, ensure_ascii=False)}" for op in r.ops]
        lines += ["  - ops:", *ops, f"    says: {json.dumps(r.says, ensure_ascii=False)}"]
        lines += [f"    source: {json.dumps(r.source, ensure_ascii=False)}"]
    write_text(file, "\n".join(lines) + "\n")
    return len(new)
