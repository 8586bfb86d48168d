"""The calling convention of a traced function as data, by which a saved run is called like it.

An argument is known by its path: the name of the parameter, and the keys below it. So no class of a
user's tree is needed to call a run that was loaded, and whoever calls may pass by position or name.
"""

from __future__ import annotations

import inspect
import re
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eqsat.model.diag import fail

if TYPE_CHECKING:
    from eqsat.frontends.source import Traced

Tree = Any  # JSON: the number of a leaf, None, or the kind of a container with its parts
SHOWN = 3  # faults of a call that are told at once


@dataclass(frozen=True)
class Convention:
    """What `frontends.source.Traced` knows about a call, without the function.

    parameters: names of those that may be passed by position. paths: per flat argument, as
    `params['w'][0]`. bindings: per flat argument ("input", its number) or ("weight", its key).
    results: the tree that is returned; a class of its own becomes a dict, a named tuple one with
    the same fields.
    """

    name: str
    parameters: tuple[str, ...]
    paths: tuple[str, ...]
    bindings: tuple[tuple[str, int | str], ...]
    results: Tree

    @classmethod
    def of(cls, traced: Traced) -> Convention:
        """Of a function that captures no tracers."""
        import jax

        leaves = range(len(traced.bindings))
        args, kwargs = jax.tree_util.tree_unflatten(traced.in_tree, leaves)
        parameters = _positional(traced.function)
        paths = tuple(path for path, _ in _flattened(args, kwargs, parameters))
        count = traced.out_tree.num_leaves
        results = _tree_of(jax.tree_util.tree_unflatten(traced.out_tree, range(count)))
        return cls(traced.program.name, parameters, paths, traced.bindings, results)

    def to_json(self) -> dict[str, Any]:
        columns = ("name", "parameters", "paths", "bindings", "results")
        return {name: getattr(self, name) for name in columns}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Convention:
        parameters, paths = tuple(data["parameters"]), tuple(data["paths"])
        bindings = tuple((str(kind), at) for kind, at in data["bindings"])
        return cls(str(data["name"]), parameters, paths, bindings, data["results"])

    def check(self, inputs: int, results: int) -> None:
        """ValueError if this is no call of a program with so many inputs and results."""
        import jax

        numbers = [at for kind, at in self.bindings if kind == "input"]
        leaves = jax.tree_util.tree_leaves(self.unflatten(range(results)))
        if len(self.paths) != len(self.bindings) or numbers != list(range(inputs)):
            raise ValueError(f"its {len(numbers)} arguments are not the program's {inputs} inputs")
        if sorted(leaves) != list(range(results)):
            raise ValueError(f"its tree of results is not of the program's {results}")

    # ---- a call ----------------------------------------------------------------------------------
    def split(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """The program's inputs in order, and the weights that the call brings, by key.

        EqsatError E306 if an input is missing, or an argument unknown.
        """
        inputs, weights = [], {}
        for leaf, (kind, key) in zip(self._flat(args, kwargs), self.bindings, strict=True):
            if kind == "input":
                inputs.append(leaf)
            elif leaf is not None:
                weights[str(key)] = leaf
        return inputs, weights

    def replaced(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        inputs: Sequence[Any],
        plainly: bool = False,
    ) -> Any:
        """(args, kwargs) of a call with these in place of its inputs; plainly: None for weights."""
        import jax

        leaves, tree = jax.tree_util.tree_flatten((args, dict(kwargs)))
        paths = [path for path, _ in _flattened(args, kwargs, self.parameters)]
        kinds = zip(self.paths, self.bindings, strict=True)
        by_path = dict(zip((p for p, (kind, _) in kinds if kind == "input"), inputs, strict=True))
        pairs = zip(paths, leaves, strict=True)
        return tree.unflatten([by_path.get(p, None if plainly else leaf) for p, leaf in pairs])

    def unflatten(self, results: Sequence[Any]) -> Any:
        """Flat results as the function returns them."""
        return _value_of(self.results, results)

    def _flat(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """The leaves in the order of the paths; None of a weight that the call leaves out."""
        given = dict(_flattened(args, kwargs, self.parameters))
        kinds = dict(zip(self.paths, self.bindings, strict=True))
        faults = [f"`{p}` is unknown" for p in given if p not in kinds]
        faults += [
            f"`{p}` is missing"
            for p, (kind, _) in kinds.items()
            if kind == "input" and p not in given
        ]
        if faults:
            takes = ", ".join(dict.fromkeys(re.split(r"[.\[]", p)[0] for p in self.paths))
            message = f"`{self.name}` was traced with other arguments: {', '.join(faults[:SHOWN])}"
            raise fail("E306", message, help=f"it takes {takes}")
        return [given.get(p) for p in self.paths]


def _flattened(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], parameters: Sequence[str]
) -> list[tuple[str, Any]]:
    """(path, leaf) of everything that is passed."""
    import jax

    names = [parameters[i] if i < len(parameters) else f"args[{i}]" for i in range(len(args))]
    leaves = []
    for name, argument in (*zip(names, args, strict=True), *sorted(kwargs.items())):
        for path, leaf in jax.tree_util.tree_flatten_with_path(argument)[0]:
            leaves.append((name + jax.tree_util.keystr(path), leaf))
    return leaves


def _positional(function: Callable[..., Any] | None) -> tuple[str, ...]:
    """Names of parameters that may be passed by position."""
    if function is None:
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if p.kind in kinds)


# ---- trees of results ----------------------------------------------------------------------------
def _tree_of(value: Any) -> Tree:
    """A tree of numbers as JSON."""
    import jax

    if value is None or isinstance(value, int):
        return value
    if isinstance(value, dict):
        return {"dict": [[key, _tree_of(v)] for key, v in value.items()]}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        name, fields = type(value).__name__, list(value._fields)
        return {"namedtuple": [name, fields, [_tree_of(v) for v in value]]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_tree_of(v) for v in value]}
    pairs = jax.tree_util.tree_flatten_with_path(value)[0]
    return {"dict": [[jax.tree_util.keystr(path), leaf] for path, leaf in pairs]}


def _value_of(tree: Tree, leaves: Sequence[Any]) -> Any:
    """The tree with these leaves."""
    if tree is None:
        return None
    if isinstance(tree, int):
        return leaves[tree]
    ((kind, parts),) = tree.items()
    if kind == "dict":
        return {key: _value_of(v, leaves) for key, v in parts}
    if kind == "namedtuple":
        name, fields, items = parts
        return namedtuple(name, fields)(*(_value_of(v, leaves) for v in items))
    return {"list": list, "tuple": tuple}[kind](_value_of(v, leaves) for v in parts)
