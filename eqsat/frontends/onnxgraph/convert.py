"""ModelProto → OnnxModel: names, order, attributes, tensors checked; nothing of protobuf left.

Nodes come in an order in which every operand is defined before it is read.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from eqsat.frontends.onnxgraph.graph import (
    Argument,
    Array,
    OnnxFunction,
    OnnxGraph,
    OnnxModel,
    OnnxNode,
    Reference,
    reads,
    short,
)
from eqsat.frontends.onnxgraph.proto import converted, newest_opset, read_tensor, stored_type
from eqsat.model.diag import EqsatError, did_you_mean, fail
from eqsat.model.tensor import DEFAULT, PRECISIONS
from eqsat.ops.meaning.programs import element_dtype

# ---- the order of nodes --------------------------------------------------------------------------
Scope = Sequence[Set[str]]  # names by graph, from the outermost inwards


def operands_first(
    nodes: Sequence[OnnxNode], defined: frozenset[str], outer: Scope, title: str
) -> tuple[OnnxNode, ...]:
    """The nodes sorted, in file order where that is free.

    defined: names given before all nodes; outer: names of the graphs around this one. EqsatError
    E362: an operand that nothing defines, or a cycle.
    """
    maker = {o: at for at, n in enumerate(nodes) for o in n.outputs if o}
    users: list[list[int]] = [[] for _ in nodes]
    missing = [0] * len(nodes)
    for at, node in enumerate(nodes):
        needs = {maker[name] for name in _wanted(node, maker, (defined, *outer))}
        missing[at] = len(needs)
        for need in needs:
            users[need].append(at)
    order = _sorted(users, missing)
    if len(order) < len(nodes):
        raise _cycle(nodes, maker, set(range(len(nodes))) - set(order), title)
    return tuple(nodes[at] for at in order)


def _wanted(node: OnnxNode, maker: dict[str, int], defined: Scope) -> list[str]:
    """Operands that other nodes of this graph give; E362 for one that nothing gives."""
    operands = []
    for name in sorted(reads(node)):
        if name in maker:
            operands.append(name)
        elif not any(name in names for names in defined):
            near = did_you_mean(name, [n for n in maker if len(n) < 200][:2000])
            raise node.error(
                "E362",
                f"reads `{short(name)}`, which nothing defines",
                help=near if near.startswith("did") else "the graph is incomplete: export it again",
            )
    return operands


def _sorted(users: list[list[int]], missing: list[int]) -> list[int]:
    ready = [at for at, n in enumerate(missing) if n == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        at = heapq.heappop(ready)
        order.append(at)
        for user in users[at]:
            missing[user] -= 1
            if missing[user] == 0:
                heapq.heappush(ready, user)
    return order


def _cycle(
    nodes: Sequence[OnnxNode], maker: dict[str, int], stuck: set[int], title: str
) -> Exception:
    """The error that names the nodes of one cycle; every stuck node reads from a stuck one."""
    at, path = min(stuck), dict[int, None]()
    while at not in path:
        path[at] = None
        needs = (maker[name] for name in reads(nodes[at]) if name in maker)
        at = min(n for n in needs if n in stuck)
    around = list(path)[list(path).index(at) :]
    shown = ", ".join(nodes[n].label for n in around[:4])
    more = f" and {len(around) - 4} more" if len(around) > 4 else ""
    return fail(
        "E362", f"{title} is cyclic: {shown}{more} read each other's results",
        help="a graph has no loops of its own; repetition is a Loop or Scan node",
    )  # fmt: skip


# ---- conversion ----------------------------------------------------------------------------------
STANDARD = ("", "ai.onnx")
OLDEST, NEWEST = 13, 28
MOST_NODES = 100_000
DEEPEST = 32  # graphs inside of graphs
# AttributeProto.AttributeType → its field
FIELDS = {
    1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 6: "floats", 7: "ints", 8: "strings", 9: "tensors",
    10: "graphs",
}  # fmt: skip
BRANCHES = ("then_branch", "else_branch")
REFUSED = {11: "a sparse tensor", 12: "sparse tensors", 13: "a type", 14: "types"}


def checked(model: Any, path: Path) -> OnnxModel:
    """The checked model of a file; one of an opset before `OLDEST` is converted to that.

    EqsatError: E360 not UTF-8, E361 an opset that is not read, E362 a malformed graph, E363 and
    E364 a tensor.
    """
    try:
        read = _read(model, path)
        if 0 < read.opsets.get("", 0) < OLDEST:
            read = _read(converted(model, OLDEST, path), path)
        return read
    except UnicodeDecodeError as error:
        raise fail("E360", f"`{path}` holds a name that is not UTF-8: {error.reason}") from error


def _read(model: Any, path: Path) -> OnnxModel:
    opsets = _opsets(model.opset_import, f"`{path}`")
    reader = _Checked(path.parent, opsets)
    functions = {}
    for f in model.functions:
        key = (_domain(f.domain), f.name, getattr(f, "overload", ""))
        if key in functions:
            raise fail("E362", f"`{path}` defines the function `{short(f.name)}` twice")
        functions[key] = reader.function(f)
    return OnnxModel(reader.graph(model.graph, ()), functions, opsets)


def read_function(proto: Any, opsets: Mapping[str, int]) -> OnnxFunction:
    """A function of the standard itself; opsets: what it uses where it does not say."""
    return _Checked(Path(), opsets).function(proto, whole=False)


def _domain(name: str) -> str:
    return "" if name in STANDARD else name


def _opsets(imports: Iterable[Any], where: str) -> dict[str, int]:
    """Version by domain; E361 for one of the standard that is not read, if `where` is named."""
    versions: dict[str, int] = {}
    for o in imports:
        versions[_domain(o.domain)] = max(int(o.version), versions.get(_domain(o.domain), 0))
    version = versions.get("", 0)
    if not where:
        return versions
    if not versions:
        raise fail("E361", f"{where} imports no opset: nothing says what its ops mean")
    newest = min(NEWEST, newest_opset())
    if version < 0 or version > newest:
        raise fail(
            "E361",
            f"{where} uses opset {version}; opsets 1 to {newest} can be read",
            help="`onnx.version_converter.convert_version(model, 21)` changes it, or export again",
        )
    return versions


@dataclass
class _Checked:
    """Converts the graphs of one file; `nodes` counts all of them."""

    folder: Path
    opsets: Mapping[str, int]
    nodes: int = 0
    inside: list[str] = field(default_factory=list)  # the graphs around the present one

    def graph(self, g: Any, outer: Scope) -> OnnxGraph:
        """A graph with its nodes in order; outer: names that its nodes may read besides."""
        title = f"graph `{short(g.name)}`"
        if len(self.inside) >= DEEPEST:
            raise fail("E362", f"{title} lies in {DEEPEST} graphs inside each other: too deep")
        if g.sparse_initializer:
            raise fail(
                "E363",
                f"{title} has {len(g.sparse_initializer)} sparse initializers, which are not read",
                help="store them densely",
            )
        initializers = self._initializers(g, title)
        inputs = [_argument(v) for v in g.input if v.name not in initializers]
        outputs = tuple(v.name for v in g.output)
        leaves = [*initializers, *(a.name for a in inputs)]
        self.inside.append(g.name)
        nodes = self._nodes(g.node, leaves, outer, title)
        self.inside.pop()
        defined = {*leaves, *(o for n in nodes for o in n.outputs)}
        _check_defined(outputs, (defined, *outer), title)
        return OnnxGraph(g.name, tuple(inputs), initializers, nodes, outputs)

    def function(self, f: Any, whole: bool = True) -> OnnxFunction:
        """A function's body as a graph; its inputs have no types of their own.

        whole: every output is defined; the standard's bodies leave out outputs that are not
        requested.
        """
        title = f"function `{short(f.name)}`"
        imports = _opsets(f.opset_import, title if whole else "")
        nodes = self._nodes(f.node, list(f.input), (), title)
        defined = {*f.input, *(o for n in nodes for o in n.outputs)}
        outputs = tuple(o if whole or o in defined else "" for o in f.output)
        _check_defined((o for o in outputs if o), (defined,), title)
        inputs = tuple(Argument(name, None, None) for name in f.input)
        defaults, kinds = self._attributes(f.attribute_proto, title, ())
        return OnnxFunction(
            OnnxGraph(f.name, inputs, {}, nodes, outputs),
            frozenset(f.attribute) | frozenset(kinds),
            defaults,
            {**self.opsets, **imports},
        )

    def _initializers(self, g: Any, title: str) -> dict[str, Array]:
        arrays: dict[str, Array] = {}
        for t in g.initializer:
            if not t.name or t.name in arrays:
                what = f"two initializers `{short(t.name)}`" if t.name else "one without a name"
                raise fail("E362", f"{title} has initializers with clashing names: {what}")
            arrays[t.name] = read_tensor(t, self.folder, f"initializer `{short(t.name)}`")
        return arrays

    def _nodes(
        self, protos: Any, leaves: Sequence[str], outer: Scope, title: str
    ) -> tuple[OnnxNode, ...]:
        self.nodes += len(protos)
        if self.nodes > MOST_NODES:
            raise fail("E362", f"the file has more than {MOST_NODES} nodes")
        defined = _unique(leaves, protos, title)
        scope = (*outer, frozenset(defined))
        nodes = [self._node(p, scope) for p in protos]
        return operands_first(nodes, frozenset(leaves), outer, title)

    def _node(self, p: Any, scope: Scope) -> OnnxNode:
        node = OnnxNode(
            p.op_type, _domain(p.domain), p.name, tuple(p.input), tuple(p.output), {}, {},
            getattr(p, "overload", ""),
        )  # fmt: skip
        try:
            attributes, kinds = self._attributes(p.attribute, node.label, scope)
        except RecursionError as error:
            raise node.error("E362", "holds graphs inside each other too deeply") from error
        return replace(node, attributes=attributes, kinds=kinds, precision=_precision(p, node))

    def _attributes(
        self, protos: Any, title: str, scope: Scope
    ) -> tuple[dict[str, Any], dict[str, int]]:
        values: dict[str, Any] = {}
        kinds: dict[str, int] = {}
        for a in protos:
            if a.name in values:
                raise fail("E362", f"{title} has the attribute `{short(a.name)}` twice")
            values[a.name] = self._attribute(a, title, scope)
            kinds[a.name] = int(a.type)
        return values, kinds

    def _attribute(self, a: Any, title: str, scope: Scope) -> Any:
        if a.ref_attr_name:
            return Reference(a.ref_attr_name)
        what = f"attribute `{short(a.name)}` of {title}"
        if a.type not in FIELDS:
            kind = REFUSED.get(a.type, "of a type that ONNX does not define")
            raise fail("E365", f"{what} is {kind}, which is not read")
        value = getattr(a, FIELDS[a.type])
        match a.type:
            case 3:
                return value.decode("utf-8")
            case 8:
                return tuple(v.decode("utf-8") for v in value)
            case 4:
                return read_tensor(value, self.folder, f"the tensor of {what}")
            case 9:
                return tuple(read_tensor(t, self.folder, f"a tensor of {what}") for t in value)
            case 5:
                read = self._branch if a.name in BRANCHES else self.graph
                return read(value, scope)
            case 10:
                return tuple(self.graph(g, scope) for g in value)
        return tuple(value) if a.type in (6, 7) else value

    def _branch(self, g: Any, scope: Scope) -> OnnxGraph | EqsatError:
        """A branch of an If, or why it is not read: it is refused only where it is taken."""
        inside = len(self.inside)
        try:
            return self.graph(g, scope)
        except EqsatError as refusal:
            if refusal.diagnostics[0].code not in ("E363", "E365"):
                raise
            del self.inside[inside:]
            return refusal


def _unique(leaves: Sequence[str], protos: Any, title: str) -> list[str]:
    """All names a graph defines; E362 if one is defined twice."""
    names: dict[str, None] = {}
    for name in [*leaves, *(o for p in protos for o in p.output if o)]:
        if name in names:
            raise fail(
                "E362",
                f"{title} defines the value `{short(name)}` twice",
                help="every value has one definition: one input, initializer or node output",
            )
        names[name] = None
    return list(names)


def _check_defined(wanted: Iterable[str], defined: Scope, title: str) -> None:
    for name in wanted:
        if not any(name in names for names in defined):
            raise fail("E362", f"{title} gives `{short(name)}`, which nothing in it defines")


def _argument(v: Any) -> Argument:
    """A graph input; E363 if it is no tensor of an element type that programs hold."""
    title = f"input `{short(v.name)}`"
    kind = v.type.WhichOneof("value")
    if kind != "tensor_type":
        if kind is None:
            return Argument(v.name, None, None)  # subgraphs may leave types out
        what = kind.removesuffix("_type").replace("_", " ")
        raise fail("E363", f"{title} is a {what}, and programs take tensors only")
    t = v.type.tensor_type
    dtype = element_dtype(stored_type(t.elem_type, title).name) if t.elem_type else None
    if not t.HasField("shape"):
        return Argument(v.name, dtype, None)
    return Argument(v.name, dtype, tuple(_dim(d, at, v.name) for at, d in enumerate(t.shape.dim)))


def _dim(d: Any, axis: int, name: str) -> int | str:
    if d.WhichOneof("value") == "dim_value":
        if d.dim_value < 0:
            raise fail("E363", f"input `{short(name)}` has a negative dimension: {d.dim_value}")
        return int(d.dim_value)
    return d.dim_param or f"{name}.{axis}"


def _precision(p: Any, node: OnnxNode) -> str:
    """Precision by `eqsat.precision`, as our own export writes it; ONNX itself has none."""
    said = next((e.value for e in p.metadata_props if e.key == "eqsat.precision"), DEFAULT)
    if said not in PRECISIONS:
        what = f"asks for the precision `{short(said)}`, which does not exist"
        raise node.error("E362", what, did_you_mean(said, PRECISIONS))
    return said
