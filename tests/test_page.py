"""The page of a run without a browser: its data, its libraries, names that would be scripts."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fuzz.pageprograms import HOSTILE, hostile_run, repeated

import eqsat
from eqsat.lab.resultpage import ROW_SCRIPTS
from eqsat.report.explain import explained
from eqsat.report.page.graph import program_graph, schedule_graph
from eqsat.report.page.labels import DispatchWork, folds, layers_by_name, layout_names, short_name
from eqsat.report.page.onefile import json_in_html, libraries, scripted_document
from eqsat.report.page.runpage import SCRIPTS, framed, page, page_data
from eqsat.report.pareto import FRONT_SCRIPTS

FOLDER = files("eqsat.report.page")


@pytest.fixture(scope="module")
def run():
    program = eqsat.read("mlp.py:mlp_784")
    return eqsat.optimize(program, target="avx512", time_limit=20)


class Page(HTMLParser):
    """Checks nesting, collects what could reach out, and the text outside of scripts."""

    VOID = ("meta", "br", "input")

    def __init__(self, text):
        super().__init__()
        self.open, self.outside, self.words, self.tags = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.outside += [k for k, _ in attrs if k in ("src", "href", "srcset", "action")]
        self.outside += [k for k, _ in attrs if k.startswith("on")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)


# ---- one file ------------------------------------------------------------------------------------
def test_libraries_are_those_that_npm_has_with_their_licences():
    assert [k.name for k in libraries()] == [
        "cytoscape",
        "@dagrejs/dagre",
        "d3",
        "@observablehq/plot",
    ]
    for library in libraries():
        assert library.is_unchanged, f"{library.file} is not the file of {library.version}"
        assert library.licence in ("MIT", "ISC")
        assert "Permission" in FOLDER.joinpath("vendor", library.licence_file).read_text("utf-8")
    listed = {k.file for k in libraries()} | {k.licence_file for k in libraries()}
    assert {p.name for p in FOLDER.joinpath("vendor").iterdir()} == listed | {"vendored.json"}


def test_every_script_is_part_of_the_page():
    there = {p.name for p in FOLDER.joinpath("app").iterdir()}
    assert there == {*SCRIPTS, *ROW_SCRIPTS, *FRONT_SCRIPTS, "style.css"}


def test_scripts_make_text_and_never_markup():
    for name in {*SCRIPTS, *ROW_SCRIPTS, *FRONT_SCRIPTS}:
        text = FOLDER.joinpath("app", name).read_text("utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
        assert "http" not in text
        assert text.count("\n") < 400


def test_the_page_stands_alone_and_shows_every_part(run):
    found = Page(page(run))
    assert found.outside == []
    assert found.tags.count("script") == 1 + len(libraries()) + len(SCRIPTS)
    assert not {"img", "link", "iframe"} & {*found.tags}
    text = page(run)
    assert "default-src &#x27;none&#x27;" in text
    assert "sourceMappingURL" not in text
    assert all(k.notice in text for k in libraries())
    assert "prefers-color-scheme: dark" in text
    words = " ".join(found.words)
    for word in ("proven", "never fired", "saturate", "Weights", "pack-contraction"):
        assert word in words
    assert run.program.to_text().splitlines()[3] in words
    assert len(text) < 5 << 20


def test_a_hostile_program_is_text(run):
    plain, evil = Page(page(run)), Page(page(hostile_run()))
    assert evil.outside == []
    assert {*evil.tags} == {*plain.tags} - ({*plain.tags} - {*evil.tags})
    assert "img" not in evil.tags
    assert evil.tags.count("script") == plain.tags.count("script")
    assert HOSTILE in " ".join(evil.words)


def test_data_survives_being_put_into_a_page():
    data = {"names": [HOSTILE, "\u2029&amp;", "<!--<script>"], "none": None}
    text = json_in_html(data)
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text) == data
    with pytest.raises(ValueError, match="JSON"):
        json_in_html(float("nan"))


def test_a_page_of_other_data_is_made_of_the_same_assets():
    text = scripted_document("two", "<p>x</p>", {"a": 1}, SCRIPTS[:1])
    assert text.count("<script") == 1 + len(libraries()) + 1


def test_a_notebook_shows_the_page_in_a_frame(run):
    shown = run._repr_html_()
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', shown)[1]) == page(run)
    assert 'sandbox="allow-scripts"' in shown
    assert framed("</iframe>").count("</iframe>") == 1
    assert "\n" not in repr(run)
    assert replace(run, schedule=None)._repr_html_() is None
    for value in (run.program, run.selection, run.schedule):
        assert value._repr_html_().startswith("<pre>")
        assert html.unescape(value._repr_html_()) == f"<pre>{value.to_text()}</pre>"


# ---- data ----------------------------------------------------------------------------------------
def test_the_data_says_what_the_schedule_says(run):
    data, schedule = page_data(run), run.schedule
    graph = data.graphs["after"]
    assert [d.time_ps for d in graph.dispatches] == [d.time_ps for d in schedule.dispatches]
    assert graph.time_ps == schedule.time_ps
    assert max(graph.live_bytes) == schedule.arena_bound
    assert graph.arena_bytes == schedule.arena_bytes
    assert sum(v.nbytes for v in graph.values if v.role == "weight") <= schedule.resident_bytes
    for shown, d in zip(graph.dispatches, schedule.dispatches, strict=True):
        assert dict(shown.parts)["compute"] == d.parts.compute_ps
        assert shown.bound == d.bound_text
        nodes = [graph.values[n] for n in (*shown.reads, *shown.writes)]
        assert shown.nbytes == sum(v.nbytes for v in nodes)
    chain = [(e.writer, e.reader) for e in graph.edges]
    assert chain == [(0, 1), (1, 2)]
    assert json.loads(json.dumps(data.to_json()))["graphs"]["after"]["edges"][0]["reader"] == 1


def test_explain_knows_what_the_page_calls_things(run):
    graph = page_data(run).graphs["after"]
    names = [d.called for d in graph.dispatches] + [v.name for v in graph.values]
    assert all(names)
    for name in names:
        assert explained(run, name).title


def test_flops_are_those_of_the_matrices(run):
    flops = [d.flops for d in page_data(run).graphs["after"].dispatches]
    products = [2 * 128 * 784 * 512, 2 * 128 * 512 * 512, 2 * 128 * 512 * 10]
    for found, product in zip(flops, products, strict=True):
        assert product <= found < 1.2 * product


def test_every_op_has_its_rules_in_the_order_they_were_applied(run):
    data = page_data(run)
    told = [c for d in data.graphs["after"].dispatches for c in d.why]
    choices = [c for c in explained(run).choices if c.dispatch is not None]
    assert [c.text for c in told] == [c.text for c in choices]
    for shown, choice in zip(told, choices, strict=True):
        assert rules(data, shown) == [s.rule for s in reversed(choice.chain)]
        for a, other in zip(shown.alternatives, choice.alternatives, strict=False):
            assert rules(data, a) == [s.rule for s in reversed(other.chain)]
    packed = next(c for c in told if "contraction 1x32x1" in c.text)
    assert rules(data, packed) == ["pack-contraction"]
    assert packed.alternatives


def rules(data, shown):
    return [data.rules[r].name for r in shown.rules]


def test_without_a_baseline_the_ops_of_the_input_are_before(run):
    graph = page_data(replace(run, baseline_schedule=None)).graphs["before"]
    assert graph.time_ps is None
    assert [d.time_ps for d in graph.dispatches] == [None] * len(graph.dispatches)
    assert len(graph.dispatches) == run.canonical.op_count
    assert all(e.writer < e.reader for e in graph.edges)


def test_bodies_are_graphs_of_their_own():
    def summed(x, steps):
        return jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), c.sum()), x, steps)

    shapes = [jax.ShapeDtypeStruct(s, "float32") for s in ((8, 8), (5, 8, 8))]
    data = page_data(eqsat.optimize(summed, *shapes, target="reference"))
    graph = data.graphs["after"]
    (loop,) = [d for d in graph.dispatches if d.bodies]
    (body,) = loop.bodies
    inner = data.graphs[body.graph]
    assert (body.label, body.runs) == ("body", 5)
    assert (inner.parent, graph.dispatches[inner.parent_dispatch]) == ("after", loop)
    assert any("contraction" in op for d in inner.dispatches for op in d.ops)
    assert sum(v.is_result for v in graph.values) == 2
    assert any("contraction" in c.text for d in inner.dispatches for c in d.why)


# ---- layouts -------------------------------------------------------------------------------------
def test_blocks_are_followed_through_ops():
    program = eqsat.optimize(
        lambda x, w: jnp.maximum(x @ w, 0), *[jax.ShapeDtypeStruct((64, 64), "float32")] * 2,
        target="iree-like",
    ).schedule.program  # fmt: skip
    names = layout_names(program)
    for node, name in zip(program.nodes, names, strict=True):
        if node.op == "pack":
            outer = len(node.attr.outer)
            assert name == "x".join(map(str, node.types[0].shape[outer:]))
        if node.op in ("input", "unpack"):
            assert name == "row-major"


# ---- folding -------------------------------------------------------------------------------------
def layer(number, ways="a"):
    """Two dispatches with weights of a layer and one without, which reads from the first."""
    at = 3 * number
    scope = (("layer.", number),)
    return [
        DispatchWork("product", f"{ways}1", scope, (at - 1,) if at else ()),
        DispatchWork("softmax", f"{ways}2", (), (at,)),
        DispatchWork("product", f"{ways}3", scope, (at + 1,)),
    ]


def test_equal_layers_are_one_fold_and_their_variants_are_counted():
    works = [w for n, ways in enumerate("aabb") for w in layer(n, ways)]
    (fold,) = folds(works)
    assert [x.name for x in fold.layers] == ["layer.0", "layer.1", "layer.2", "layer.3"]
    assert [x.dispatches for x in fold.layers] == [(0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11)]
    assert fold.ways == (0, 0, 1, 1)
    other = [*works[:6], replace(works[6], what="convolution"), *works[7:]]
    assert [len(f.layers) for f in folds(other)] == [2]


def test_relayouts_do_not_tell_layers_apart():
    works = [w for n in range(3) for w in layer(n)]
    works[4] = replace(works[4], is_relayout=True, what=())
    works[1] = replace(works[1], is_relayout=True, what=())
    (fold,) = folds([*works[:6], *works[6:7], replace(works[7], is_relayout=True), works[8]])
    assert len(fold.layers) == 3


def test_without_names_what_repeats_is_folded():
    part = [DispatchWork(w, w) for w in ("a", "b", "a", "c")]
    works = [DispatchWork("in", "in"), *part * 5, DispatchWork("out", "out")]
    (fold,) = folds(works)
    assert [i for x in fold.layers for i in x.dispatches] == [*range(1, 21)]
    assert len(fold.layers) == 5
    assert {*fold.ways} == {0}
    assert folds([DispatchWork(i, i) for i in range(50)]) == ()
    assert [len(f.layers) for f in folds([DispatchWork("x", "x")] * 2052)] == [2052]


def test_a_deep_program_folds_and_says_the_same():
    weights = [np.full((16, 16), k, "f4") for k in range(3)]

    def products(x):
        for w in weights:
            x = jnp.tanh(x @ w)
        return x

    x = jax.ShapeDtypeStruct((16, 16), "float32")
    part = eqsat.optimize(products, x, target="reference").schedule
    copies = 6
    graph = schedule_graph(repeated(part, copies), "after", "after").graph
    assert len(graph.dispatches) == copies * len(part.dispatches)
    (fold,) = graph.folds
    assert [i for x in fold.layers for i in x.dispatches] == [*range(len(graph.dispatches))]
    assert graph.time_ps == copies * part.time_ps


def test_a_value_read_all_over_is_a_tag():
    rows = [DispatchWork("w", "w", (("h", n),)) for n in range(5)]
    assert [len(f.layers) for f in folds(rows)] == [5]

    def masked(x, mask, weights):
        for w in weights:
            x = jnp.tanh((x * mask) @ w["a"]) @ w["b"]
        return x

    square = jax.ShapeDtypeStruct((16, 16), "float32")
    weights = [{"a": square, "b": square}] * 5
    run = eqsat.optimize(
        masked,
        square,
        square,
        weights,
        weights=("weights",),
        target="reference",
        stop_after="egraph",
    )
    graph = program_graph(run.program, "before", "before").graph
    assert {v.name: v.is_tag for v in graph.values if v.role == "argument"} == {
        "x": False, "mask": True,
    }  # fmt: skip


# ---- names ---------------------------------------------------------------------------------------
def test_layers_are_read_from_names_of_weights():
    names = [f"params_encoder_layer_{n}_{k}_weight" for n in range(3) for k in ("key", "value")]
    names += ["params_stem_0", "params_stem_1", "params_embeddings_word_weight"]
    found = layers_by_name(names)
    assert found["params_encoder_layer_2_key_weight"] == (("encoder.layer.", 2),)
    assert not {"params_stem_0", "params_embeddings_word_weight"} & found.keys()
    glued = [f"h{n}_{k}" for n in range(2) for k in ("q", "k", "v", "ln_1", "ln_2")]
    assert layers_by_name(glued)["h1_ln_2"] == (("h", 1),)
    assert layers_by_name(["conv1_w", "conv1_b", "conv2_w", "conv2_b"]) == {}
    nested = [f"down.{n}.block.{k}.{w}" for n in range(2) for k in range(2) for w in "ab"]
    assert layers_by_name(nested)["down.0.block.1.a"] == (("down.", 0), ("down.0.block.", 1))
    assert short_name("params_encoder_layer_0_key_weight") == "encoder.layer.0.key"


def test_of_nested_parts_those_that_repeat_are_layers():
    works = [
        DispatchWork(f"{stage} {part}", "", ((("stage."), stage), (f"stage.{stage}.block.", block)))
        for stage in range(2)
        for block in range(3)
        for part in "ab"
    ]
    assert [[x.name for x in f.layers][-1] for f in folds(works)] == [
        "stage.0.block.2", "stage.1.block.2",
    ]  # fmt: skip
