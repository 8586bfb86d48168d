"""The counterexample hunt: every shipped rule survives it, and every broken one is refuted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from fuzz.exhaustive import Domain, exhaust, is_index_map, layouts_of
from seeds import one_in, seeds
from shipped import OWN_RULES as SHIPPED

from eqsat.cli.app import run
from eqsat.hunt.arrays import fill_leaves
from eqsat.hunt.compare import Tolerance, agree
from eqsat.hunt.findings import diagnose, shortage
from eqsat.hunt.instances import draw
from eqsat.hunt.nests import DRAWN_DTYPES, Misfit, Scale, Wish, random_body
from eqsat.hunt.search import attempt, hunt
from eqsat.hunt.sides import Garbage, OpenLanes, Values, left_trees
from eqsat.hunt.signatures import propose_generic
from eqsat.lang.rulesets import read_ruleset
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.rules import Rule
from eqsat.model.tensor import TensorType
from eqsat.ops.attrs import FUNCTIONS
from eqsat.ops.builtin import layouts
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.meaning import scalar

SHARE = 24  # instances per rule here; `make rules` tries more
SMALL = Domain(((3, 4),), (2, 3))


def rule(rewrite: str, to: str, **more: list[str]) -> Rule:
    """One rule, as a user would write it."""
    lines = ["ruleset: text", "doc: A rule of a test.", "rules:", "- name: tried", "  doc: Tried."]
    lines += [f"  rewrite: {rewrite}", f"  to: {to}"]
    lines += [f"  {key}: {json.dumps(value)}" for key, value in more.items()]
    (found,) = read_ruleset("\n".join(lines) + "\n", "text.yaml").rules
    return found


# ---- the shipped rules ------------------------------------------------------------------------
@pytest.mark.parametrize("name", one_in(80, sorted(SHIPPED)))  # `make rules` hunts all, and longer
def test_a_shipped_rule_has_no_counterexample(name: str):
    found = hunt(SHIPPED[name], instances=SHARE)
    assert found.counterexample is None, str(found.counterexample)
    assert found.instances >= SHARE
    assert shortage(found) is None
    assert not found.padded or 2 * found.padded >= found.instances
    for condition in found.conditions:
        assert condition.met, condition.text
        assert condition.missed, condition.text


@pytest.mark.parametrize(
    "name", one_in(28, sorted(n for n, r in SHIPPED.items() if is_index_map(r)))
)
def test_a_rule_that_only_moves_data_holds_on_all_small_layouts(name: str):
    for rank, within in ((0, None), (1, None), (2, SMALL)):
        found = exhaust(SHIPPED[name], rank, within=within, most=300)
        assert found.counterexample is None, str(found.counterexample)


def test_padding_is_possible_where_layouts_are():
    padded = [n for n in ("fold-transpose-into-pack", "pack-contraction", "unpack-below-generic")
              if hunt(SHIPPED[n], instances=20).padded < 10]  # fmt: skip
    assert padded == []


# ---- broken rules -----------------------------------------------------------------------------
TWICE = "transpose(transpose(x, perm=p), perm=q)"
REPACK = "pack(unpack(y, layout=m), layout=l)"
BROKEN: dict[str, tuple[str, str, dict[str, list[str]]]] = {
    "inverted perm": (
        "pack(transpose(x, perm=p), layout=l)",
        "pack(x, layout=before_transpose(l, inverse(p)))",
        {},
    ),
    "perm left out": (TWICE, "transpose(x, perm=q)", {}),
    "perms exchanged": (TWICE, "transpose(x, perm=compose(q, p))", {}),
    "op left out": ("transpose(x, perm=p)", "x", {}),
    "zeros are not assumed": (REPACK, "y", {"where": ["same_tiles(m, l)"]}),
    "condition dropped": ("unpack(pack(x, layout=l), layout=m)", "x", {}),
    "open lanes promised": (REPACK, "y", {"where": ["m == l"]}),
    "zeros forgotten": ("relax(y, layout=l)", "y", {}),
    "zeros invented": (
        "unpack(y, layout=m)",
        "unpack(y, layout=l)",
        {"also": ["pack(x, layout=l)"], "where": ["same_tiles(m, l)"]},
    ),
    "another type of result": ("generic(x, sig=g)", "x", {"where": ["g.is_elementwise"]}),
    "uses say nothing of values": (
        "transpose(t := transpose(x, perm=p), perm=q)",
        "x",
        {"where": ["uses(t) == 1"]},
    ),
    "splat without its op": (
        "concat(*transpose(xs, perm=p), move=m)",
        "concat(*xs, move=m)",
        {},
    ),
    "first of several results": (
        "result(generic(*xs, sig=g), index=i)",
        "result(generic(*xs, sig=g), index=0)",
        {},
    ),
    "gather along another axis": ("gather(x, i, axis=a)", "gather(x, i, axis=0)", {}),
    "slice is no pad": (
        "slice(pad(x, low=a, high=b, value=v), start=s, limit=t, stride=k)",
        "x",
        {},
    ),
    "encoding hides a transpose": (
        "unset_encoding(transpose(x, perm=p), encoding=e)",
        "set_encoding(x, encoding=e)",
        {},
    ),
    "fill is no weight": ("pack(fill(fill=f), layout=l)", "fill(fill=f)", {}),
    "operands exchanged": ("generic(a, b, sig=g)", "generic(b, a, sig=g)", {}),
    "also dropped": ("pack(x, layout=l)", "pack(x, layout=m)", {"also": ["pack(z, layout=m)"]}),
}


@pytest.mark.parametrize("case", one_in(3, BROKEN))
def test_a_broken_rule_is_refuted(case: str):
    rewrite, to, more = BROKEN[case]
    found = hunt(rule(rewrite, to, **more))
    assert found.counterexample is not None
    diagnostic = diagnose(found)
    assert diagnostic is not None
    assert diagnostic.code == "E100"
    assert diagnostic.span is not None
    assert diagnostic.span.line == 7
    assert found.counterexample.why in diagnostic.message
    assert found.counterexample.given in diagnostic.help


def with_pads(layouts: Iterable[Layout | None], pads: dict[str, str]) -> tuple[Layout | None, ...]:
    return tuple(a and replace(a, pads=tuple(pads[p] for p in a.pads)) for a in layouts)


@pytest.mark.parametrize(
    ("m_and_n", "k", "is_sound"), one_in(2, [("?", "0", True), ("0", "0", True), ("?", "?", False)])
)
def test_k_tiles_are_padded_with_zeros(m_and_n: str, k: str, is_sound: bool):
    def packed(g: Generic, tile: object) -> object:
        found = FUNCTIONS["pack_loops"].meaning(g, tile)
        pads = {"?": m_and_n, "0": k, "-": "-"}
        return found and replace(found, operands=with_pads(found.operands, pads))

    found = hunt(SHIPPED["pack-contraction"], functions={"pack_loops": packed}).counterexample
    assert (found is None) == is_sound, str(found)
    assert is_sound or "the right side leaves this lane open" in str(found)


def test_zeros_do_not_survive_every_body():
    def careless(g: Generic, layout: Layout) -> object:
        opened = replace(layout, pads=tuple("?" if p != "-" else "-" for p in layout.pads))
        found = FUNCTIONS["write_behind"].meaning(g, opened)
        zeros = found and with_pads(found.operands, {"?": "0", "0": "0", "-": "-"})
        return found and replace(found, operands=zeros, relaxed=None)

    found = hunt(SHIPPED["pack-above-generic"], functions={"write_behind": careless})
    assert found.counterexample is not None


@pytest.mark.parametrize("dtype", ["f16", "f64", "i32"])
def test_a_right_side_of_another_element_type_is_refuted(dtype: str):
    def narrowed(g: Generic, perm: tuple[int, ...]) -> object:
        found = FUNCTIONS["write_behind"].meaning(g, perm)
        return found and replace(found, yields=(replace(found.yields[0], dtype=dtype),))

    found = hunt(SHIPPED["transpose-out-of-result"], functions={"write_behind": narrowed})
    assert found.counterexample is not None
    assert "element types differ" in found.counterexample.why


@pytest.mark.parametrize("finite_only", [False, True])
def test_integers_agree_only_where_they_are_equal(finite_only: bool):
    how = Tolerance(relative=0.5, scale=100.0, finite_only=finite_only)
    same = agree(np.array([1, 2, 3]), np.array([1, 3, 3]), how)
    assert same.tolist() == [True, False, True]


def test_functions_that_fail_are_a_counterexample():
    def broken(*_: object) -> object:
        raise IndexError("list index out of range")

    found = hunt(SHIPPED["transpose-out-of-result"], functions={"write_behind": broken})
    assert found.counterexample is not None
    assert "IndexError" in found.counterexample.why


def test_the_smallest_counterexample_is_shown_with_its_place():
    found = hunt(rule("transpose(transpose(x, perm=p), perm=q)", "x")).counterexample
    assert found is not None
    assert found.size <= 12
    assert re.match(r"x = \w+\[[\d, ]+\], q = \[[\d, ]+\], p = \[[\d, ]+\]; ", str(found))
    to = "reshape(x, shape=compose(x.shape, identity(x.rank)))"
    same = hunt(rule("transpose(x, perm=p)", to,
                     where=["x.shape == compose(x.shape, p)"])).counterexample  # fmt: skip
    assert same is not None
    assert re.search(r"; at \[[\d, ]+\]: left \S+, right \S+$", str(same))


def test_a_hunt_is_deterministic():
    broken = rule("transpose(transpose(x, perm=p), perm=q)", "x")
    one, two = (hunt(broken, seed=3) for _ in range(2))
    assert one == two
    assert hunt(broken, seed=4).counterexample is not None
    sound = SHIPPED["pack-above-generic"]
    assert hunt(sound, instances=15) == hunt(sound, instances=15)


def test_a_rule_that_never_applies_is_not_passed_silently():
    found = hunt(rule("transpose(x, perm=p)", "x", where=["x.rank == 77"]), instances=5)
    assert (found.counterexample, found.instances) == (None, 0)
    warning = shortage(found)
    assert warning is not None
    assert (warning.code, warning.severity) == ("E102", "warning")
    assert "0 instance(s) only" in warning.message


# ---- instances --------------------------------------------------------------------------------
def test_bodies_are_well_typed_and_use_every_scalar_function():
    rng, seen = Random(1), set()
    for _ in range(6000):
        operands = [rng.choice(DRAWN_DTYPES) for _ in range(rng.randint(0, 3))]
        dtype = rng.choice(DRAWN_DTYPES)
        body = random_body(rng, operands, dtype)
        assert scalar.result_dtype(body, operands) in (dtype, None)
        seen |= {e.fn for e in body.walk()}
        arrays = [np.ones(2, scalar.held_dtype(d)) for d in operands]
        assert scalar.evaluate_body(body, arrays).size <= 2
    assert set(scalar.FUNCTIONS) <= seen


def test_generics_are_canonical_and_of_every_kind():
    rng, seen = Random(2), set()
    for _ in range(1500):
        operands = tuple([None] * rng.choice((1, 2, 2, 3)))
        wish = Wish(rng, Scale().themed(rng), operands, None, 0, rng.choice((1, 1, 2)))
        try:
            g = propose_generic(wish)
        except Misfit:
            continue
        types = tuple(map(TensorType, g.dtypes, g.shapes))
        assert [t.shape for t in g.infer("generic", types)] == [g.result_shape] * len(g.yields)
        again = canonical_generic(
            g.sizes,
            range(g.rank),
            g.maps,
            g.shapes,
            g.yields,
            g.tile,
            g.dtypes,
            precision="default",
        )
        assert again == g
        roles = contraction_roles(g)
        seen |= {f"combine {y.combine}" for y in g.yields} | {f"{len(g.yields)} results"}
        seen |= {"tile" for _ in g.tile} | {"window" for m in g.maps for e in m if len(e.terms) > 1}
        seen |= set() if roles is None else {f"{len(roles.m)} m, {len(roles.batch)} batch"}
        seen |= {str(g.yields[0].dtype), f"rank {g.rank}"}
    combines = {f"combine {c}" for c in ("", "add", "mul", "max", "min", "and", "or")}
    ranks = {f"rank {n}" for n in range(5)}
    rest = {"tile", "window", "2 results", "1 m, 0 batch", "1 m, 1 batch", "2 m, 0 batch"}
    assert combines | ranks | rest | {"f32", "i8", "bool", "bf16"} <= seen


@pytest.mark.parametrize(
    "name", seeds(1, ["unpack-below-pad", "unpack-below-generic", "pack-above-gather"])
)
def test_lanes_that_depend_on_garbage_are_known_to_be_open(name: str):
    tried, rng = SHIPPED[name], Random(5)
    differing = 0
    for _ in range(400):
        instance = draw(tried, rng)
        if instance is None:
            continue
        sides = left_trees(tried, dict(instance.arity), instance.attrs)
        types = {(n, i): t for n, ts in instance.tensors for i, t in enumerate(ts)}
        contents = fill_leaves(rng, sides, types, False)
        runs = [Values(contents.filled(g), g) for g in
                (Garbage(None), Garbage(np.random.default_rng(7)))]  # fmt: skip
        opened = OpenLanes(contents.is_open, runs[0])(sides.root)[0]
        one, two = (r(sides.root)[0] for r in runs)
        same = agree(one, two, Tolerance())
        assert not (~same & ~opened).any()
        differing += int((~same).any())
    assert differing > 10


def test_packed_variables_hold_what_their_reader_says():
    tried, rng, checked = SHIPPED["unpack-below-generic"], Random(6), 0
    for _ in range(300):
        instance = draw(tried, rng)
        if instance is None or not attempt(instance, rng).rows:
            continue
        layout = next(a for a in instance.attrs if isinstance(a, Layout))
        if "0" not in layout.pads or "?" in layout.pads:
            continue
        sides = left_trees(tried, dict(instance.arity), instance.attrs)
        types = {(n, i): t for n, ts in instance.tensors for i, t in enumerate(ts)}
        contents = fill_leaves(rng, sides, types, False)
        y = contents.held["y", 0]
        if not contents.is_open["y", 0].any() and set(layout.pads) <= {"0", "-"}:
            again = layouts.pack(layout, layouts.unpack(layout, y))
            np.testing.assert_array_equal(again, y)
            checked += 1
    assert checked > 5


# ---- exhaustive -------------------------------------------------------------------------------
def test_all_layouts_of_a_shape_are_listed_once():
    found = list(layouts_of((3, 4), Domain((), (2, 3), ("0", "?"))))
    assert len(found) == len(set(found))
    # tiles (dim 0, dim 1) of (2|3, 2|3) need padding for 3 % 2 and 4 % 3 only; 2 outer orders
    one_tile = (2 + 1) + (1 + 2)
    two_tiles = 2 * (2 * 1 + 2 * 2 + 1 * 1 + 1 * 2)
    assert len(found) == 2 * (one_tile + two_tiles)
    for layout in found:
        layout.verify()


def test_a_broken_index_map_is_refuted_exhaustively():
    broken = rule("transpose(transpose(x, perm=p), perm=q)", "transpose(x, perm=compose(q, p))")
    assert [exhaust(broken, r).counterexample is None for r in range(4)] == [True] * 3 + [False]
    with pytest.raises(ValueError, match="more than move data"):
        exhaust(SHIPPED["pack-contraction"], 2)


def test_every_match_of_a_small_domain_is_counted():
    found = exhaust(SHIPPED["compose-transposes"], 3, within=Domain(((2, 3, 4),), ()))
    assert (found.instances, found.complete) == (36, True)
    cut = exhaust(SHIPPED["compose-transposes"], 3, most=1)
    assert (cut.instances, cut.complete) == (25, False)


# ---- the command ------------------------------------------------------------------------------
RULES = """
ruleset: tried
doc: Rules of a test.
import: [layout/transpose]
rules:
  - name: {name}
    doc: Tried.
    rewrite: transpose(transpose(x, perm=p), perm=q)
    to: {to}
    where:
      - is_identity(p)
"""


def test_check_refuses_an_unsound_rule(tmp_path, capsys):
    path = tmp_path / "tried.yaml"
    path.write_text(RULES.format(name="loses-one", to="x"))
    assert run(["check", str(path)]) == 0
    assert run(["check", str(path), "--test", "--instances", "30"]) == 1
    out = capsys.readouterr().out
    assert "error[E100]: rule `loses-one` is unsound:" in out
    assert "to: x" in out
    assert "counterexample after" in out
    assert out.count("E100") == 1


def test_check_prints_what_was_tried(tmp_path, capsys):
    path = tmp_path / "tried.yaml"
    path.write_text(RULES.format(name="keeps-one", to="transpose(x, perm=q)"))
    arguments = ["check", str(path), "--test", "--instances", "30", "--seed", "2"]
    assert run([*arguments, "-v"]) == 0
    out = capsys.readouterr().out
    (line,) = (line for line in out.splitlines() if " 30 " in line)  # an import is tried elsewhere
    assert re.search(r"^keeps-one +30 +0 +\d+  is_identity\(p\) \d+/\d+$", line)
    assert run(arguments) == 0
    assert "keeps-one" not in capsys.readouterr().out


@pytest.mark.slow  # the hunt says so below
def test_check_warns_of_a_rule_it_could_not_try(tmp_path, capsys):
    path = tmp_path / "tried.yaml"
    path.write_text(RULES.format(name="rare", to="x").replace("is_identity(p)", "x.rank == 99"))
    assert run(["check", str(path), "--test", "--instances", "3", "--output-format", "json"]) == 0
    (found,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (found["code"], found["severity"]) == ("E102", "warning")
