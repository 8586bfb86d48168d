"""The term language of rules: what it reads, how it types, where it points."""

from __future__ import annotations

import pytest

from eqsat.lang.content import plain_form
from eqsat.lang.source import Placed, read_yaml
from eqsat.lang.terms import TermReader
from eqsat.model.rules import Apply, Compare, Field, Function, Name, Not, Splat, Value, Var


def placed(text: str) -> Placed:
    return read_yaml(f"k: |-\n  {text}\n", "f.yaml").placed(("k",))


def read(left: str) -> tuple[TermReader, Apply]:
    reader = TermReader()
    term = reader.left(placed(left))
    assert reader.problems == []
    assert term is not None
    return reader, term


def codes(reader: TermReader) -> list[tuple[str, int]]:
    return [(d.code, d.span.column if d.span else 0) for d in reader.problems]


def test_left_side_binds_by_kind() -> None:
    reader, term = read("pack(transpose(x, perm=p), layout=l)")
    assert {n: reader.scope.kind(n) for n in "xpl"} == {"x": "tensor", "p": "ints", "l": "layout"}
    assert term.op == "pack"
    inner = term.operands[0]
    assert isinstance(inner, Apply)
    assert isinstance(inner.operands[0], Var)
    assert (str(inner.span), inner.span.end) == ("f.yaml:2:8", 28)


def test_columns_count_characters_not_bytes() -> None:
    reader, _ = read("pack(größe, layout=schön)")
    reader.right(placed("pack(größe, layout=schlecht)"))
    assert codes(reader) == [("E020", 22)]
    assert reader.problems[0].span is not None
    assert reader.problems[0].span.end == 30


def test_splats_lets_and_columns() -> None:
    reader, _ = read("generic(*a, unpack(y, layout=l), *b, sig=g)")
    let = reader.let(placed("c = read_before(g, len(a), l)"))
    right = reader.right(
        placed("unpack(generic(*pack(a, layout=c.before), y, *b, sig=c.sig), layout=c.result)")
    )
    assert reader.problems == []
    assert let is not None
    assert isinstance(let[1], Function)
    assert isinstance(right, Apply)
    generic = right.operands[0]
    assert isinstance(generic, Apply)
    splat, y, plain = generic.operands
    assert isinstance(splat, Splat)
    assert isinstance(splat.inner, Apply)
    assert isinstance(splat.inner.attrs[0][1], Field)
    assert isinstance(y, Var)
    assert isinstance(plain, Splat)
    assert isinstance(plain.inner, Var)


def test_foreach_gives_items() -> None:
    reader, _ = read("generic(*xs, sig=g)")
    assert reader.foreach(placed("tile in target.tiles(g)")) is not None
    assert reader.scope.kind("tile") == "tile"
    found = reader.condition(placed("tile.m <= 8"))
    assert reader.problems == []
    assert isinstance(found, Compare)
    assert found.op == "<="
    assert isinstance(found.left, Field)


def test_conditions() -> None:
    reader, _ = read("pack(t := transpose(x, perm=p), layout=l)")
    assert isinstance(reader.condition(placed("uses(t) == 1")), Compare)
    assert isinstance(reader.condition(placed("not is_identity(p)")), Not)
    assert isinstance(reader.condition(placed("p == identity(len(p))")), Compare)
    assert reader.problems == []


def test_named_op_keeps_its_name() -> None:
    _, term = read("pack(t := transpose(x, perm=p), layout=l)")
    inner = term.operands[0]
    assert isinstance(inner, Apply)
    assert inner.name == "t"


def test_literals_and_default_fields() -> None:
    _, term = read("pack(x, pos=[1, 0], tiles=[8, 4], pad=any)")
    values = {k: v.value for k, v in term.attrs if isinstance(v, Value)}
    assert values == {"pos": [1, 0], "tiles": [8, 4], "pad": ["?", "?"]}


def test_right_side_may_be_a_variable() -> None:
    reader, _ = read("reshape(x, groups=r)")
    assert isinstance(reader.right(placed("x")), Var)
    reader.right(placed("r"))
    assert codes(reader) == [("E021", 3)]


def test_repeated_variable_must_keep_its_kind() -> None:
    reader, term = read("transpose(transpose(x, perm=p), perm=p)")
    assert isinstance(term.attrs[0][1], Name)
    assert reader.problems == []


def test_several_problems_of_one_text() -> None:
    reader = TermReader()
    reader.left(placed("generic(pak(x), transpose(y, prm=p), sig=f(g))"))
    assert codes(reader) == [("E011", 11), ("E013", 32), ("E014", 19), ("E015", 44)]


def test_a_refused_left_side_has_no_followers() -> None:
    reader = TermReader()
    reader.left(placed("pak(x, layout=l)"))
    reader.right(placed("pack(x, layout=l)"))
    assert codes(reader) == [("E011", 3)]


def test_deep_nesting_is_refused_not_crashed() -> None:
    reader = TermReader()
    reader.left(placed("(" * 5000 + "x" + ")" * 5000))
    assert [c for c, _ in codes(reader)] == ["E010"]


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("reshape(reshape(x, groups=r), shape=s)", "reshape(reshape(y, groups=a), shape=b)", True),
        (
            "transpose(transpose(x, perm=p), perm=q)",
            "transpose(transpose(x, perm=p), perm=p)",
            False,
        ),
        ("pack(x, pos=[0], tiles=[1])", "pack(x, tiles=[1], pos=[0])", True),
        ("pack(x, pos=[0], tiles=[1])", "pack(x, tiles=[2], pos=[0])", False),
    ],
)
def test_plain_form_knows_terms_that_differ_in_names_only(a: str, b: str, equal: bool) -> None:
    assert (plain_form(read(a)[1], {}) == plain_form(read(b)[1], {})) is equal
