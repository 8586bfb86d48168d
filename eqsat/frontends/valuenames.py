"""Names of the values of a traced function: after scopes, modules, weights and functions.

The user's own code, in front of libraries that only pass on, is where a value or error is from.
"""

from __future__ import annotations

import linecache
import re
import sysconfig
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from eqsat.frontends.values import Tensor
from eqsat.model.diag import Span
from eqsat.model.program import Builder
from eqsat.model.symbols import NO_ORIGIN, Origin, file_line, spoken

PACKAGE = Path(__file__).parents[1]
LIBRARIES = tuple(
    Path(p) for p in {sysconfig.get_path(k) for k in ("stdlib", "purelib", "platlib")}
)


def raised_at(error: BaseException) -> Span | None:
    """The innermost line outside of eqsat and of installed packages; None if there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if frame.lineno and path.is_file() and not is_library(path.resolve()):
            text = linecache.getline(frame.filename, frame.lineno).rstrip("\n")
            indent = len(text) - len(text.lstrip())
            first = frame.colno if frame.colno is not None else indent
            on_one_line = frame.end_lineno == frame.lineno and frame.end_colno is not None
            last = frame.end_colno if on_one_line and frame.end_colno else len(text)
            return Span(_shown(path), frame.lineno, first + 1, last + 1, text)
    return None


def is_library(path: Path) -> bool:
    """Whether a file is of eqsat itself, of Python or of an installed package."""
    return any(path.is_relative_to(p) for p in (PACKAGE, *LIBRARIES))


def _shown(path: Path) -> str:
    """Relative to here where that is shorter."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


NODE = "node:"  # in front of a scope that is the name of one node of a model
WORDS = {
    "dot_general": "matmul",
    "conv_general_dilated": "conv",
    "broadcast_in_dim": "broadcast",
    "convert_element_type": "cast",
    "select_n": "select",
    "integer_pow": "pow",
    "dynamic_slice": "slice",
    "dynamic_update_slice": "update",
}
_MOVES = ("transpose", "reshape", "convert_element_type", "squeeze", "broadcast_in_dim", "rev")
_WRAPPED = re.compile(r"\w+\((.*)\)")  # a scope under a transformation: `jvp(ffn)`
_OF_MODULE = frozenset({  # last words of the path of a weight that say nothing of it
    "weight", "weights", "kernel", "w", "bias", "b", "scale", "gamma", "beta", "embedding", "value"
})  # fmt: skip


@dataclass(frozen=True)
class Scope:
    """An equation that is being read: how many nodes there were, and where it stands.

    call: the path of what it calls, "" if it is no call. node: that of the model's node around it.
    weight: the path of the weight that it only moves.
    """

    before: int
    path: tuple[str, ...]
    at: str
    call: str = ""
    node: str = ""
    weight: str = ""


@dataclass
class ValueNames:
    """Names the nodes of one jaxpr and of what it calls; title: the function that was traced."""

    builder: Builder
    title: str
    leaves: dict[int, str] = field(default_factory=dict)  # node of a leaf → its path
    open: list[Scope] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)  # path → how often it was called
    nodes: dict[str, int] = field(default_factory=dict)  # path of a model's node → its last value

    def leaf(self, node: int, path: str, is_weight: bool) -> None:
        """An argument, by its path; one that is a weight has a name of its own."""
        alone = is_weight and path.isidentifier()
        self.leaves.setdefault(node, f"weights.{path}" if alone else path)

    # ---- equations -----------------------------------------------------------------------------
    def begin(self, eqn: Any, reads: Sequence[int], call: str) -> None:
        """Name what is added from now on after this equation, which reads these nodes."""
        around = self.open[-1] if self.open else Scope(0, (), "")
        scopes = _scopes(eqn)
        path = (*around.path, *(s.removeprefix(NODE) for s in scopes))
        node = ".".join(path) if any(s.startswith(NODE) for s in scopes) else around.node
        file, function, line = _line_of(eqn.source_info.traceback)
        at = file_line(file, line) or around.at
        if call:
            path = path or self._of_function(function)
            name = call.strip("_") if call.isidentifier() else "einsum"
            path = (*path, *([] if path and path[-1] == name else [self._called(path, name)]))
            self.open.append(Scope(len(self.builder.nodes), path, at, ".".join(path), node))
            return
        moved = reads[:1] if eqn.primitive.name in _MOVES else ()
        weight = "".join(self.leaves.get(i, "") for i in moved)
        self.open.append(Scope(len(self.builder.nodes), path, at, "", node, weight))
        if not scopes and not node:
            module = next((m for node in reads if (m := _module(self.leaves.get(node, "")))), ())
            path = path or self._of_function(function)
            path = (*path, *module) if len(module) == 1 else module or path
        name = spoken(".".join((*path, _word(eqn))))
        self.builder.origin = Origin(name, at)

    def end(self, results: Sequence[Tensor]) -> None:
        """The equation is read, and these are its results."""
        scope = self.open.pop()
        value = self._value(scope.before, results)
        if scope.call:
            self._returned(scope, value, results)
        else:
            self.builder.settle(scope.before, value)
        if scope.weight and value is not None:
            self.leaves.setdefault(value, scope.weight)
        if scope.node and value is not None:
            self.nodes[scope.node] = value
        self.builder.origin = NO_ORIGIN

    def finish(self) -> None:
        """Everything is read: results of a model's nodes get their names, what all share goes."""
        for path in sorted(self.nodes, key=len, reverse=True):
            self._rename(self.nodes[path], spoken(path))
        self._shorten()
        self.builder.origin = Origin("result")  # of what is only laid out for the caller

    def _value(self, before: int, results: Sequence[Tensor]) -> int | None:
        """The node that an equation made for its result; that of all of them, if it has several."""
        added = [t.node for t in results if t.node >= before]
        if not added:
            return None
        n = self.builder.nodes[added[0]]
        return n.operands[0] if n.op == "result" else added[0]

    def _returned(self, scope: Scope, value: int | None, results: Sequence[Tensor]) -> None:
        """Name the result of a call as the call, unless a weight has named it."""
        if value is None or len(results) != 1:
            return
        name = self.builder.nodes[value].origin.name
        if name.startswith(spoken(scope.call)):
            self._rename(value, spoken(scope.call))

    def _rename(self, node: int, name: str) -> None:
        self.builder.rename(node, self.builder.nodes[node].origin.called(name))

    # ---- paths ---------------------------------------------------------------------------------
    def _called(self, path: tuple[str, ...], name: str) -> str:
        """A call's name; the second call of the same name there is `name_2`."""
        key = ".".join((*path, name))
        self.calls[key] = self.calls.get(key, 0) + 1
        return name if self.calls[key] == 1 else f"{name}_{self.calls[key]}"

    def _of_function(self, function: str) -> tuple[str, ...]:
        """The innermost function with a name: `attention.<locals>.<genexpr>` is `attention`."""
        named = [f for f in function.split(".") if not f.startswith("<") and f != "__call__"]
        return (named[-1].strip("_"),) if named and named[-1] != self.title else ()

    def _shorten(self) -> None:
        """Leave out the first word where every name of three and more begins with it."""
        nodes = self.builder.nodes
        while True:
            long = {i: n.origin.name for i, n in enumerate(nodes) if n.origin.name.count(".") > 1}
            first = {name.partition(".")[0] for name in long.values()}
            is_counted = any(name.split(".")[1].isdigit() for name in long.values())
            if len(first) != 1 or len(long) < 2 or is_counted:
                return
            for i, name in long.items():
                self._rename(i, name.partition(".")[2])


def _module(path: str) -> tuple[str, ...]:
    """The words of a weight's path, without its argument and what only says that it is one."""
    words = re.findall(r"\w+", path)
    if len(words) < 2:
        return ()
    path_words = words[not words[1].isdigit() :]
    return tuple(path_words[:-1] if path_words[-1].lower() in _OF_MODULE else path_words)


def _word(eqn: Any) -> str:
    name: str = eqn.primitive.name
    return WORDS.get(name, name.removeprefix("reduce_").replace("-", "_"))


def _scopes(eqn: Any) -> list[str]:
    """Named scopes of an equation, transformations taken off; `ij,jk->ik` of an einsum is none."""
    scopes = []
    for scope in str(eqn.source_info.name_stack).split("/"):
        part = scope
        while wrapped := _WRAPPED.fullmatch(part):
            part = wrapped[1]
        scopes += [part] if part and "->" not in part else []
    return scopes


@lru_cache(maxsize=1_000)  # equations of one line share a traceback
def _line_of(traceback: Any) -> tuple[str, str, int]:
    frames = _frames()
    for frame in frames(traceback) if frames else ():
        file = _user_file(frame.file_name)
        if file:
            return file, frame.function_name, frame.start_line
    return "", "", 0


@lru_cache(maxsize=1)
def _frames() -> Any:
    """JAX's own reading of its tracebacks, which it keeps in a private module."""
    try:
        from jax._src.source_info_util import user_frames
    except ImportError:  # names of values are then without functions and lines
        return None
    return user_frames


@lru_cache(maxsize=1_000)
def _user_file(name: str) -> str:
    """The file, or "" if it is eqsat's, a library's or none."""
    path = Path(name)
    if not path.is_file() or is_library(path.resolve()):
        return ""
    return name
