"""What the tests of exports share: programs, and several MLIR functions in one module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import iree_oracle
import numpy as np
from fuzz.worst import worst_error

from eqsat.execute.rounding import error_limit
from eqsat.export.write import export
from eqsat.lang.programs import parse_program
from eqsat.model.program import Program
from eqsat.ops.meaning.scalar import FUNCTIONS, INTEGER_ONLY

Array = np.ndarray[Any, Any]


def function_text(program: Program, weights: Mapping[str, Array]) -> str:
    """The function of an export, without the module around it; weights are constants in place."""
    text = export(program, "mlir", weights, {}, weights="constants").data.decode()
    return text.removeprefix("module {\n").removesuffix("}\n")


def in_iree(programs: Sequence[tuple[Program, Mapping[str, Array], list[Array]]]) -> list[Any]:
    """The results of each program, all compiled as one module."""
    named = [(replace(p, name=f"p{i}"), w, xs) for i, (p, w, xs) in enumerate(programs)]
    text = "module {\n" + "".join(function_text(p, w) for p, w, _ in named) + "}\n"
    return [iree_oracle.run(text, inputs, function=p.name) for p, _, inputs in named]


def check(program: Program, got: Sequence[Any], wanted: Sequence[Array], least: float) -> None:
    """Within `least`, or what the element types allow; integers and bools are equal."""
    limit = max(least, error_limit(program))
    for a, b in zip(got, wanted, strict=True):
        array = np.asarray(a)
        if b.dtype.kind in "ui" and array.dtype != b.dtype:
            array = array.view(b.dtype)  # MLIR's integers have no sign
        error, where = worst_error(array, b)
        assert error <= limit, (program.name, error, where, str(program))


# ---- every function of floats --------------------------------------------------------------------
UNSAID = frozenset({"erf_inv", "nextafter"})  # functions that neither language has
INTEGER = frozenset(FUNCTIONS) & INTEGER_ONLY
FLOATING = sorted(FUNCTIONS.keys() - UNSAID - INTEGER)


def domain(name: str) -> tuple[float, float]:
    """Where a function is defined and tame."""
    return (1.1, 3.0) if name in ("acosh", "pow") else (0.01, 0.95)


def function_case(*functions: str) -> tuple[Program, dict[str, Array], list[Array]]:
    """A program that applies functions of one arity and domain, no weights, and arguments."""
    arity = FUNCTIONS[functions[0]].arity
    names = [f"x{i}" for i in range(arity)]
    bodies = [f"{f}({', '.join(names)})" for f in functions]
    bodies = [b if not b.startswith("select") else "select(lt(x0, x1), x1, x2)" for b in bodies]
    inputs = "".join(f"input {x}: f32[6]\n" for x in names)
    maps = ", ".join(["[d0]"] * arity)
    body = f"[{', '.join(bodies)}]" if len(bodies) > 1 else bodies[0]
    node = f"generic({', '.join(names)}, loops=[6], maps=[{maps}], body={body})"
    results = [f"%{arity + 1 + i}" for i in range(len(bodies))]
    picks = "".join(f"{r} = result(%{arity}, index={i})\n" for i, r in enumerate(results))
    end = f"{picks}return {', '.join(results)}" if len(bodies) > 1 else f"return %{arity}"
    program = parse_program(f"program p\n{inputs}%{arity} = {node}\n{end}\n")
    rng = np.random.default_rng(3)
    given = [rng.uniform(*domain(functions[0]), 6).astype(np.float32) for _ in names]
    return program, {}, given


def function_groups() -> list[list[str]]:
    """All functions of floats, those of one arity and domain together."""
    found: dict[Any, list[str]] = {}
    for name in FLOATING:
        found.setdefault((FUNCTIONS[name].arity, domain(name)), []).append(name)
    return list(found.values())
