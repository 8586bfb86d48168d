"""`.eqs` text → Program: reads what `model.text.program_text` prints, and lighter notation.

    program mlp
    input x: f32[64, 48]
    weight w: f32[48, 32]            # `key=…` names the content; without it the name does
    symbol m divisor=16 size=128     # a dim that is not known, a multiple of 16; priced at 128
    input z: f32[m, 48]
    h = matmul(x, w)
    y = relu(h) : f32[64, 32]        # a type may be written, and is then checked
    return y

An argument may arrive in a layout, and a result leave in one; names and types are those of the
plain tensor. `input a as %0: …` names what arrives `%0` instead, as a printed program does:

    input a: f32[128, 256] layout=pack(pos=[0, 1], tiles=[16, 16])
    return y layout=pack(pos=[0], tiles=[16], pad=any), z

A loop or branch names its bodies, which stand in front of it, each from `body` to `end`:

    body step
      input c: f32[4]
      input x: f32[4]
      d = add(c, x)
      return d, d
    end
    s = scan(c0, xs, consts=0, carries=1, length=10, bodies=["step"])

A value keeps the name it is given: it prints as `%h = …`. Behind a `%` it may hold dots, as in
`%h3.ffn.matmul`, or be a number; a value without a name prints as the number of its node.

A line that begins with spaces goes on with the one before it while a bracket is open.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from eqsat.lang.borders import layout_of
from eqsat.lang.expressions import Poisoned, Refused, Tree, masked, parse
from eqsat.lang.programterms import TermBuilder, Types
from eqsat.lang.source import Lines, Placed, read_file, refuse
from eqsat.model.control import MOST_NESTED
from eqsat.model.diag import Diagnostic, EqsatError, Note, Span, did_you_mean, fail
from eqsat.model.extents import is_symbolic
from eqsat.model.layout import Border
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder, Program
from eqsat.model.symbols import (
    NAME,
    NO_ORIGIN,
    Origin,
    Symbol,
    check_names,
    extents_of,
    file_line,
    sized,
)
from eqsat.model.tensor import DTYPES, TensorType
from eqsat.ops.meaning.programs import iota_key, is_line
from eqsat.ops.programs.border_layouts import held_in, held_of, put_in, refuse_other, taken_out

_LEAF = re.compile(
    r"""\s*(?P<op>input|weight)\s+(?P<name>"(?:[^"\\]|\\.)*"|\S.*?)(?:\s+as\s+(?P<ref>%\w+))?\s*:
    \s*(?P<type>[a-z]\w*\s*\[[^\]]*\])(?:\s+key=(?P<key>"(?:[^"\\]|\\.)*"|\S+))?(?:\s+index=(?P<index>\d+))?
    (?:\s+layout=(?P<layout>\S.*?))?\s*""",
    re.VERBOSE,
)
_SYMBOL = re.compile(
    r"\s*symbol\s+(?P<name>\S+?)(?:\s+divisor=(?P<divisor>\d{1,13}))?"
    r"(?:\s+size=(?P<size>\d{1,13}))?\s*"
)
_BODY = re.compile(r"\s*body\s+(?P<name>[^\s=:#]+)\s*")
_DEFINITION = re.compile(r"\s*(?P<name>%\w[\w.@~-]*|[^\W\d]\w*)\s*=(?!=)")
_TYPE = re.compile(r"\s*([A-Za-z]\w*\s*\[[^\]]*\])\s*(,|$)")
_LAYOUT = re.compile(r"\s+layout=\s*")
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")


def load_program(path: str | Path, sizes: Mapping[str, int] | None = None) -> Program:
    """The program in a `.eqs` file, its symbols priced at `sizes`."""
    return load_placed(path, sizes)[0]


def load_placed(
    path: str | Path, sizes: Mapping[str, int] | None = None
) -> tuple[Program, dict[Border, Span]]:
    """The program in a `.eqs` file, and where it says in which layouts its border is."""
    return _read(read_file(path), str(path), sizes)


def parse_program(
    text: str, file: str = "<text>", sizes: Mapping[str, int] | None = None
) -> Program:
    """`.eqs` text → Program; EqsatError (E300–E313, E385–E394) with all problems of the text."""
    return _read(text, file, sizes)[0]


def _read(
    text: str, file: str, sizes: Mapping[str, int] | None
) -> tuple[Program, dict[Border, Span]]:
    reader = _ProgramReader(Path(file).stem if file != "<text>" else "program", sizes)
    lines = Lines(file, text.replace("\r\n", "\n"))
    for statement in _statements(lines):
        if not reader.body(statement):
            reader.statement(statement)
    if reader.open is not None:
        name, begin, _ = reader.open
        reader.report("E313", f"the body `{name}` does not end", begin.whole(), "write `end`")
    return reader.finish(lines), reader.borders


def parse_term(
    placed: Placed,
    name: str,
    given: Iterable[tuple[str, str]],
    places: Mapping[str, Span],
    want: Types | None = None,
) -> Program:
    """A term over inputs (name, type text; `places` has their spans) as a program of one result.

    A type text that starts with `weight`, as in `weight f32[6, 4]`, makes the operand a weight;
    with `iota`, as in `iota i32[8]`, one that holds 0, 1, …

    want: the types the term must have (E305).
    """
    reader = _ProgramReader(name)
    for operand, text in given:
        kind, _, rest = text.partition(" ")
        is_weight = kind in ("weight", "iota")
        type_ = reader.type(rest if is_weight else text, places[operand])
        is_iota = kind == "iota" and type_ is not None and is_line(type_)
        key = iota_key(type_) if is_iota and type_ is not None else ""
        op = "weight" if is_weight else "input"
        reader.leaf(op, operand, operand, type_, places[operand], key=key)
    reader.results = reader.value(placed, keep=False, want=want)
    return reader.finish(placed.lines)


def _statements(lines: Lines) -> list[Placed]:
    """Statements without their comments; continued lines are joined."""
    statements: list[Placed] = []
    depth = 0
    for number, start in enumerate(lines.starts):
        text = _uncommented(lines.lines[number])
        if not text.strip():
            continue
        placed = Placed(text, lines, tuple(range(start, start + len(text))))
        if depth > 0 and text[0].isspace():
            last = statements.pop()
            placed = Placed(f"{last.text} {text}", lines, (*last.offsets, start, *placed.offsets))
        statements.append(placed)
        depth = _depth(placed.text)
    return statements


def _uncommented(line: str) -> str:
    blank = _QUOTED.sub(lambda m: "_" * len(m[0]), line)
    at = blank.find("#")
    return (line if at < 0 else line[:at]).rstrip()


def _depth(text: str) -> int:
    blank = _QUOTED.sub("", text)
    return sum(blank.count(c) for c in "([{") - sum(blank.count(c) for c in ")]}")


class _ProgramReader:
    """Reads statements one by one; problems are collected."""

    def __init__(self, name: str, sizes: Mapping[str, int] | None = None):
        self.builder = Builder(name)
        self.sizes = sizes
        self.depth = 0  # bodies around it
        self.symbols: dict[str, Symbol] = {}
        self.names: dict[str, int | None] = {}  # None: its definition was refused
        self.places: dict[str, Span] = {}
        self.borders: dict[Border, Span] = {}  # where the layouts of arguments and results stand
        self.results: list[int] | None = None
        self.problems: list[Diagnostic] = []
        self.last: Placed | None = None
        self.bodies: dict[str, Program | None] = {}  # of loops and branches; None: refused
        self.open: tuple[str, Placed, _ProgramReader] | None = None  # the body that is being read

    def report(self, code: str, message: str, span: Span, help: str = "") -> None:
        self.problems.append(Diagnostic(code, message, span, help=help))

    def finish(self, lines: Lines) -> Program:
        if self.results is None and not self.problems:
            at = self.last.whole() if self.last else lines.span(0, 1)
            self.report("E313", "the program returns nothing", at, "end it with `return x`")
        refuse(self.problems)
        check_names(self.sizes, self.symbols.values())
        return self.builder.build(self.results or [], tuple(self.symbols.values()))

    @property
    def extents(self) -> dict[str, int]:
        """Symbolic extents by name, which may stand for a number."""
        return extents_of(self.symbols.values())

    def body(self, s: Placed) -> bool:
        """Whether a statement begins, ends or is part of a body; if so, it is read."""
        if self.open is None:
            head = _BODY.fullmatch(s.text)
            if head is None or self.results is not None:
                return False
            if self.depth >= MOST_NESTED:
                deep = f"bodies stand at most {MOST_NESTED} deep inside of each other"
                raise EqsatError(Diagnostic("E332", deep, s.whole()))
            inner = _ProgramReader(head["name"], self.sizes)
            inner.symbols, inner.depth = self.symbols, self.depth + 1
            self.open = head["name"], s, inner
            return True
        name, begin, inner = self.open
        if inner.open is not None or s.text.strip() != "end":
            if not inner.body(s):
                inner.statement(s)
            return True
        self.open = None
        self._body_done(name, begin, inner)
        return True

    def _body_done(self, name: str, begin: Placed, inner: _ProgramReader) -> None:
        if inner.results is None and not inner.problems:
            inner.report("E313", f"the body `{name}` returns nothing", begin.whole())
        self.problems += inner.problems
        if name in self.bodies:
            self.report("E304", f"the body `{name}` is defined twice", begin.whole())
        symbols = tuple(self.symbols.values())
        whole = not inner.problems and inner.results is not None
        self.bodies[name] = inner.builder.build(inner.results or [], symbols) if whole else None

    def statement(self, s: Placed) -> None:
        word = s.text.split(maxsplit=1)[0]
        leaf, definition = _LEAF.fullmatch(s.text), _DEFINITION.match(s.text)
        symbol = _SYMBOL.fullmatch(s.text)
        if self.results is not None:
            self.report("E300", "nothing may follow `return`", s.whole())
        elif word == "program" and self.last is None and definition is None:
            name = s.text.strip().removeprefix("program").strip()
            self.builder.name = _unquoted(name) if name else self.builder.name
        elif symbol is not None and definition is None:
            self._symbol(s, symbol)
        elif leaf is not None:
            self._leaf(s, leaf)
        elif definition is not None:
            self._definition(s, definition)
        elif word == "return":
            at = s.text.index("return") + len("return")
            self.results = self._return(s.part(at, len(s.text)))
        else:
            at = len(s.text) - len(s.text.lstrip())
            self.report(
                "E300", "cannot read this line", s.span(at, len(s.text)),
                "write `y = op(x, …)`, `input x: f32[4, 8]`, `weight w: f32[8]` or `return y`",
            )  # fmt: skip
        self.last = s

    def _symbol(self, s: Placed, match: re.Match[str]) -> None:
        """A dim that is not known; E387 if its name is none or taken, E385 or E386 for its size."""
        name, span = match["name"], s.span(*match.span("name"))
        if not NAME.fullmatch(name) or keyword.iskeyword(name) or name in self.symbols:
            taken = "there is one already" if name in self.symbols else "write a word"
            self.report("E387", f"`{name}` cannot name a symbol: {taken}", span)
            return
        divisor = int(match["divisor"] or 1)
        size = None if match["size"] is None else int(match["size"])
        try:
            if divisor < 1:
                raise fail("E386", f"`{name}`: nothing is a multiple of 0")
            self.symbols[name] = sized(name, divisor, size, self.sizes)
        except EqsatError as error:
            problem = error.diagnostics[0]
            self.report(problem.code, problem.message, span, problem.help)

    # ---- leaves -----------------------------------------------------------------------------
    def _leaf(self, s: Placed, match: re.Match[str]) -> None:
        type_ = self.type(match["type"], s.span(*match.span("type")))
        name = _unquoted(match["name"])
        span = s.span(*match.span("ref" if match["ref"] else "name"))
        index = int(match["index"]) if match["index"] else None
        self.leaf(
            match["op"],
            name,
            match["ref"] or name,
            type_,
            span,
            _unquoted(match["key"] or ""),
            index,
            s.part(*match.span("layout")) if match["layout"] else None,
        )

    def leaf(
        self, op: str, name: str, ref: str, type_: TensorType | None, span: Span,
        key: str = "", index: int | None = None, layout: Placed | None = None,
    ) -> None:  # fmt: skip
        """Define an input or a weight; nothing refers to it if its type was refused."""
        if type_ is None:
            self._define(ref, None, span)
            return
        if op == "input":
            count = sum(n.op == "input" for n in self.builder.nodes)
            attr = Leaf(name, type_, count if index is None else index)
            if layout is not None:
                self._define(ref, self._laid_out(attr, layout, is_plain=ref == name), span)
                return
        elif layout is not None:
            hint = "leave it out: how a weight is kept is for the search to choose"
            self.report("E394", f"weight `{name}` has a layout", layout.whole(), hint)
            return
        else:
            attr = Leaf(name, type_, -1, key or name)
            if any(map(is_symbolic, type_.shape)):
                self.report("E388", f"weight `{name}` is {type_}: a weight's size is known", span)
        self._define(ref, self.builder.append(op, (), attr), span)

    def _laid_out(self, leaf: Leaf, layout: Placed, is_plain: bool) -> int | None:
        """The node of an argument that arrives in a layout: the tensor, or what arrives."""
        try:
            arrives = held_in(leaf, layout_of(layout, leaf.type))
        except EqsatError as error:
            self.problems += error.diagnostics
            return None
        self.borders[Border("input", leaf.index)] = layout.whole()
        node = self.builder.append("input", (), arrives)
        return taken_out(self.builder, node) if is_plain else node

    def type(self, text: str, span: Span) -> TensorType | None:
        """A tensor type; reports E302 for an unknown element type, else E300."""
        word = text.split("[", maxsplit=1)[0].strip()
        try:
            return TensorType.parse(text, self.extents)
        except ValueError as error:
            unknown = word.isidentifier() and word not in DTYPES and "[" in text
            hint = did_you_mean(word, DTYPES) if unknown else ""
            self.report("E302" if unknown else "E300", str(error), span, hint)
            return None

    def _define(self, name: str, node: int | None, span: Span) -> None:
        if name in self.names:
            note = Note(self.places[name], "first here")
            message = f"`{name}` is defined twice"
            self.problems.append(Diagnostic("E304", message, span, "again here", notes=(note,)))
            return
        self.names[name], self.places[name] = node, span

    # ---- terms ------------------------------------------------------------------------------
    def _definition(self, s: Placed, match: re.Match[str]) -> None:
        name = match["name"]
        at = s.whole()
        self.builder.origin = Origin(name.removeprefix("%"), file_line(at.file, at.line))
        before = len(self.builder.nodes)
        nodes = self.value(s.part(match.end(), len(s.text)), keep=name.startswith("%"))
        self.builder.settle(before, nodes[0] if nodes else None)
        self.builder.origin = NO_ORIGIN
        self._define(name, nodes[0] if nodes else None, s.span(*match.span("name")))

    def value(self, s: Placed, keep: bool, want: Types | None = None) -> list[int] | None:
        """The node of `term` or `term : types`, in a list; None if it is refused."""
        colon = _type_colon(s.text)
        term = s.part(0, colon if colon >= 0 else len(s.text))
        written, span = want, term.whole()
        if colon >= 0:
            types = s.part(colon + 1, len(s.text))
            at = len(types.text) - len(types.text.lstrip())
            span = types.span(at, len(types.text))
            written = self._types(types)
            if written is None:
                return None
        tree = parse(term, "E300", masked(term.text), self.extents)
        if isinstance(tree, Diagnostic):
            self.problems.append(tree)
            return None
        node = self._build(tree, tree.body, written, keep)
        if node is None or not self._check_types(tree, node, written, span):
            return None
        return [node]

    def _build(self, tree: Tree, body: ast.expr, want: Types | None, keep: bool) -> int | None:
        try:
            terms = TermBuilder(tree, self.builder, self.names, self.bodies)
            return terms.root(body, want, keep)
        except Refused as error:
            self.problems.append(error.diagnostic)
        except Poisoned:
            pass  # what it needs was reported where it is defined
        return None

    def _check_types(self, tree: Tree, node: int, want: Types | None, span: Span) -> bool:
        got = self.builder.nodes[node].types
        if want is None or want == got:
            return True
        call = tree.body
        what = tree.text(call.func) if isinstance(call, ast.Call) else tree.text(call)
        shown, wanted = (", ".join(map(str, t)) for t in (got, want))
        self.report("E305", f"`{what}` gives {shown}, not {wanted}", span)
        return False

    def _types(self, s: Placed) -> Types | None:
        types: list[TensorType] = []
        at = 0
        while match := _TYPE.match(s.text, at):
            one = self.type(match[1], s.span(*match.span(1)))
            if one is None:
                return None
            types.append(one)
            at = match.end()
            if not match[2]:
                return tuple(types)
        message = "a type is wanted here"
        at += len(s.text[at:]) - len(s.text[at:].lstrip())
        self.report("E300", message, s.span(at, len(s.text)), "write `: f32[4, 8]`")
        return None

    def _return(self, s: Placed) -> list[int]:
        if not s.text.strip():
            return []
        if _LAYOUT.search(_QUOTED.sub("", s.text)):
            parts = _parts(s)
            nodes = [self._returned(part, number) for number, part in enumerate(parts)]
            return [n for n in nodes if n is not None]
        tree = parse(s, "E300", masked(s.text))
        if isinstance(tree, Diagnostic):
            self.problems.append(tree)
            return []
        whole = tree.text(tree.body) in self.names
        tuple_ = isinstance(tree.body, ast.Tuple) and not whole
        nodes = tree.body.elts if tuple_ else [tree.body]  # type: ignore[attr-defined]
        results = [self._build(tree, n, None, False) for n in nodes]
        return [n for n in results if n is not None]

    def _returned(self, s: Placed, number: int) -> int | None:
        """One result, `term` or `term layout=…`."""
        match = _LAYOUT.search(s.text)
        node = self.value(s.part(0, match.start() if match else len(s.text)), keep=False)
        if node is None or match is None:
            return None if node is None else node[0]
        layout = s.part(match.end(), len(s.text))
        self.borders[Border("result", number)] = layout.whole()
        asked = self.builder.nodes[node[0]]
        try:
            written = layout_of(layout, asked.type)
            refuse_other(f"result {number}", held_of(asked), written, layout.whole())
        except EqsatError as error:
            self.problems += error.diagnostics
            return None
        return put_in(self.builder, node[0], written)


def _parts(s: Placed) -> list[Placed]:
    """Parts between the commas that are in no bracket."""
    blank = _QUOTED.sub(lambda m: "_" * len(m[0]), s.text)
    depth, begin, parts = 0, 0, []
    for i, c in enumerate(f"{blank},"):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth <= 0:
            parts.append(s.part(begin, i))
            begin = i + 1
    return parts


def _unquoted(text: str) -> str:
    """A name as it is, or as a JSON string where it holds unusual characters."""
    try:
        return str(json.loads(text)) if text.startswith('"') else text
    except ValueError:
        return text


def _type_colon(text: str) -> int:
    """Where the type of `term : type` begins, -1 if none is written."""
    depth = 0
    blank = _QUOTED.sub(lambda m: "_" * len(m[0]), text)
    for i, c in enumerate(blank):
        depth += (c in "([{") - (c in ")]}")
        if c == ":" and depth <= 0:
            return i
    return -1
