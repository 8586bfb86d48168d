"""The one home of `iree.compiler`: MLIR text → a verified module of linalg, arith and tensor ops.

linalg has no precisions, so an attribute of ours says it, or a location.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.frontends.mlir.source import ModuleText
from eqsat.model.diag import EqsatError, Span, did_you_mean, fail
from eqsat.model.tensor import (
    DEFAULT,
    HIGHEST,
    LEVELS,
    PRECISIONS,
    algorithm_name,
    most_accurate,
)

if TYPE_CHECKING:
    from eqsat.frontends.mlir.items import Environment

# ---- precisions ----------------------------------------------------------------------------------
ATTRIBUTE = "eqsat.precision"
_CONTRACTIONS = frozenset(f"stablehlo.{n}" for n in ("dot", "dot_general", "convolution"))
_SAID = frozenset({"precision_config", "algorithm"})  # their attributes
_NAMED = re.compile(rf'"{re.escape(ATTRIBUTE)}=(\w+)"')
_FIELD = re.compile(r"(\w+) = (\w+)")


def stablehlo_precision(op: Any, where: Span | None) -> str:
    """The precision a StableHLO op asks for: its algorithm, or the more accurate of its two.

    EqsatError E375 for an algorithm that programs have no name for.
    """
    if "algorithm" in op.attributes:
        text = str(op.attributes["algorithm"])
        name = _algorithm(dict(_FIELD.findall(text)))
        if name is None:
            raise fail("E375", f"`{op.name}` asks for `{text}`, which has no name here", where)
        return name
    if "precision_config" not in op.attributes:
        return DEFAULT
    words = re.findall(r"[A-Z]+", str(op.attributes["precision_config"]))
    return most_accurate(w.lower() for w in words if w.lower() in LEVELS)


def _algorithm(fields: dict[str, str]) -> str | None:
    lhs, rhs, accumulator = (
        fields[f"{key}_type"].lower() for key in ("lhs_precision", "rhs_precision", "accumulation")
    )
    counts = [int(fields[f"{side}_component_count"]) for side in ("lhs", "rhs")]
    fast = fields["allow_imprecise_accumulation"] == "true"
    products = int(fields["num_primitive_operations"])
    return algorithm_name(lhs, rhs, accumulator, products, fast) if counts == [1, 1] else None


def marked(ops: Iterable[Any], ir: Any, place: Any) -> bool:
    """Write the precisions of these ops into their locations; False if all are default.

    place: gives the span of a location. Ops that differ in nothing else get the most accurate of
    their precisions: IREE's pipeline takes them for one, and keeps either.
    """
    alike: dict[Any, list[tuple[Any, str]]] = {}
    for op in (o for o in ops if o.name in _CONTRACTIONS):
        alike.setdefault(_without_precision(op), []).append(
            (op, stablehlo_precision(op, place(op.location)))
        )
    is_marked = False
    for same in alike.values():
        precision = _one_of({p for _, p in same})
        for op, _ in same if precision != DEFAULT else ():
            op.location = ir.Location.name(f"{ATTRIBUTE}={precision}", op.location)
            is_marked = True
    return is_marked


def _without_precision(op: Any) -> Any:
    """The text of an op, its precision aside."""
    rest = tuple((k, str(op.attributes[k])) for k in sorted(op.attributes) if k not in _SAID)
    return op.name, tuple(op.operands), rest, tuple(str(r.type) for r in op.results)


def _one_of(precisions: set[str]) -> str:
    if len(precisions) == 1:
        return next(iter(precisions))
    return most_accurate(precisions) if precisions <= set(LEVELS) else HIGHEST


def op_precision(scope: Environment, op: Any) -> str:
    """The precision of a linalg op; EqsatError E375 if its attribute holds no name of one."""
    if ATTRIBUTE in op.attributes:
        name = str(getattr(op.attributes[ATTRIBUTE], "value", op.attributes[ATTRIBUTE]))
        if name not in PRECISIONS:
            message = f"`{op.name}` asks for the precision `{name}`, which does not exist"
            raise scope.fail("E375", message, op, help=did_you_mean(name, PRECISIONS))
        return name
    match = _NAMED.search(str(op.location))
    return match[1] if match and match[1] in PRECISIONS else DEFAULT


# ---- the parser ----------------------------------------------------------------------------------
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
            names = " and ".join(sorted(kinds))
            raise fail("E378", f"`{source.file}` mixes {names}, which no pipeline of IREE reads")
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
    operations: list[Any] = []

    def note(op: Any) -> Any:
        operations.append(op)
        return ir.WalkResult.ADVANCE

    operation.walk(note, ir.WalkOrder.PRE_ORDER)
    return operations


def _compile(source: ModuleText, text: str, *flags: str) -> subprocess.CompletedProcess[bytes]:
    """`iree-compile` on the text; EqsatError E371 if it crashes or does not end."""
    import iree.compiler

    tool = Path(iree.compiler.__file__).parent / "_mlir_libs" / "iree-compile"
    command = [str(tool), "-", "-o", "-", "--mlir-print-debuginfo", *flags]
    command += ["--mlir-print-op-on-diagnostic=false", "--emit-mlir-bytecode"]
    try:
        process = subprocess.run(
            command, input=text.encode(), capture_output=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        why = f"IREE has not read `{source.file}` after {SECONDS} s"
        raise fail("E371", why, help="give a smaller program") from None
    except OSError as error:
        raise fail("E372", f"`{tool}` cannot be run: {error}") from None
    if process.returncode < 0 or process.returncode >= 128:
        why = f"the MLIR parser gives up on `{source.file}`, which is no program"
        raise fail("E371", why, help="check it with `iree-compile --compile-to=input`")
    return process


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
    process = _compile(source, text, "--compile-to=input", "--iree-input-type=auto")
    if process.returncode:
        raise _refused(source, "E378", process.stderr, f"cannot be lowered from {kind} by IREE")
    return process.stdout


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
    match = re.search(r'loc\("-":(\d+):(\d+)', str(location)) or re.search(
        r'"(?:-|<stdin>)":(\d+):(\d+)', str(location)
    )
    return source.span(int(match[1]), int(match[2])) if match else None


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
