"""The one home of `iree.compiler`: MLIR text → a verified module of linalg, arith and tensor ops.

A module in another input dialect (StableHLO, TOSA, torch) is lowered by IREE's own pipeline, in a
process of its own: a pipeline that gives up then ends there. So does the parser, which every text
meets there first. Nothing of the module is executed, and no file that it names is opened.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from eqsat.frontends.mlir.precision import marked
from eqsat.frontends.mlir.source import ModuleText
from eqsat.model.diag import EqsatError, Span, fail

SECONDS = 120  # of one process
INPUT_DIALECTS = {
    "stablehlo": "stablehlo",
    "vhlo": "stablehlo",
    "chlo": "stablehlo",
    "tosa": "tosa",
    "torch": "torch",
    "torch_c": "torch",
    "tm_tensor": "torch",
}
_GENERALISE = (
    "builtin.module(func.func(linalg-generalize-named-ops),util.func(linalg-generalize-named-ops))"
)
_PLACE = re.compile(r"^(?:<stdin>|-):(\d+):(\d+): error: (.*)$", re.M)


def parse_module(source: ModuleText) -> Any:
    """The module, named linalg ops as generics; keep its context alive with it.

    Raises EqsatError: E370 not MLIR, E371 too much for the parser, E372 the extra is missing,
    E378 the pipelines of IREE cannot lower it.
    """
    ir = _ir()
    _guard(source)
    context = ir.Context()
    with context:
        module = _parsed(ir, source, source.text)
        dialects = {op.name.partition(".")[0] for op in every_operation(ir, module.operation)}
        kinds = {INPUT_DIALECTS[d] for d in sorted(dialects & INPUT_DIALECTS.keys())}
        if len(kinds) > 1:
            found = " and ".join(sorted(kinds))
            raise fail("E378", f"`{source.file}` mixes {found}, which no pipeline of IREE reads")
        if kinds:
            module = ir.Module.parse(_lowered(source, kinds.pop(), _text(ir, source, module)))
        _generalise(source, module)
    return module


def _ir() -> Any:
    try:
        from iree.compiler import ir
    except ImportError as error:
        raise fail(
            "E372",
            f"MLIR files are read by IREE's compiler, which cannot be imported: {error}",
            help="pip install 'eqsat[mlir]'",
        ) from None
    return ir


def every_operation(ir: Any, operation: Any) -> list[Any]:
    """An operation and all below it, outermost first.

    In one call: stepping through a block looks for a Python class of every op, on disk.
    """
    found: list[Any] = []

    def note(op: Any) -> Any:
        found.append(op)
        return ir.WalkResult.ADVANCE

    operation.walk(note, ir.WalkOrder.PRE_ORDER)
    return found


def _compile(source: ModuleText, text: str, *flags: str) -> subprocess.CompletedProcess[bytes]:
    """`iree-compile` on the text; EqsatError E371 if it crashes or does not end."""
    import iree.compiler

    tool = Path(iree.compiler.__file__).parent / "_mlir_libs" / "iree-compile"
    command = [str(tool), "-", "-o", "-", "--mlir-print-debuginfo", *flags]
    command += ["--mlir-print-op-on-diagnostic=false", "--emit-mlir-bytecode"]
    try:
        found = subprocess.run(
            command, input=text.encode(), capture_output=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        why = f"IREE has not read `{source.file}` after {SECONDS} s"
        raise fail("E371", why, help="give a smaller program") from None
    except OSError as error:
        raise fail("E372", f"`{tool}` cannot be run: {error}") from None
    if found.returncode < 0 or found.returncode >= 128:
        why = f"the MLIR parser gives up on `{source.file}`, which is no program"
        raise fail("E371", why, help="check it with `iree-compile --compile-to=input`")
    return found


def _guard(source: ModuleText) -> None:
    """Let a process of its own read the text first: what it dies of must not end this one."""
    _compile(source, source.text, "--compile-to=input", "--iree-input-type=none")


def _text(ir: Any, source: ModuleText, module: Any) -> str:
    """The text that is lowered: where an op asks for a precision, its location says so."""

    def place(location: Any) -> Span | None:
        return place_of(source, location)

    if not marked(every_operation(ir, module.operation), ir, place):
        return source.text
    return module.operation.get_asm(enable_debug_info=True)


def _lowered(source: ModuleText, kind: str, text: str) -> bytes:
    """The module in bytecode after IREE's input pipeline for this kind of dialect."""
    found = _compile(source, text, "--compile-to=input", "--iree-input-type=auto")
    if found.returncode:
        raise _refused(source, "E378", found.stderr, f"cannot be lowered from {kind} by IREE")
    return found.stdout


def _refused(source: ModuleText, code: str, said: bytes, otherwise: str) -> EqsatError:
    text = said.decode(errors="replace")
    place = _PLACE.search(text)
    if place is None:
        first = next((line for line in text.splitlines() if "error" in line), "")
        return fail(code, f"`{source.file}` {otherwise}: {first[:200]}".rstrip(": "))
    message = place[3].strip().rstrip(".")
    return fail(code, _sentence(message), source.span(int(place[1]), int(place[2])))


def _sentence(message: str) -> str:
    return message[:400] or "the text ends too early"


def _parsed(ir: Any, source: ModuleText, text: str) -> Any:
    try:
        return ir.Module.parse(text)
    except ir.MLIRError as error:
        first = error.error_diagnostics[0] if error.error_diagnostics else None
        if first is None:
            raise fail("E370", f"`{source.file}` is not MLIR that IREE reads") from None
        raise fail("E370", _sentence(first.message), place_of(source, first.location)) from None


def place_of(source: ModuleText, location: Any) -> Span | None:
    """Where an op stands in the user's file; passes wrap locations, the innermost is the text's."""
    found = re.search(r'loc\("-":(\d+):(\d+)', str(location)) or re.search(
        r'"(?:-|<stdin>)":(\d+):(\d+)', str(location)
    )
    return source.span(int(found[1]), int(found[2])) if found else None


def _generalise(source: ModuleText, module: Any) -> None:
    """Named ops of linalg become generics, so that one reader serves all of them."""
    import iree.compiler.passmanager as passes

    manager: Any = passes
    try:
        manager.PassManager.parse(_GENERALISE).run(module.operation)
    except _ir().MLIRError as error:
        first = error.error_diagnostics[0] if error.error_diagnostics else None
        why = _sentence(first.message) if first else "linalg's named ops cannot be generalised"
        where = place_of(source, first.location) if first else None
        raise fail("E378", why, where) from None


def parse_attribute(op: Any, text: str) -> Any:
    """An attribute from its text, in the context of an operation."""
    return _ir().Attribute.parse(text, op.context)
