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
from eqsat.frontends.torchgraph import (
    array_of,
    exported,
    read_graph,
    refuse_types,
    tensor_of,
    torch_module,
)
from eqsat.model.diag import Diagnostic, EqsatError, EqsatWarning, check_known, fail
from eqsat.run import Run

Pure = Callable[..., Sequence[Any]]  # tensors → results, nothing changed
MOST_SIZES = 8  # of one graph that are searched
_WARNED: set[str] = set()


def compile_graph(
    graph: Any,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """The backend: a function of the arguments of a graph that gives its results.

    graph: a `torch.fx.GraphModule` as Dynamo captured it. options: those of `eqsat.optimize`, and
    `check` and `race` as of `eqsat.jit`: `torch.compile(model, backend="eqsat", options={…})`.
    Where sizes are symbols, a program is searched for each of the first few that calls have. Warns
    (E523), and gives the graph as it is, where derivatives may be asked for, tensors are not on the
    CPU, or it holds what eqsat cannot read. EqsatError E400 for an option that does not exist, and
    for a `mode`: modes are inductor's.
    """
    if mode is not None:
        message = f'the backend "eqsat" has no mode `{mode}`'
        raise fail("E400", message, help='`options={"time_limit": 30}` are those of `optimize`')
    settings = dict(options or {})
    check, race = settings.pop("check", "first"), settings.pop("race", True)
    check_options(check, race)
    parameters = set(inspect.signature(optimize).parameters)
    for name in settings:
        check_known(name, parameters, "E400", f'the backend "eqsat" has no option `{name}`')

    search = Searching(settings, (check, race))
    try:
        is_fixed = _refuse(example_inputs)
        compiled = search.of(graph, example_inputs) if is_fixed else Sizes(graph, search)
    except EqsatError as error:
        return _as_torch(graph, error)
    _tell_of_break(graph)
    return compiled


def _refuse(inputs: Sequence[Any]) -> bool:
    """Whether all sizes are numbers; EqsatError E523 says why torch has to run a graph."""
    torch = torch_module()
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        message = "derivatives of its results may be asked for"
        raise fail("E523", message, help="call the model under `torch.no_grad()`")
    devices = sorted({x.device.type for x in tensors} - {"cpu"})
    if devices:
        raise fail("E523", f"its tensors are on `{devices[0]}`, and kernels are for CPUs")
    is_fixed = all(isinstance(d, int) for x in tensors for d in x.shape)
    return is_fixed and len(tensors) == len(inputs)


def _as_torch(graph: Any, error: EqsatError) -> Callable[..., Any]:
    """The graph as it is, and a warning of why."""
    first = error.diagnostics[0]
    code = "" if first.code == "E523" else f" ({first.code})"
    _warn(f"a graph runs in torch: {first.message}{code}", first.help)
    return graph.forward


def _tell_of_break(graph: Any) -> None:
    reason = getattr(graph, "compile_subgraph_reason", None)
    if reason is not None and reason.graph_break:
        first = str(reason.reason).strip().partition("\n")[0]
        where = "".join(f" ({f.filename}:{f.lineno})" for f in list(reason.user_stack)[-1:])
        _warn(f"torch ends a graph here{where}: {first}", "what lies between graphs runs in torch")


def _warn(message: str, help: str) -> None:
    """A warning E523, once per text."""
    warning = EqsatWarning(Diagnostic("E523", message, help=help, severity="warning"))
    if str(warning) not in _WARNED:
        _WARNED.add(str(warning))
        warnings.warn(warning, stacklevel=3)


class Sizes:
    """A graph whose sizes are symbols: one program for each of the first sizes that calls have."""

    def __init__(self, graph: Any, search: Searching):
        self.graph, self.search = graph, search
        self.compiled: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *args: Any) -> Any:
        """The graph's results."""
        torch = torch_module()
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        key = tuple(tuple(x.shape) if isinstance(x, torch.Tensor) else x for x in args)
        if key not in self.compiled:
            if len(self.compiled) == MOST_SIZES:
                message = f"its sizes change, and programs of {MOST_SIZES} were searched"
                return _as_torch(self.graph, fail("E523", message))(*args)
            graph = self._at(args)
            try:
                self.compiled[key] = self.search.of(graph, tensors)
            except EqsatError as error:
                self.compiled[key] = _as_torch(graph, error)
        return self.compiled[key](*tensors)

    def _at(self, args: Sequence[Any]) -> Any:
        """The graph with numbers in place of the arguments that are none of tensors."""
        torch = torch_module()
        nodes = zip(self.graph.graph.find_nodes(op="placeholder"), args, strict=True)
        numbers = {node: x for node, x in nodes if not isinstance(x, torch.Tensor)}
        graph = torch.fx.Graph()
        graph.output(graph.graph_copy(self.graph.graph, numbers))
        return torch.fx.GraphModule(self.graph, graph)


# ---- a graph of pure ops and its run -------------------------------------------------------------
_KEYS = re.compile(r"\['([^']*)'\]")
_HELD = ("_parameters", "_buffers")


@dataclass(frozen=True)
class Searching:
    """How graphs are searched: options of `eqsat.optimize`, and (check, race)."""

    settings: Mapping[str, Any]
    checks: tuple[str, bool]

    def of(self, graph: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        """The function of a graph of fixed sizes. EqsatError of what it cannot be lowered for."""
        from torch._dynamo.backends.common import aot_autograd

        nodes = graph.graph.find_nodes(op="placeholder")
        arguments = [_argument(node) for node in nodes]

        def served(pure: Any, examples: Sequence[Any]) -> Any:
            from functorch.compile import make_boxed_func

            return make_boxed_func(self._served(pure, examples, arguments))

        return aot_autograd(fw_compiler=served)(graph, inputs)

    def _served(
        self, pure: Any, examples: Sequence[Any], arguments: Sequence[tuple[str, bool]]
    ) -> CompiledGraph:
        """The function of a graph of pure ops; arguments: of the graph before, as `_argument`."""
        refuse_types(pure.graph)
        names, static = _called(pure, arguments)
        read = read_graph(exported(pure, examples), {names[i] for i in static}, names)
        run = optimize(read.source({}), **self.settings)
        leaves = {run.program.leaf(i).key: run.program.leaf(i).name for i in run.program.weights}
        weights = {i: leaves[read.weights[names[i]]] for i in static if names[i] in read.weights}
        inputs = [i for i in range(len(examples)) if i not in static]
        (results,) = (node.args[0] for node in pure.graph.find_nodes(op="output"))
        return CompiledGraph(
            run, pure.forward, weights, inputs, _results(run, results), self.checks
        )


def _argument(node: Any) -> tuple[str, bool]:
    """What an argument is called, and whether it is a parameter or buffer.

    `layer1.0.conv1.weight`; others are called as Dynamo does.
    """
    path = str(getattr(getattr(node.meta.get("grapharg"), "source", None), "name", ""))
    keys = [k for k in _KEYS.findall(path) if k not in ("_modules", *_HELD)]
    is_held = any(word in path for word in _HELD) and len(keys) > 1
    plain = re.sub(r"^l_|_$", "", node.name.lower())
    return (".".join(keys[1:]), True) if is_held else (plain, False)


def _called(pure: Any, arguments: Sequence[tuple[str, bool]]) -> tuple[list[str], list[int]]:
    """Names of the arguments of a graph of pure ops, and which are parameters or buffers."""
    from torch._guards import TracingContext

    nodes = pure.graph.find_nodes(op="placeholder")
    names = [name for name, _ in arguments]
    static = [i for i, (_, is_held) in enumerate(arguments) if is_held]
    if len(names) != len(nodes) or len(set(names)) < len(names):  # some are views of one
        names, static = [node.name for node in nodes], []
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    return names, static if metadata is None else list(metadata.static_input_indices)


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


class CompiledGraph:
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
        try:
            function = self._ready(args)
            arrays = [array_of(args[i]) for i in self.inputs]
        except EqsatError:  # 64-bit integers that are none of 32 bits
            return list(self.pure(*args))
        given = iter(function(*arrays))
        return [None if r is None else r.of(next(given)) for r in self.results]

    def _ready(self, args: Sequence[Any]) -> Callable[..., Any]:
        """The function of the inputs that has the weights of this call."""
        stamps = [_stamp(args[i]) for i in self.weights]
        with self.lock:
            if stamps != self.stamps:
                self.held = [args[i].detach() for i in self.weights]
                arrays = map(array_of, self.held)
                self.run.use_weights(dict(zip(self.weights.values(), arrays, strict=True)))
                check, race = self.checks
                self.function = self.run.compile(check=check, race=race)
                self.stamps = stamps
            return self.function


def _stamp(tensor: Any) -> tuple[int, int]:
    """What differs when a tensor has other values: its memory, and how often it was written to."""
    version = 0 if tensor.is_inference() else tensor._version
    return tensor.data_ptr(), version
