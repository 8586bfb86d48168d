"""`x.onnx` → Program: the graph traced by JAX, initializers as weights under their names."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.frontends.onnxgraph import proto
from eqsat.frontends.onnxgraph.call import Held
from eqsat.frontends.onnxgraph.convert import checked
from eqsat.frontends.onnxgraph.graph import Argument, OnnxGraph, short
from eqsat.frontends.onnxgraph.interpret import Interpreter
from eqsat.frontends.onnxgraph.tensors import HIGHEST_RANK, is_bearable
from eqsat.model.diag import Diagnostic, EqsatWarning, fail

if TYPE_CHECKING:
    from eqsat.frontends.traced import Traced


def read_onnx(path: str | Path, sizes: Mapping[str, int] | None = None) -> Traced:
    """Read a model; its program takes the graph's inputs in order and gives its outputs.

    sizes: the size of every dimension the file leaves open, by its name (`batch`), or by input and
    axis (`ids.0`) if it has none. Initializers are weights. 64-bit types become 32-bit ones unless
    `jax_enable_x64` is set, as everywhere in JAX. EqsatError E360 to E369; `EqsatWarning` for
    weights that are not finite. Nothing is executed, and only files in the model's folder are read.
    """
    file = Path(path)
    model = checked(proto.parse_model(file), file)
    graph = model.graph
    shapes = _shapes(graph, {k: int(n) for k, n in (sizes or {}).items()}, str(path))
    _warn_of_strange_values(graph)
    weights = {k: a for k, a in graph.initializers.items() if a.size > 1}
    return _trace(Interpreter(model), graph, shapes, weights, _program_name(file))


def _trace(
    interpreter: Interpreter,
    graph: OnnxGraph,
    shapes: list[tuple[int, ...]],
    weights: Mapping[str, np.ndarray[Any, Any]],
    name: str,
) -> Traced:
    import jax

    from eqsat.frontends.jaxpr import trace

    def function(*inputs: Any, **leaves: Any) -> tuple[Any, ...]:
        given = {a.name: Held(x, name=a.name) for a, x in zip(graph.inputs, inputs, strict=True)}
        for key, array in graph.initializers.items():
            given[key] = Held(array, leaves.get(key), key)
        results = interpreter.graph(graph, given)
        return tuple(h.traced for h in results)

    _name_parameters(function, [a.name for a in graph.inputs])
    structs = [
        jax.ShapeDtypeStruct(s, _dtype(a)) for s, a in zip(shapes, graph.inputs, strict=True)
    ]
    with warnings.catch_warnings():  # of 64-bit types that JAX makes 32-bit ones
        warnings.filterwarnings("ignore", "Explicitly requested dtype")
        return trace(function, tuple(structs), weights, weights=tuple(weights), name=name)


def _dtype(a: Argument) -> np.dtype[Any]:
    """The type an input has in the program: without x64, JAX's 32-bit one."""
    import jax

    if a.dtype is None:
        raise fail("E363", f"input `{short(a.name)}` has no element type")
    return np.dtype(jax.dtypes.canonicalize_dtype(a.dtype))


def _name_parameters(function: Any, names: list[str]) -> None:
    """Let `inspect.signature` tell the graph's names, from which the program takes its own."""
    kind = inspect.Parameter
    taken: set[str] = set()
    parameters = [kind(python_name(n, taken), kind.POSITIONAL_ONLY) for n in names]
    rest = kind(python_name("weights", taken), kind.VAR_KEYWORD)
    function.__signature__ = inspect.Signature([*parameters, rest])


def python_name(name: str, taken: set[str]) -> str:
    """A Python identifier like this name that is not taken yet; it is taken then."""
    plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:200] or "x"
    plain = plain if plain.isidentifier() and not plain[0].isdigit() else f"_{plain}"
    unique, n = plain, 1
    while unique in taken or not unique.isidentifier():
        n += 1
        unique = f"{plain}_{n}"
    taken.add(unique)
    return unique


def _program_name(path: Path) -> str:
    return python_name(path.stem, set())


def _shapes(graph: OnnxGraph, sizes: dict[str, int], path: str) -> list[tuple[int, ...]]:
    """The shape of every input; E367 names the dimensions without a size."""
    _check_ranks(graph)
    dims = [d for a in graph.inputs for d in a.shape or ()]
    named = list(dict.fromkeys(d for d in dims if isinstance(d, str)))
    missing = [d for d in named if d not in sizes]
    if missing:
        shown = ", ".join(f"`{short(d)}`" for d in missing[:8])
        flags = " ".join(f"--size {short(d)}=1" for d in missing[:8])
        raise fail(
            "E367",
            f"`{path}` leaves the size of {len(missing)} dimension(s) open: {shown}",
            help=f"say how large they are: `{flags}`, or `eqsat.read(…, sizes={{…}})`",
        )
    for name in named:
        if sizes[name] < 0:
            raise fail("E367", f"the size of dimension `{short(name)}` is {sizes[name]}")
    unknown = sorted(set(sizes) - set(named))
    if unknown:
        open_dims = ", ".join(map(short, named[:8])) or "none: every size is fixed"
        raise fail(
            "E367",
            f"`{path}` has no open dimension `{short(unknown[0])}`",
            help=f"its open dimensions: {open_dims}",
        )
    return [_shape(a, sizes) for a in graph.inputs]


def _check_ranks(graph: OnnxGraph) -> None:
    for a in graph.inputs:
        if a.shape is None:
            raise fail(
                "E367",
                f"input `{short(a.name)}` has no shape, not even a rank",
                help="set its shape with `onnx.helper.make_tensor_value_info` and save the model",
            )


def _shape(a: Argument, sizes: Mapping[str, int]) -> tuple[int, ...]:
    shape = tuple(sizes[d] if isinstance(d, str) else d for d in a.shape or ())
    if not is_bearable(shape) or len(shape) > HIGHEST_RANK:
        raise fail("E363", f"input `{short(a.name)}` is too large: {list(shape[:8])}")
    return shape


def _warn_of_strange_values(graph: OnnxGraph) -> None:
    """An EqsatWarning that names the weights with NaN or infinite values."""
    strange = [k for k, a in graph.initializers.items() if a.size > 1 and not _finite(a)]
    if not strange:
        return
    shown = ", ".join(f"`{short(k)}`" for k in strange[:4])
    more = f" and {len(strange) - 4} more" if len(strange) > 4 else ""
    d = Diagnostic(
        "E369",
        f"weights hold NaN or infinite values: {shown}{more}",
        help="they are kept as they are; results that read them may be NaN",
        severity="warning",
    )
    warnings.warn(EqsatWarning(d), stacklevel=3)


def _finite(array: np.ndarray[Any, Any]) -> bool:
    if array.dtype.kind in "iub" or array.dtype.name in ("int4", "uint4"):
        return True
    return bool(np.isfinite(array).all())
