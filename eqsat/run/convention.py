"""The calling convention of a traced function as data, by which a saved run is called like it.

An argument is known by its path: the name of the parameter, and the keys below it. So no class of a
user's tree is needed to call a run that was loaded, and whoever calls may pass by position or name.
"""

from __future__ import annotations

import inspect
import re
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eqsat.model.diag import check_known, fail

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
    trees: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)  # of calls

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

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the arguments, those without leaves left out."""
        return tuple(dict.fromkeys(map(_root, self.paths)))

    # ---- a call ----------------------------------------------------------------------------------
    def split(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """The program's inputs in order, and the weights that the call brings, by key.

        EqsatError E306 if an input is missing, or an argument unknown.
        """
        import jax

        leaves, tree = jax.tree_util.tree_flatten((args, dict(kwargs)))
        if tree not in self.trees:
            self.trees[tree] = self._places(args, kwargs)
        inputs, weights = self.trees[tree]
        return [leaves[at] for at in inputs], {key: leaves[at] for key, at in weights.items()}

    def _places(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[list[int], dict[str, int]]:
        """Where the inputs are among the leaves of a call, and the weights that it brings."""
        places = {path: n for n, path in enumerate(self._paths(args, kwargs))}
        inputs = [places[path] for path, (kind, _) in self.bound if kind == "input"]
        weights = {str(key): path for path, (kind, key) in self.bound if kind == "weight"}
        return inputs, {key: places[path] for key, path in weights.items() if path in places}

    @property
    def bound(self) -> list[tuple[str, tuple[str, int | str]]]:
        """(path, what it is) of each flat argument."""
        return list(zip(self.paths, self.bindings, strict=True))

    def weights_of(self, weights: Any, names: Mapping[str, str]) -> dict[str, Any]:
        """Weights by key, from the tree that the function takes for them, or a flat mapping.

        names: of the program's weights, with their keys. EqsatError E324 if one is unknown or
        missing.
        """
        kinds = {path: str(key) for path, (kind, key) in self.bound if kind == "weight"}
        roots = list(dict.fromkeys(_root(path) for path in kinds))
        if isinstance(weights, Mapping) and set(weights) <= {*roots}:
            given = dict(_flattened((), weights, ()))
        elif isinstance(weights, Mapping) and set(weights) <= {*names}:
            by_key = {names[name]: array for name, array in weights.items()}
            given = {path: by_key[key] for path, key in kinds.items() if key in by_key}
        else:
            given = dict(_flattened((weights,), {}, roots[:1]))
        for path in (*given, *kinds):
            check_known(path, kinds, "E324", f"`{self.name}` has no weight `{path}`")
            if path not in given and kinds[path] in names.values():
                message = f"`{path}` is missing among the weights of `{self.name}`"
                raise fail("E324", message, help="`weights=` takes all of them")
        return {kinds[path]: array for path, array in given.items()}

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

    def _paths(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
        """The path of each leaf of a call."""
        given = [path for path, _ in _flattened(args, kwargs, self.parameters)]
        kinds = dict(zip(self.paths, self.bindings, strict=True))
        faults = [f"`{p}` is unknown" for p in given if p not in kinds]
        faults += [
            f"`{p}` is missing"
            for p, (kind, _) in kinds.items()
            if kind == "input" and p not in given
        ]
        if faults:
            takes = ", ".join(self.arguments)
            message = f"`{self.name}` was traced with other arguments: {', '.join(faults[:SHOWN])}"
            raise fail("E306", message, help=f"it takes {takes}")
        return given


def _root(path: str) -> str:
    """The argument that a path begins at."""
    return re.split(r"[.\[]", path)[0]


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
