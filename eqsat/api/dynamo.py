"""`torch.compile(model, backend="eqsat")`: graphs that torch captures, run by searched programs.

torch's AOTAutograd makes a graph of pure ops of each; what writes to arguments, or is a view of
them, it does itself. Parameters and buffers are weights, packed again when a call brings others or
changed ones. What cannot be searched runs as torch runs it, and a warning says why (E523).
"""

from __future__ import annotations

import inspect
import re
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.api.optimization import optimize
from eqsat.execute.beside import check_options
from eqsat.frontends.torchgraph import array_of, read_graph, refuse_types, tensor_of, torch_module
from eqsat.model.diag import Diagnostic, EqsatError, EqsatWarning, did_you_mean, fail
from eqsat.run import Run

Pure = Callable[..., Sequence[Any]]  # tensors → results, nothing changed
_WARNED: set[str] = set()


def compile_graph(
    graph: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """The backend: a function of the arguments of a graph that gives its results.

    graph: a `torch.fx.GraphModule` as Dynamo captured it. options: those of `eqsat.optimize`, and
    `check` and `race` as of `eqsat.jit`: `torch.compile(model, backend="eqsat", options={…})`.
    Warns (E523), and gives the graph as it is, where derivatives may be asked for, shapes are
    symbols, tensors are not on the CPU, or it holds what eqsat cannot read. EqsatError E400 for
    an option that does not exist.
    """
    settings = dict(options or {})
    check, race = settings.pop("check", "first"), settings.pop("race", True)
    check_options(check, race)
    parameters = set(inspect.signature(optimize).parameters)
    for name in settings:
        if name not in parameters:
            message = f'the backend "eqsat" has no option `{name}`'
            raise fail("E400", message, help=did_you_mean(name, parameters))

    def served(pure: Any, examples: Sequence[Any]) -> Any:
        from functorch.compile import make_boxed_func

        return make_boxed_func(_served(pure, examples, _names(graph), settings, (check, race)))

    try:
        _refuse(graph, example_inputs)
        from torch._dynamo.backends.common import aot_autograd

        compiled = aot_autograd(fw_compiler=served)(graph, example_inputs)
    except EqsatError as error:
        first = error.diagnostics[0]
        code = "" if first.code == "E523" else f" ({first.code})"
        _warn(f"a graph runs in torch: {first.message}{code}", first.help)
        return graph.forward
    _tell_of_break(graph)
    return compiled


def _refuse(graph: Any, inputs: Sequence[Any]) -> None:
    """EqsatError E523 with the reason why torch has to run a graph."""
    torch = torch_module()
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        message = "derivatives of its results may be asked for"
        raise fail("E523", message, help="call the model under `torch.no_grad()`")
    devices = sorted({x.device.type for x in tensors} - {"cpu"})
    if devices:
        raise fail("E523", f"its tensors are on `{devices[0]}`, and kernels are for CPUs")
    is_static = all(isinstance(d, int) for x in tensors for d in x.shape)
    if not is_static or len(tensors) < len(inputs):
        help = "`torch.compile(…, dynamic=False)` makes one graph for each shape"
        raise fail("E523", "its sizes are symbols", help=help)


def _tell_of_break(graph: Any) -> None:
    reason = getattr(graph, "compile_subgraph_reason", None)
    if reason is not None and reason.graph_break:
        first = str(reason.reason).strip().partition("\n")[0]
        place = f" ({reason.user_stack[-1].filename}:{reason.user_stack[-1].lineno})"
        where = place if reason.user_stack else ""
        _warn(f"torch ends a graph here{where}: {first}", "what lies between graphs runs in torch")


def _warn(message: str, help: str) -> None:
    """A warning E523, once per text."""
    warning = EqsatWarning(Diagnostic("E523", message, help=help, severity="warning"))
    if str(warning) not in _WARNED:
        _WARNED.add(str(warning))
        warnings.warn(warning, stacklevel=3)


# ---- a graph of pure ops and its run -------------------------------------------------------------
_KEYS = re.compile(r"\['([^']*)'\]")


def _names(graph: Any) -> list[str]:
    """What the arguments of a graph are called: `layer1.0.conv1.weight`, or as Dynamo does."""
    names = []
    for node in graph.graph.find_nodes(op="placeholder"):
        path = str(getattr(getattr(node.meta.get("grapharg"), "source", None), "name", ""))
        keys = [k for k in _KEYS.findall(path) if k not in ("_modules", "_parameters", "_buffers")]
        is_held = "['_parameters']" in path or "._parameters[" in path or "._buffers[" in path
        plain = re.sub(r"^l_|_$", "", node.name.lower())
        names.append(".".join(keys[1:]) if is_held and len(keys) > 1 else plain)
    return names


def _served(
    pure: Any,
    examples: Sequence[Any],
    names: Sequence[str],
    settings: Mapping[str, Any],
    checks: tuple[str, bool],
) -> Pure:
    """The function of a graph of pure ops, after its search."""
    torch = torch_module()
    refuse_types(pure.graph)
    placeholders = pure.graph.find_nodes(op="placeholder")
    if len(names) != len(placeholders) or len(set(names)) < len(names):  # shared ones are one
        names = [node.name for node in placeholders]
    static = _static()
    # empty ones are never touched: exporting reads shapes and types alone
    empty = tuple(torch.empty(x.shape, dtype=x.dtype) for x in examples)
    exported = torch.export.export(pure, empty, strict=False)
    read = read_graph(exported, {names[i] for i in static}, names)
    run = optimize(read.source({}), **settings)
    leaves = {run.program.leaf(i).key: run.program.leaf(i).name for i in run.program.weights}
    weights = {i: leaves[read.weights[names[i]]] for i in static if names[i] in read.weights}
    inputs = [i for i in range(len(examples)) if i not in static]
    (results,) = (node.args[0] for node in pure.graph.find_nodes(op="output"))
    return Served(run, pure.forward, weights, inputs, _results(run, results), checks)


def _static() -> list[int]:
    """The arguments of the present graph that are parameters or buffers."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    return [] if metadata is None else list(metadata.static_input_indices)


@dataclass(frozen=True)
class Returned:
    """A result as torch has it. is_shared: an argument, a weight or another result, too."""

    dtype: Any
    stride: tuple[int, ...]
    is_shared: bool

    def of(self, array: Any) -> Any:
        """The tensor of an array, in its memory where type and strides are those of torch."""
        tensor = tensor_of(array)
        if tensor.stride() != self.stride and tensor.numel():
            torch = torch_module()
            empty = torch.empty_strided(tensor.shape, self.stride, dtype=self.dtype)
            return empty.copy_(tensor)
        if tensor.dtype != self.dtype:
            return tensor.to(self.dtype)
        return tensor.clone() if self.is_shared else tensor


def _results(run: Run, nodes: Sequence[Any]) -> list[Returned | None]:
    """How each result is returned; None where there is none."""
    schedule = run.need_schedule()
    written = {schedule.buffer_of(w) for d in schedule.dispatches for w in d.writes}
    buffers = [schedule.buffer_of(r) for r in schedule.program.results]
    left = iter(buffers)
    returned: list[Returned | None] = []
    for node in nodes:
        if node is None:
            returned.append(None)
            continue
        buffer, value = next(left), node.meta["val"]
        is_shared = buffer not in written or buffers.count(buffer) > 1
        returned.append(Returned(value.dtype, tuple(value.stride()), is_shared))
    return returned


class Served:
    """A searched graph as a function of tensors.

    weights: number of an argument → name in the program; inputs: numbers of the others. pure: the
    graph itself, for calls that the run cannot take.
    """

    def __init__(
        self,
        run: Run,
        pure: Pure,
        weights: Mapping[int, str],
        inputs: Sequence[int],
        results: Sequence[Returned | None],
        checks: tuple[str, bool],
    ):
        self.run, self.pure, self.results = run, pure, results
        self.weights, self.inputs, self.checks = weights, inputs, checks
        self.lock = threading.Lock()
        self.held: list[Any] = []  # memory that is held is not given to other tensors
        self.function: Callable[..., Any] = pure
        self.stamps: list[tuple[int, int]] | None = None  # of the weights that are packed

    def __call__(self, *args: Any) -> list[Any]:
        """The graph's results, tensors of its types and strides."""
        stamps = [_stamp(args[i]) for i in self.weights]
        with self.lock:
            if stamps != self.stamps:
                self.function, self.stamps = self._packed(args)
            function = self.function
        try:
            arrays = [array_of(args[i]) for i in self.inputs]
        except EqsatError:  # 64-bit integers that are none of 32 bits
            return list(self.pure(*args))
        given = iter(function(*arrays))
        return [None if r is None else r.of(next(given)) for r in self.results]

    def _packed(self, args: Sequence[Any]) -> tuple[Any, list[Any]]:
        """The function that has these weights, and what says that they are these."""
        self.held = [args[i].detach() for i in self.weights]
        arrays = map(array_of, self.held)
        if self.weights:
            self.run.use_weights(dict(zip(self.weights.values(), arrays, strict=True)))
        check, race = self.checks
        return self.run.compile(check=check, race=race), [_stamp(args[i]) for i in self.weights]


def _stamp(tensor: Any) -> tuple[int, int]:
    """What differs when a tensor has other values: its memory, and how often it was written to."""
    version = 0 if tensor.is_inference() else tensor._version
    return tensor.data_ptr(), version
