"""YAML with places: every character of every scalar style is found again in the file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.lang import source
from eqsat.lang.source import Lines, Placed, placed_at, read_yaml
from eqsat.model.diag import Diagnostic, EqsatError, Span
from eqsat.plugins import data_folder

STYLES = """plain: foo(a, b)
single: 'it''s(a)'
double: "tab\\t \\"q\\" \\u00e9(a)"
folded: >-
  foo(a,
  b)
literal: |-
  foo(
    a)
continued: foo(a,
   b)
größe: 'ä: ü'
flow: {k: [x y, "z"]}
"""


def characters(key: str) -> list[tuple[str, str]]:
    """Each character of a value beside the character of the file it is said to stand at."""
    source = read_yaml(STYLES, "f.yaml")
    placed = source.placed((key,))
    lines = STYLES.split("\n")
    spans = [placed.span(i, i + 1) for i in range(len(placed.text))]
    return [
        (c, lines[s.line - 1][s.column - 1 : s.column])
        for c, s in zip(placed.text, spans, strict=True)
    ]


@pytest.mark.parametrize(
    "key", ["plain", "single", "double", "folded", "literal", "continued", "größe"]
)
def test_every_character_has_its_place(key: str) -> None:
    for value, in_file in characters(key):
        escaped = in_file == "\\" and key == "double"
        assert value == in_file or value.isspace() or escaped


def test_span_of_a_piece_on_a_later_line() -> None:
    placed = read_yaml(STYLES, "f.yaml").placed(("folded",))
    span = placed.span(placed.text.index("b"), placed.text.index("b") + 1)
    assert (span.line, span.column, span.end, span.text) == (6, 3, 4, "  b)")


def test_keys_and_nested_values() -> None:
    source = read_yaml(STYLES, "f.yaml")
    key = source.span(("flow", "k"), key=True)
    assert (str(key), key.end) == ("f.yaml:13:8", 9)
    assert str(source.span(("flow", "k", 1))) == "f.yaml:13:17"
    assert ("flow", "k") in source.flow
    assert [p.text for p in source.strings(("flow", "k"))] == ["x y", "z"]
    assert str(source.span(("flow", "missing", 3))) == "f.yaml:13:7"


def test_first_of_two_equal_keys_is_kept_and_both_are_shown() -> None:
    source = read_yaml("a: 1\na: 2\n", "f.yaml")
    (problem,) = source.problems
    assert source.data == {"a": 1}
    assert (problem.code, str(problem.span), str(problem.notes[0].span)) == (
        "E002", "f.yaml:2:1", "f.yaml:1:1",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "place_", "part"),
    [
        ("a: b: c", "f.yaml:1:5", "mapping values"),
        ("", "f.yaml:1:1", "empty"),
        ("a: !x 1", "f.yaml:1:4", "!x"),
        ("- &a [*a]", "f.yaml:1:3", "alias"),
        ("a: \x00", "f.yaml:1:4", "special characters"),
        ("? [1]\n: 2", "f.yaml:1:3", "a key is one word"),
        ("a: 1\n---\nb: 2", "f.yaml:2:1", "another document"),
    ],
)
def test_what_is_not_yaml(text: str, place_: str, part: str) -> None:
    with pytest.raises(EqsatError) as caught:
        read_yaml(text, "f.yaml")
    (d,) = caught.value.diagnostics
    assert (d.code, str(d.span)) == ("E001", place_)
    assert part in d.message


def test_exploding_aliases_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_NODES", 20_000)
    levels = ["l0: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(EqsatError, match="more than"):
        read_yaml("\n".join(levels), "f.yaml")


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("a: !!float\n", 4),
        ("a: !!int x\n", 4),
        (f"a: {'1' * 5000}\n", 4),
        ('a: "\\ud800"\n', 4),
        ('"\\ud800": 1\n', 1),
        (f"a: {'[' * 1100}\n", 1103),
    ],
)
def test_values_python_cannot_hold_are_refused_in_place(text: str, column: int) -> None:
    with pytest.raises(EqsatError) as caught:
        read_yaml(text, "f.yaml")
    (d,) = caught.value.diagnostics
    assert (d.code, str(d.span)) == ("E001", f"f.yaml:1:{column}")


def test_yaml_1_2_words_stay_words() -> None:
    assert read_yaml("a: yes\nb: on\nc: true\nd: 010\n", "f").data == {
        "a": "yes", "b": "on", "c": True, "d": 10,
    }  # fmt: skip


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    found: tuple[Diagnostic, ...] = ()
    scalars: list[Placed] = []
    try:
        source = read_yaml(text, "f.yaml")
        scalars = [source.placed(path) for path in source.scalars]
    except EqsatError as error:
        found = error.diagnostics
    assert all(d.code == "E001" and d.span is not None for d in found)
    assert all(len(p.offsets) == len(p.text) for p in scalars)


def test_text_kept_in_a_record_finds_its_place_again() -> None:
    span = Span("f.yaml", 7, 12, 20, "    start: pack(x)")
    assert placed_at("pack(x)", span).span(5, 6) == Span("f.yaml", 7, 17, 18, span.text)


# ---- what libyaml reads --------------------------------------------------------------------------
BAD = Path(__file__).parent / "bad"
SHIPPED = [p for kind in ("rules", "targets") for p in sorted(data_folder(kind).rglob("*.yaml"))]
# what the two versions of YAML, or the two libraries, could see in two ways
DOUBTFUL = [
    *":,[]{}#'\"-?|>&*!%@`~=\\ \n\t0.x", ": ", " #", "- ", "? ", "''", "\\n", " |\n", ">-\n", "|2",
    "true", "Yes", "NO", "null", "<<", "0x1f", "0o7", "017", "1_000", "1e3", ".5", "1.", "+1",
    ".inf", "2001-01-01", "12:30", "\u00a0", "\x85", "\u2028", "é: è", '"a":1', "{a:1}", "[a:b]",
    "&a x", "*a", "!x", "! 1", "--- ", "...\n", '"\\/"', "x ,y", '"a\n  b"', "a#b",
]  # fmt: skip


def _lines(text: str) -> Lines:
    return Lines("f.yaml", text.replace("\r\n", "\n"))


def test_what_libyaml_reads_is_what_yaml_1_2_says() -> None:
    """Data, places and styles of every file that is shipped, and of those with mistakes."""
    for path in SHIPPED[::3]:
        lines = _lines(path.read_text(encoding="utf-8"))
        assert source._read_plainly(lines) == source._read(lines), path
    for path in sorted(BAD.glob("*.yaml")):
        lines = _lines(source.read_file(path))
        found = source._read_plainly(lines)
        assert found is None or found == source._read(lines), path


@pytest.mark.parametrize("seed", range(4))
def test_where_the_versions_could_differ_libyaml_is_not_asked(seed: int) -> None:
    rng = random.Random(seed)
    texts = [p.read_text(encoding="utf-8") for p in SHIPPED]
    plain = 0
    for _ in range(120):
        lines = _lines(_mutant(rng, rng.choice(texts)))
        if (found := source._read_plainly(lines)) is not None:
            plain += 1
            exact = source._read(lines)
            assert found == exact
            assert repr(found.data) == repr(exact.data)  # 1, 1.0 and True are equal
    assert plain > 20


def _mutant(rng: random.Random, text: str) -> str:
    """A few lines with a few fragments put in, taken out or moved."""
    start = text.rfind("\n", 0, rng.randrange(len(text))) + 1
    text = text[start : start + rng.choice((60, 200, 400))]
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text) + 1)
        put = rng.choice(DOUBTFUL) if rng.random() < 0.7 else ""
        text = text[:at] + put + text[at + rng.choice((0, 0, 1, 4)) :]
    return text
