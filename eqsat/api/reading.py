"""From a user's words (a file, `x.py:function`, a name) to a program with its weights."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from eqsat.execute.draw import drawn_weights
from eqsat.frontends.onnxgraph.opensizes import read_sized
from eqsat.frontends.source import Source
from eqsat.frontends.torchgraph import is_exported, is_module, read_exported
from eqsat.model.diag import EqsatError, Span, did_you_mean, fail
from eqsat.model.layout import Border
from eqsat.model.program import Program
from eqsat.model.symbols import check_names
from eqsat.ops.programs.binding import argument_numbers, as_weights


def source_of(
    what: Any, args: tuple[Any, ...], keywords: Mapping[str, Any], weights: Sequence[str]
) -> Source:
    """The argument of `optimize` as a source; a function is traced with these arguments.

    A text names a program, as on the command line.
    """
    if isinstance(what, str):
        if args or keywords:
            message = f"`{what}` names a program, which has its arguments"
            raise fail("E308", message, help="give the function itself to trace it with others")
        return read_spec(what, None, weights)
    if isinstance(what, Program | Source):
        return name_weights(what if isinstance(what, Source) else Source(what), weights)
    if is_exported(what):
        return name_weights(read_exported(what), weights)
    if is_module(what):
        help = (
            'give `torch.export.export(module, args)`, or use `torch.compile(…, backend="eqsat")`'
        )
        raise fail("E308", "a `torch.nn.Module` is no function of JAX", help=help)
    return trace_function(what, args, keywords, tuple(weights))


def read_spec(
    spec: str, sizes: Mapping[str, int] | None = None, weights: Sequence[str] = ()
) -> Source:
    """The program that a spec names, with its weights and opaque calls.

    sizes: the sizes at which open dims are priced, by name. weights: arguments that are weights,
    besides those that the file declares. Raises EqsatError: E261 no such program, E307 not a
    program's file, E308 the Python file or function does not work, E324 no such argument, E36x and
    E37x an ONNX or MLIR file cannot be read, E385 and E386 for sizes that do not fit.
    """
    from eqsat.lang.experiments import find_program

    path, colon, function = find_program(spec).rpartition(":")
    file = Path(path) if colon else Path(function)
    if file.suffix == ".py":
        check_names(sizes, ())
        return _from_python(file, function if colon else "", weights)
    return name_weights(_from_file(file, function if colon else "", spec, sizes), weights)


def _from_file(file: Path, function: str, spec: str, sizes: Mapping[str, int] | None) -> Source:
    if file.suffix == ".mlir":
        return _from_mlir(file, function, sizes)
    if file.suffix not in READERS:
        kinds = ", ".join(f"`{s}`" for s in (*READERS, ".mlir"))
        raise fail("E307", f"`{spec}`: programs are files ({kinds}) or `file.py:function`")
    return READERS[file.suffix](file, sizes)


def name_weights(read: Source, weights: Sequence[str]) -> Source:
    """The source with these of its arguments as weights, whose values are given later.

    Raises EqsatError (E324) if one is no argument, or has a dim that is not known.
    """
    traced = read.traced
    labels = () if traced is None else traced.input_labels
    numbers = argument_numbers(read.program, weights, labels)
    if not numbers:
        return read
    program, keys = as_weights(read.program, numbers)
    traced = None if traced is None else traced.with_weights(program, keys)
    return replace(read, program=program, traced=traced, places=_moved_up(read.places, numbers))


def _moved_up(places: Mapping[Border, Span], gone: Collection[int]) -> dict[Border, Span]:
    """Places by the numbers that arguments have without those that are gone."""
    renumbered = {}
    for border, span in places.items():
        if border.kind == "input" and border.number not in gone:
            number = border.number - sum(g < border.number for g in gone)
            renumbered[Border("input", number)] = span
        elif border.kind == "result":
            renumbered[border] = span
    return renumbered


def _from_text(path: Path, sizes: Mapping[str, int] | None) -> Source:
    from eqsat.lang.programs import load_placed

    program, places = load_placed(path, sizes)
    return Source(program, drawn_weights(program), places=places)


def _from_onnx(path: Path, sizes: Mapping[str, int] | None) -> Source:
    return read_sized(path, sizes)


def _from_mlir(path: Path, function: str, sizes: Mapping[str, int] | None) -> Source:
    from eqsat.frontends.mlir.reader import read_mlir

    read = read_mlir(path, function, sizes)
    weights = {**drawn_weights(read.program, read.weights), **read.weights}
    return Source(read.program, weights, read.opaque, places=read.places)


# suffix of a file → its reader
READERS: dict[str, Callable[[Path, Mapping[str, int] | None], Source]] = {
    ".eqs": _from_text,
    ".onnx": _from_onnx,
}


def _from_python(path: Path, name: str, named: Sequence[str]) -> Source:
    module = _import(path)
    name = name or _only_name(module, path)
    function = _member(module, name, path)
    example = getattr(module, f"{name}_example", None)
    if example is None:
        raise fail(
            "E308",
            f"`{path}` has no `{name}_example`",
            help=f"write `def {name}_example(): return (…)` beside it; it returns the arguments",
        )
    declared = tuple(getattr(module, f"{name}_weights", ()))
    weights = tuple(dict.fromkeys((*declared, *(n.removeprefix("%") for n in named))))
    args = example()
    args = args if isinstance(args, tuple) else (args,)
    return trace_function(function, args, {}, weights, name)


def read_state(spec: str) -> dict[str, int]:
    """The state that a Python program declares: `NAME_state`, argument → number of the result.

    Raises EqsatError: E261 no such program, E397 if it is something else.
    """
    from eqsat.lang.experiments import find_program

    path, colon, function = find_program(spec).rpartition(":")
    file = Path(path) if colon else Path(function)
    if file.suffix != ".py":
        return {}
    module = _import(file)
    name = f"{function if colon else _only_name(module, file)}_state"
    state = getattr(module, name, {})
    if not isinstance(state, dict) or not all(
        isinstance(k, str) and isinstance(v, int) for k, v in state.items()
    ):
        raise fail("E397", f"`{name}` of `{file}` is not a dict from arguments to result numbers")
    return state


def trace_function(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    keywords: Mapping[str, Any],
    weights: tuple[str, ...],
    name: str = "",
) -> Source:
    """Trace a function; arguments named in `weights` are identified by place, not by value.

    So one search serves every set of weights, and a caller may pass others later.
    """
    import jax
    from jax.core import Tracer

    from eqsat.frontends.jaxpr import trace

    function = getattr(function, "given", function)  # of what `eqsat.jit` returned
    given = _shapes_of(function, args, keywords, weights)
    traced = trace(function, *given, weights=weights, name=name)
    flat = traced.flat_weights(args, dict(keywords))
    arrays: dict[str, Any] = {k: w for k, w in flat.items() if isinstance(w, jax.Array | _array())}
    concrete = {k: w for k, w in arrays.items() if not isinstance(w, Tracer)}
    return Source(traced.program, concrete, traced.opaque, traced)


def _array() -> type:
    return np.ndarray


def _shapes_of(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    keywords: Mapping[str, Any],
    weights: tuple[str, ...],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with those named in `weights` replaced by their shapes."""
    import jax

    if not weights:
        return args, dict(keywords)
    names = list(inspect.signature(function).parameters)

    def shapes(x: Any) -> Any:
        return jax.tree_util.tree_map(shape_of, x)

    positional = tuple(
        shapes(a) if i < len(names) and names[i] in weights else a for i, a in enumerate(args)
    )
    return positional, {k: shapes(v) if k in weights else v for k, v in keywords.items()}


def shape_of(x: Any) -> Any:
    """Shape and type as JAX sees them: f64 is f32 without x64, Python scalars are weakly typed."""
    import jax

    try:
        t = x if isinstance(x, jax.ShapeDtypeStruct) else jax.typeof(x)
    except TypeError:
        return x  # tracing says which argument it is
    weak = bool(getattr(t, "weak_type", False))
    return jax.ShapeDtypeStruct(t.shape, t.dtype, weak_type=weak)


def _import(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_eqsat_program_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except EqsatError:
        raise
    except Exception as e:  # the user's own program: any error is theirs, told in one sentence
        lacking = e.name if isinstance(e, ModuleNotFoundError) else None
        help = f"install `{lacking}` where eqsat is installed" if lacking else ""
        what = f"`{path}` cannot be imported: {type(e).__name__}: {e}"
        raise fail("E308", what, help=help) from e
    finally:
        sys.path.remove(str(path.parent))
    return module


def _is_program(name: str, value: Any) -> bool:
    return callable(value) and not name.startswith("_") and not name.endswith("_example")


def _only_name(module: ModuleType, path: Path) -> str:
    """The only function of a file with an example beside it, or else the one named as the file."""
    names = [n for n, v in vars(module).items() if _is_program(n, v)]
    programs = [n for n in names if hasattr(module, f"{n}_example")] or names
    return programs[0] if len(programs) == 1 else path.stem


def _member(module: ModuleType, name: str, path: Path) -> Callable[..., Any]:
    function = getattr(module, name, None)
    if not callable(function):
        programs = [n for n, v in vars(module).items() if _is_program(n, v)]
        raise fail("E308", f"`{path}` has no function `{name}`", help=did_you_mean(name, programs))
    return function
