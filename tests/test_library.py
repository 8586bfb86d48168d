"""The programs of the library: nothing opaque, equal to JAX, and no worse when searched."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fuzz.worst import worst_error
from library import arrays, module, tiny
from nests import mismatch, values_of
from seeds import one_in, seeds, some

import eqsat
from eqsat.execute.draw import drawn_weights
from eqsat.model.nest import NoNest
from eqsat.ops.contractions.roles import kind
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.ops.nests.nest import nest_of_dispatch
from eqsat.ops.spelling.passes import canonical
from eqsat.saturate.blocks import find_blocks

Case = tuple[Callable[..., Any], tuple[Any, ...]]


def small_case(name: str, **sizes: int) -> Case:
    """A program in small sizes as a function of arrays, the weights last."""
    import jax

    stem = name.removesuffix("_decode")
    m, c = module(stem), replace(tiny(stem), **sizes)
    tokens = jax.ShapeDtypeStruct((1, getattr(c, "tokens", 0)), "int32")
    one, place = (jax.ShapeDtypeStruct(s, "int32") for s in ((1,), ()))
    x = jax.ShapeDtypeStruct((getattr(c, "tokens", 0), getattr(c, "width", 0)), "float32")
    cases: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "bert": (lambda i, mask, t, p: m.encode(i, mask, t, p, c), (tokens, tokens, tokens)),
        "gpt2": (
            lambda i, p: m.prefill(i, p, c),
            (jax.ShapeDtypeStruct(tokens.shape[1:], "int32"),),
        ),
        "gpt2_decode": (lambda t, at, kv, p: m.decode(t, at, kv, p, c), (one, place)),
        "llama": (lambda x, p: m.block(x, p, c), (x,)),
        "llama_decode": (lambda x, at, kv, p: m.decode(x, at, kv, p, c), (x, place)),
        "sdxl": (lambda x, t, a, s, p: m.denoise(x, t, a, s, p, c), ()),
        "stablecode": (lambda i, p: m.complete(i, p, c), ()),
        "stablelm": (lambda x, p: m.block(x, p, c), (x,)),
        "swin": (lambda x, p: m.classify(x, p, c), ()),
        "unet": (lambda x, t, s, p: m.block(x, t, s, p, c), ()),
        "whisper": (lambda x, p: m.encode(x, p, c), ()),
    }
    function, args = cases[name]
    if name == "gpt2_decode":
        args = (*args, c.cache)
    if name == "llama_decode":
        args = (jax.ShapeDtypeStruct((1, c.width), "float32"), place, c.cache)
    if name == "swin":
        args = (jax.ShapeDtypeStruct((1, c.image, c.image, 3), "float32"),)
    if name in ("unet", "sdxl", "whisper"):
        args = m.example(c)[:-1]
    if name == "stablecode":
        ids = jax.ShapeDtypeStruct((c.tokens,), "int32")
        return function, arrays((ids, m.shapes(c, layers=2, words=10)))
    return function, arrays((*args, m.shapes(c)))


SMALL = (
    "bert", "gpt2", "gpt2_decode", "llama", "llama_decode", "sdxl", "stablecode", "stablelm",
    "swin", "unet", "whisper",
)  # fmt: skip
# program: (contractions, transposes, weight bytes)
FULL = {
    "bert": (12 * 8 + 1, 12 * 11 + 1, 437_928_960),
    "gpt2.py:gpt2": (12 * 6 + 1, 12 * 5 + 1, 497_759_744),
    "gpt2.py:gpt2_decode": (12 * 6 + 1, 13, 497_759_744),
    "llama": (9, 2, 243_319_296),
    "llama.py:llama_decode": (9, 0, 243_552_256),
    "llama.py:llama_64": (9, 2, 243_302_656),
    "llama.py:llama_4": (4 * 9, 4 * 2, 973_177_344),
    "llama.py:llama2_7b": (32 * 9 + 1, 32 * 2, 26_953_728_512),
    "sdxl.py:residual": (3, 0, 124_554_240),
    "sdxl.py:transformer": (14, 2, 139_023_360),
    "stablecode.py:stable_code": (32 * 9 + 1, 32, 11_181_783_552),
    "stablecode.py:stable_code_block": (9, 1, 317_245_952),
    "stablelm": (9, 1, 205_570_560),
    "swin": (1 + 12 * 6 + 3 + 1, 56, 113_969_756),
    "unet": (4 + 1 + 2 * 6 + 2, 4, 19_205_120),
    "whisper": (2 + 4 * 8, 1 + 4, 4 * 8_208_384),
}


@pytest.mark.parametrize("name", one_in(3, FULL))
def test_the_full_sizes_are_read_whole(name: str) -> None:
    program = eqsat.read(name).program
    program.verify()
    kinds = Counter(kind(n.op, n.attr) for n in program.nodes)
    ops = Counter(n.op for n in program.nodes)
    assert kinds["opaque"] == 0
    assert (kinds["contraction"], ops["transpose"], program.weight_bytes) == FULL[name]


def test_the_weights_are_as_many_as_the_models_have() -> None:
    """Stable Diffusion XL's UNet has 2,567,463,684; stable-code-3b's card counts 193 words more."""
    xl, code, llama = module("sdxl"), module("stablecode"), module("llama")
    assert _count(llama.model_shapes(llama.SEVEN)) == 6_738_415_616
    assert _count(xl.shapes(xl.XL)) == 2_567_463_684
    assert _count(code.shapes(code.SIZES)) == 2_796_431_360 - 193 * 2 * 2560


def _count(shapes: Any) -> int:
    import jax

    return sum(math.prod(s.shape) for s in jax.tree_util.tree_leaves(shapes))


@pytest.mark.parametrize(
    "name", seeds(1, ["sdxl.py:transformer", "stablecode.py:stable_code_block"])
)
def test_a_block_in_its_full_size_is_searched(name: str) -> None:
    source = eqsat.read(name)
    run = eqsat.optimize(source, target="avx512-xla", rules="layout/transpose", goals=["time"])
    assert run.selection is not None
    assert run.selection.goal("time").gap == 0
    assert run.baseline is not None
    assert run.selection.goal("time").value <= run.baseline.goal("time").value


@pytest.mark.parametrize("name", one_in(4, SMALL))
def test_the_program_computes_what_jax_computes(name: str) -> None:
    import jax

    function, args = small_case(name)
    found = eqsat.optimize(function, *args, stop_after="program", target="reference").source
    assert not [n for n in found.program.nodes if n.op == "opaque"]
    flat = [np.asarray(x) for x in jax.tree_util.tree_leaves(args)]
    got = evaluate_program(found.program, flat, found.weights)
    wanted = jax.tree_util.tree_leaves(jax.jit(function)(*args))
    for a, b in zip(wanted, got, strict=True):
        assert worst_error(np.asarray(a), b)[0] < 2e-5


@pytest.mark.parametrize(
    "name",
    some((), ("gpt2_decode", "llama", "llama_decode", "unet", "stablelm")),
)
def test_the_search_keeps_the_meaning_and_is_no_worse(name: str) -> None:
    function, args = small_case(name, **({"layers": 1} if "gpt2" in name else {}))
    weights = (function.__code__.co_varnames[function.__code__.co_argcount - 1],)
    target = "iree-like" if name == "unet" else "avx512-xla"  # where its search ends in a second
    run = eqsat.optimize(function, *args, weights=weights, target=target, goals=("time",))
    s = run.summary()
    assert run.verify(samples=1).ok
    assert s["goals"]["time_us"]["value"] <= s["baseline"]["time_us"]
    assert s["counts"]["opaque"] == 0
    check_nests(run)


def check_nests(run: eqsat.Run) -> None:
    """Nine of ten dispatches are nests, one more may be none; they mean what their members do."""
    schedule, source = run.schedule, run.source
    assert schedule is not None
    weights = {**source.weights, **drawn_weights(schedule.program, source.weights)}
    values, count = values_of(schedule.program, weights), 0
    for d in schedule.dispatches:
        try:
            nest = nest_of_dispatch(schedule, d)
        except NoNest:
            continue
        count += 1
        assert not mismatch(nest, d, values), f"{d.name}: {mismatch(nest, d, values)}\n{nest}"
    assert 10 * count >= 9 * len(schedule.dispatches) - 10


@pytest.mark.slow  # test_blocks finds those of small programs, and the gate `scale` searches `deep`
@pytest.mark.parametrize(("name", "blocks"), [("deep", 52), ("deep.py:mixed", None)])
def test_programs_of_2000_ops(name: str, blocks: int | None) -> None:
    program = eqsat.read(name).program
    assert not [n for n in program.nodes if n.op == "opaque"]
    searched = canonical(program)
    assert searched.op_count >= 1900
    found = find_blocks(searched)
    assert (found and found.count) == blocks


def test_layers_that_read_tables_by_turns_are_spelled_alike() -> None:
    """a · cos - b · sin: which product comes first is said by age, which is alike in all layers."""
    m, c = module("llama"), replace(tiny("llama"), layers=7)
    ids = np.zeros(c.tokens, dtype=np.int32)
    params = arrays(m.model_shapes(c))
    run = eqsat.optimize(
        lambda ids, params: m.model(ids, params, c), ids, params, stop_after="program"
    )
    found = find_blocks(canonical(run.program))
    assert found is not None
    # The first computes the tables; of the last only what the last token reads.
    assert found.count == c.layers - 2


def test_decoding_a_prompt_token_by_token_is_its_prefill() -> None:
    import jax

    m, c = module("gpt2"), replace(tiny("gpt2"), layers=1)
    params, ids = arrays(m.shapes(c)), np.arange(c.tokens, dtype=np.int32) * 3
    logits, wanted = jax.jit(lambda ids: m.prefill(ids, params, c))(ids)
    step = jax.jit(lambda t, at, cache: m.decode(t, at, cache, params, c))
    cache = arrays(c.cache, seed=1)
    for i, token in enumerate(ids):
        found, cache = step(token[None], np.int32(i), cache)
    assert worst_error(np.asarray(found), np.asarray(logits, np.float64))[0] < 1e-5
    for a, b in zip(*map(jax.tree_util.tree_leaves, (cache, wanted)), strict=True):
        assert worst_error(np.asarray(a), np.asarray(b, np.float64))[0] < 1e-5


@pytest.mark.slow  # 5 s
def test_the_tied_table_of_gpt2_is_kept_once() -> None:
    m, c = module("gpt2"), replace(tiny("gpt2"), layers=1)
    function, args = small_case("gpt2_decode", layers=1)
    run = eqsat.optimize(function, *args, weights=("p",), target="avx512-xla", time_limit=30)
    weights = run.program.weight_bytes
    assert 0 <= weights - sum(s.size * 4 for s in m.shapes(c).values()) <= 4 * c.tokens  # an iota
    held = run.summary()["bytes"]
    assert held["load_peak_embedded_bytes"] == held["resident_bytes"] <= 1.02 * weights
    assert held["resident_bytes"] <= held["load_peak_bytes"] <= held["load_peak_held_bytes"]
