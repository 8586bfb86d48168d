"""A module with `flow.dispatch.workgroups` → its steps, and each dispatch as a function.

The steps of the one public function are read line by line, as IREE prints them. The body of every
dispatch becomes a function of tensors in place, so that MLIR's own parser reads it and names the
place of what it does not understand in the file as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from eqsat.frontends.mlir.source import Edit, ModuleText, check_nesting
from eqsat.model.diag import Span, fail

MARKS = ("flow.dispatch.workgroups", "flow.dispatch.region")
_TENSOR = r"tensor<[^<>]*>"
_FUNCTION = re.compile(r"(?:util|func)\.func (?:public )?@(?P<name>[\w$.\-]+)\(.*\{")
_IMPORT = re.compile(rf"(?P<to>%\w+) = hal\.tensor\.import .*-> (?P<type>{_TENSOR})")
_EXPORT = re.compile(r"(?P<to>%\w+) = hal\.tensor\.export (?P<of>%[\w#]+)\b.*")
_RESHAPE = re.compile(
    rf"(?P<to>%\w+) = (?:flow\.tensor\.reshape|flow\.tensor\.bitcast|tensor\.expand_shape|"
    rf"tensor\.collapse_shape) (?P<of>%[\w#]+)\b.*(?:->|into) (?P<type>{_TENSOR})"
)
_GLOBAL = re.compile(rf"(?P<to>%\w+) = util\.global\.load .*: (?P<type>{_TENSOR})")
_RETURN = re.compile(r"(?:util\.|func\.)?return ?(?P<of>.*?)(?: : .*)?")
_DISPATCH = re.compile(
    r"(?P<to>%\w+)(?::\d+)? = flow\.dispatch\.workgroups(?:\[(?P<load>.*?)\])?"
    r"\((?P<of>.*?)\) : .* ="
)
_ARGUMENT = re.compile(
    rf"(?P<name>%\w+): !(?:iree_tensor_ext|flow)\.dispatch\.tensor<"
    rf"(?P<way>\w+):(?P<type>{_TENSOR})>"
)
_LOAD = re.compile(
    rf"(?P<to>%\w+) = (?:iree_tensor_ext|flow)\.dispatch\.tensor\.load (?P<of>%\w+), "
    rf"offsets = (?P<at>\[.*?\]), sizes = (?P<sizes>\[.*?\]), strides = (?P<strides>\[.*?\])"
    rf".*-> (?P<type>{_TENSOR})"
)
_STORE = re.compile(
    rf"(?:iree_tensor_ext|flow)\.dispatch\.tensor\.store (?P<of>%\w+), (?P<to>%\w+), "
    rf"offsets = (?P<at>\[.*?\]), sizes = .* : (?P<type>{_TENSOR}) -> .*"
)
_PLACE = re.compile(r" loc\((?:[^()]|\([^()]*\))*\)$")
# lines of the function that compute nothing
_IDLE = re.compile(r"(?:%\w+ = arith\.constant (?!dense).*|%c\w+ = .*constant.*|)")


@dataclass(frozen=True)
class FlowDispatch:
    """One dispatch: what it reads and how many values it writes; its body is `function`."""

    to: str
    operands: tuple[str, ...]
    results: int
    function: str
    span: Span


@dataclass(frozen=True)
class View:
    """The same bytes as another shape."""

    to: str
    of: str
    type: str
    span: Span


@dataclass(frozen=True)
class Given:
    """An argument, or a weight that the module keeps elsewhere."""

    to: str
    type: str
    is_weight: bool
    span: Span


@dataclass
class FlowModule:
    """Steps in their order, names of the results, and the dispatches as functions of a module."""

    name: str
    steps: list[FlowDispatch | View | Given]
    results: tuple[str, ...]
    functions: ModuleText


def is_flow(text: str) -> bool:
    """Whether a text is one of dispatches."""
    return any(mark in text for mark in MARKS)


def parse_flow(text: str, file: str) -> FlowModule:
    """EqsatError E345 if this is not as IREE prints it, E346 for what is not read, E371 nesting."""
    if "\0" in text:
        raise fail("E345", f"`{file}` is no MLIR text: it holds null characters")
    check_nesting(ModuleText(file, text))
    return _Reader(text, file).read()


@dataclass
class _Line:
    number: int
    start: int
    text: str

    @property
    def bare(self) -> str:
        """Without the place it comes from, which may be printed behind it."""
        return _PLACE.sub("", self.text.strip())


@dataclass
class _Reader:
    text: str
    file: str
    edits: list[Edit] = field(default_factory=list)
    steps: list[FlowDispatch | View | Given] = field(default_factory=list)

    name: str = ""
    results: tuple[str, ...] = ()
    exported: dict[str, str] = field(default_factory=dict)

    def read(self) -> FlowModule:
        lines = self._lines()
        for line in lines:
            if line.bare.startswith("#"):  # a map that bodies name
                continue
            self._erase(line)
            function = _FUNCTION.fullmatch(line.bare)
            if function is not None and self.name:
                raise self._refused(line, "a module with two functions is not read")
            if function is not None:
                self.name = function["name"]
            elif self.name and (found := _DISPATCH.fullmatch(line.bare)):
                self._dispatch(line, found, lines)
            elif self.name:
                self._step(line)
        if not self.name or not self.results:
            help = "print it: `iree-compile --compile-to=dispatch-creation`"
            raise fail("E345", f"`{self.file}` has no function that returns something", help=help)
        functions = ModuleText(self.file, self.text, tuple(sorted(self.edits)))
        results = tuple(self.exported.get(r, r) for r in self.results)
        return FlowModule(self.name, self.steps, results, functions)

    def _step(self, line: _Line) -> None:
        """A line of the function that is no dispatch."""
        for pattern, is_weight in ((_IMPORT, False), (_GLOBAL, True)):
            if given := pattern.fullmatch(line.bare):
                self.steps.append(Given(given["to"], given["type"], is_weight, self._span(line)))
                return
        if found := _RESHAPE.fullmatch(line.bare):
            self.steps.append(View(found["to"], found["of"], found["type"], self._span(line)))
        elif found := _EXPORT.fullmatch(line.bare):
            self.exported[found["to"]] = found["of"]
        elif found := _RETURN.fullmatch(line.bare):
            self.results = tuple(n.strip() for n in found["of"].split(",") if n.strip())
        elif line.bare != "}" and not _IDLE.fullmatch(line.bare):
            op = line.bare.split(" = ")[-1].split()
            raise self._refused(line, f"`{op[0] if op else line.bare}` is not read")

    def _lines(self) -> Iterator[_Line]:
        start = 0
        for number, text in enumerate(self.text.splitlines(keepends=True), 1):
            yield _Line(number, start, text.rstrip("\n"))
            start += len(text)

    def _dispatch(self, line: _Line, found: re.Match[str], lines: Iterator[_Line]) -> None:
        """A dispatch whose body follows, and how many workgroups there are behind it."""
        if found["load"]:
            raise self._refused(line, "sizes that are not known are not read")
        head = next(lines, line)
        arguments = [(m["name"], m["way"], m["type"]) for m in _ARGUMENT.finditer(head.text)]
        if not arguments or head.text.count("%") != len(arguments):
            raise self._refused(head, "a dispatch takes whole tensors")
        if any(way not in ("readonly", "writeonly") for _, way, _ in arguments):
            raise self._refused(head, "a result that is written in place is not read")
        operands = tuple(n.strip() for n in found["of"].split(",") if n.strip())
        reads = [f"{n}: {t}" for n, way, t in arguments if way == "readonly"]
        if len(reads) != len(operands):
            raise self._refused(head, "it has another number of arguments than operands")
        slots = {n: t for n, way, t in arguments if way == "writeonly"}
        function = f"dispatch_{len(self.steps)}"
        kinds = ", ".join(slots.values())
        self._replace(head, f"func.func @{function}({', '.join(reads)}) -> ({kinds}) {{")
        self._body(head, lines, dict(arguments_of(arguments)), slots)
        self.steps.append(
            FlowDispatch(found["to"], operands, len(slots), function, self._span(line))
        )

    def _body(
        self, head: _Line, lines: Iterator[_Line], types: dict[str, str], slots: dict[str, str]
    ) -> None:
        stored: dict[str, str] = {}
        depth = 1
        for line in lines:
            load, store = _LOAD.fullmatch(line.bare), _STORE.fullmatch(line.bare)
            depth += line.text.count("{") - line.text.count("}")
            if load is not None:
                source = types.get(load["of"], "")
                part = f"{load['of']}{load['at']}{load['sizes']}{load['strides']}"
                self._replace(line, f"{load['to']} = tensor.extract_slice {part} : {source} to"
                                    f" {load['type']}")  # fmt: skip
            elif store is not None:
                if store["to"] in stored or slots.get(store["to"]) != store["type"]:
                    raise self._refused(line, "a result that is stored in parts is not read")
                stored[store["to"]] = store["of"]
                self._erase(line)
            elif line.bare == "flow.return" and depth == 1:
                missing = [s for s in slots if s not in stored]
                if missing:
                    raise self._refused(line, f"`{missing[0]}` is never stored")
                values = ", ".join(stored[s] for s in slots)
                self._replace(line, f"return {values} : {', '.join(slots.values())}")
            elif depth <= (1 if "} count" in line.text else 0):
                self._replace(line, "}")
                if "} count" in line.text:
                    self._skip(lines)
                return
        raise self._refused(head, "the body of this dispatch has no end")

    def _skip(self, lines: Iterator[_Line]) -> None:
        """How many workgroups there are says nothing about what is computed."""
        depth = 1
        for line in lines:
            self._erase(line)
            depth += line.text.count("{") - line.text.count("}")
            if depth == 0:
                return

    # ---- edits and places --------------------------------------------------------------------
    def _replace(self, line: _Line, text: str) -> None:
        self.edits.append(Edit(line.start, line.start + len(line.text), text))

    def _erase(self, line: _Line) -> None:
        if line.text:
            self._replace(line, "")

    def _span(self, line: _Line) -> Span:
        return Span(self.file, line.number, 1, 2, line.text)

    def _refused(self, line: _Line, message: str) -> Exception:
        return fail("E346", message, self._span(line))


def arguments_of(arguments: list[tuple[str, str, str]]) -> Iterator[tuple[str, str]]:
    """Name and type of what a dispatch reads."""
    for name, way, kind in arguments:
        if way == "readonly":
            yield name, kind
