"""Programs on several devices: where values live, what a border costs, and whose layout crosses."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fuzz.networks import network
from seeds import one_in, seeds

import eqsat
from eqsat.api import Source
from eqsat.cli import run as command
from eqsat.execute.draw import drawn_weights
from eqsat.extract import check
from eqsat.lang.devices import load_devices, machine
from eqsat.lang.programs import parse_program
from eqsat.model.devices import DeviceMap, Link, Transfer
from eqsat.model.diag import EqsatError
from eqsat.model.ops import LEAVES
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.ops.meaning.scalar import held_dtype
from eqsat.ops.programs.everywhere import pinned_values, placed_facts
from eqsat.ops.programs.placement import device_figures, node_devices, put_on_devices
from eqsat.schedule import faults

MLP = """program two
input x: f32[64, 128]
weight w: f32[128, 64]
weight v: f32[64, 32]
m = matmul(x, w)
h = relu(m)
g = transfer(h, device="b")
y = matmul(g, v)
return y
"""
LINKS = (Link("a", "b", 1e9, 20_000_000), Link("b", "a", 2e9, 10_000_000))
FORCED = ["tiles_forced=true"]
LEAST_RELAYOUT = ("relayout", "time")


def pair(a: str, b: str, **values: str) -> DeviceMap:
    return DeviceMap("pair", "", (("a", a), ("b", b)), "a", LINKS, tuple(values.items()))


def fixed(a: str, b: str) -> DeviceMap:
    """With every value of `MLP` on a device of its own accord: only layouts are left to choose."""
    return pair(a, b, **{"%m": "a", "%h": "a", "%y": "b"})


def search(text: str, devices: DeviceMap, **options) -> eqsat.Run:
    program = parse_program(text)
    source = Source(program, drawn_weights(program))
    return eqsat.optimize(source, devices=devices, **options)


def schedule_of(run: eqsat.Run) -> Schedule:
    assert run.schedule is not None
    return run.schedule


def ops_on(run: eqsat.Run, device: str, *ops: str) -> list[int]:
    schedule = schedule_of(run)
    return [i for d, i in schedule.ops(set(ops)) if d.device == device]


def tiles_on(run: eqsat.Run, device: str) -> set[tuple[int, ...]]:
    nodes = schedule_of(run).program.nodes
    return {getattr(nodes[i].attr, "tile", ()) for i in ops_on(run, device, "generic")} - {()}


def transfers(run: eqsat.Run) -> list[tuple[int, ...]]:
    """The shapes that cross."""
    nodes = schedule_of(run).program.nodes
    return [n.type.shape for n in nodes if n.op == "transfer"]


def assert_right(run: eqsat.Run) -> None:
    """The schedule computes what the program says, and both checkers accept it."""
    rng = np.random.default_rng(0)
    program, schedule = run.program, schedule_of(run)
    inputs = [
        rng.integers(-3, 4, t.shape).astype(held_dtype(t.dtype))
        for t in (program.nodes[i].type for i in program.inputs)
    ]
    wanted = evaluate_program(program, inputs, run.source.weights)
    found = evaluate_program(schedule.program, inputs, run.source.weights)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    assert run.egraph is not None
    assert run.selection is not None
    assert check(run.egraph, run.target, run.selection) == []
    assert faults(schedule, run.target, run.canonical) == []


# ---- whose layout crosses ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("a", "b", "first", "second"),
    [
        ("avx512-xla", "vmvx-like", (16, 16, 1), (8, 8, 4)),
        ("vmvx-like", "avx512-xla", (8, 8, 4), (16, 16, 1)),
    ],
)
def test_each_device_has_its_own_tiles_and_the_border_one_relayout(
    a: str, b: str, first: tuple[int, ...], second: tuple[int, ...]
):
    """Packed by one machine's tiles, read by the other's: one pack in front, one unpack behind."""
    run = search(MLP, fixed(a, b), settings=FORCED, goals=LEAST_RELAYOUT)
    assert tiles_on(run, "a") == {first}
    assert tiles_on(run, "b") == {second}
    (crossing,) = transfers(run)
    assert len(crossing) in (2, 4), "it crosses packed, or unpacked as no tile pads"
    counts = [len(schedule_of(run).ops({op})) for op in ("pack", "unpack")]
    assert counts == [2, 2], "one of each at the rim, and one relayout at the border"
    assert_right(run)


def test_devices_that_agree_need_no_relayout():
    run = search(MLP, fixed("avx512-xla", "avx512-xla"), settings=FORCED, goals=LEAST_RELAYOUT)
    assert transfers(run) == [(4, 4, 16, 16)]
    counts = [len(schedule_of(run).ops({op})) for op in ("pack", "unpack")]
    assert counts == [1, 1]
    assert_right(run)


def test_the_sender_packs_for_a_slow_reader():
    """Not forced: the sender has the faster memory, so it does what the reader needs."""
    run = search(MLP, fixed("avx512-xla", "vmvx-like"))
    assert tiles_on(run, "a") == set()
    assert tiles_on(run, "b") == {(8, 8, 4)}
    assert ops_on(run, "a", "pack")
    assert not ops_on(run, "b", "pack")
    assert_right(run)


@pytest.mark.parametrize(
    ("a", "b"), one_in(2, [("vmvx-like", "no-data-tiling"), ("no-data-tiling", "avx512-xla")])
)
def test_nothing_is_packed_where_nothing_is_tiled(a: str, b: str):
    run = search(MLP, fixed(a, b))
    plain = "a" if a == "no-data-tiling" else "b"
    assert not ops_on(run, plain, "pack", "unpack", "retype")
    assert tiles_on(run, plain) == set()
    assert transfers(run) == [(64, 64)]
    assert_right(run)


def test_requested_layouts_are_resolved_by_the_device_they_are_on():
    request = 'role="{}", dtypes=["i8", "i8", "i32"], loops=[64, 64, 64], ' + (
        "maps=[[d0, d2], [d2, d1], [d0, d1]]"
    )
    text = f"""program encoded
input x: i8[64, 64]
input y: i8[64, 64]
l = set_encoding(x, {request.format("lhs")})
r = set_encoding(y, {request.format("rhs")})
c = matmul(l, r) : i32[64, 64]
u = unset_encoding(c, {request.format("result")})
t = transfer(cast(u, i8), device="b")
m = set_encoding(t, {request.format("lhs")})
d = matmul(m, r) : i32[64, 64]
return unset_encoding(d, {request.format("result")})
"""
    devices = pair("avx512-xla", "vmvx-like", **{"%c": "a", "%d": "b"})
    run = search(text, devices, settings=FORCED)
    assert tiles_on(run, "a") == {(16, 16, 2)}
    assert tiles_on(run, "b") == {(8, 8, 4)}
    assert not schedule_of(run).ops({"set_encoding", "unset_encoding"})
    assert len(transfers(run)) == 2, "what both read crosses once"
    plain = search(text, pair("no-data-tiling", "no-data-tiling"))
    assert not schedule_of(plain).ops({"pack", "unpack", "set_encoding", "unset_encoding"})


# ---- what names no device ------------------------------------------------------------------------
FAR = """program far
input x: f32[1024]
b = generic(x, loops=[256, 1024], maps=[[d1]], body=exp(x0))
y = transpose(b, perm=[1, 0])
z = generic({}, loops=[256, 1024], maps=[[d0, d1]], body=x0, combine=add, rank=1)
return y, z
"""
BY_HAND = """t = transfer(x, device="b")
c = generic(t, loops=[256, 1024], maps=[[d1]], body=exp(x0))
z ="""


def proven_ps(run: eqsat.Run) -> float:
    assert run.selection is not None
    time = run.selection.goal("time")
    assert time.value == time.bound
    return time.value


def test_a_value_is_computed_again_where_that_is_quicker_than_to_send_it():
    """1 MiB would be sent, or the 4 KiB that it is made of: as a person would write it."""
    plain = {"without": ["compute-once"]}  # which matches less of what is computed elsewhere
    run = search(FAR.format("b"), pair("avx512", "avx512", **{"%z": "b"}), **plain)
    assert transfers(run) == [(1024,)]
    by_hand = FAR.format("c").replace("z =", BY_HAND)
    assert proven_ps(run) == proven_ps(search(by_hand, pair("avx512", "avx512"), **plain))
    assert run.baseline is not None
    assert proven_ps(run) < run.baseline.goal("time").value / 5
    assert_right(run)


def test_a_program_that_names_no_device_is_computed_where_that_is_quickest():
    """Everything between the argument and the result, as both stay where they are."""
    text = MLP.replace('transfer(h, device="b")', "exp(h)")
    run = search(text, pair("vmvx-like", "avx512-xla"))
    assert len(ops_on(run, "b", "generic")) >= 2
    assert not ops_on(run, "a", "generic")
    assert (
        run.target.devices[0][0]
        == node_devices(schedule_of(run).program, {}, "a")[schedule_of(run).program.results[0]]
    )
    proven_ps(run)
    assert_right(run)


def test_a_copy_is_named_after_its_value_and_device():
    names = placed(
        MLP.replace('g = transfer(h, device="b")', "g = exp(h)"), **{"%g": "b"}
    ).value_names
    assert "h.b" in names
    assert "v.b" not in names, "it is loaded there"


def test_what_a_map_names_stays():
    text = MLP.replace('transfer(h, device="b")', "exp(h)")
    named = {"%m": "a", "%h": "a", "%g": "a", "%y": "a"}
    assert not transfers(search(text, pair("vmvx-like", "avx512-xla", **named)))
    merged = {"%m": "a", "%h": "a", "%y": "a"}  # `%g` is computed inside of a reader
    assert not transfers(search(text, pair("vmvx-like", "avx512-xla", **merged)))


def test_a_transfer_of_the_program_says_where_its_result_is():
    """What reads it reads it there, or a copy of it; what it copies may be computed there."""
    text = """input x: f32[64]
e = exp(x)
g = transfer(e, device="b")
return tanh(g)
"""
    program = placed(text)
    target = machine(pair("avx512-xla", "avx512-xla"))
    facts = placed_facts(program, target, pinned_values(parse_program(text), target), 4)
    assert facts is not None
    ops = [(n.op, n.operands) for n in facts.nodes]
    assert ops.count(("transfer", (0,))) == 1, "x is sent, to compute e on b"
    assert not any(n.op == "generic" and n.operands == (1,) for n in facts.nodes), "tanh(e) on a"


def test_one_device_or_no_link_places_nothing():
    program = parse_program("input x: f32[64]\nreturn exp(x)\n")
    alone = replace(pair("avx512-xla", "avx512-xla"), links=())
    assert placed_facts(program, machine(alone), {}, 2) is None


# ---- any program, any placement ------------------------------------------------------------------
MACHINES = ("avx512-xla", "vmvx-like", "reference", "no-data-tiling", "gfx942")


@pytest.mark.parametrize("seed", seeds(1, (1, 2, 5, 11, 18, 39, 26, 48, 60, 75, 83, 101)))
def test_a_random_program_placed_at_random_is_right_and_never_worse(seed: int):
    rng, program = random.Random(seed), network(seed)
    movable = [f"%{i}" for i, n in enumerate(program.nodes) if n.op not in (*LEAVES, "result")]
    values = {v: rng.choice("ab") for v in rng.sample(movable, min(len(movable), 2))}
    values |= {program.leaf(i).name: "b" for i in program.inputs if rng.random() < 0.3}
    devices = pair(rng.choice(MACHINES), rng.choice(MACHINES), **values)
    weights = drawn_weights(program)
    run = eqsat.optimize(Source(program, weights), devices=devices, time_limit=6.0)
    assert_right(run)
    assert run.baseline is not None
    assert run.selection is not None
    assert run.selection.goal("time").value <= run.baseline.goal("time").value


# ---- prices --------------------------------------------------------------------------------------
def test_a_border_is_paid_in_bytes_over_its_link():
    run = search(MLP, fixed("no-data-tiling", "no-data-tiling"))
    (there,) = [d for d in schedule_of(run).dispatches if d.ops == "transfer"]
    assert there.time_ps == 20_000_000 + 64 * 64 * 4 * 1000
    assert there.device == "b"
    back = MLP.replace("return y", 'z = transfer(y, device="a")\nreturn z')
    schedule = schedule_of(search(back, fixed("avx512-xla", "avx512-xla")))
    found = [d.time_ps for d in schedule.dispatches if d.ops == "transfer"]
    assert found[-1] == 10_000_000 + 64 * 32 * 4 * 500


def test_time_and_bytes_per_device_add_up():
    run = search(MLP, fixed("avx512-xla", "vmvx-like"))
    schedule, figures = schedule_of(run), device_figures(schedule_of(run), run.target)
    assert sum(int(f["dispatches"]) for f in figures.values()) == len(schedule.dispatches)
    assert sum(int(f["time_ps"]) for f in figures.values()) == schedule.time_ps
    peaks = [int(f["peak_bytes"]) for f in figures.values()]
    assert max(peaks) <= schedule.peak_bytes <= sum(peaks)
    assert run.summary()["devices"]["b"]["target"] == "vmvx-like"
    assert run.summary()["devices"]["a"]["peak_bytes"] == peaks[0]


@pytest.mark.parametrize("devices", [("avx512-xla", "vmvx-like"), ("reference", "avx512-xla")])
def test_it_is_never_worse_than_the_same_placement_unrewritten(devices: tuple[str, str]):
    run = search(MLP, fixed(*devices))
    assert run.baseline is not None
    assert run.selection is not None
    assert run.selection.goal("time").value <= run.baseline.goal("time").value
    base = run.baseline_schedule
    assert base is not None
    assert {n.op for n in base.program.nodes} == {"input", "weight", "generic", "transfer"}


def test_limits_are_those_of_the_device(tmp_path: Path):
    """A tile that is too large for one machine's vectors stays possible on the other."""
    small = tmp_path / "small.yaml"
    small.write_text("target: small\nextends: avx512-xla\nlimits: {vector: 512 B}\n")
    for devices in (fixed("avx512-xla", str(small)), fixed(str(small), "avx512-xla")):
        with pytest.raises(EqsatError) as caught:
            search(MLP, devices, settings=FORCED)
        assert caught.value.exit_code == 3
        assert caught.value.diagnostics[0].code == "E410"
    assert tiles_on(search(MLP, fixed("avx512-xla", "avx512-xla"), settings=FORCED), "b")


# ---- placement -----------------------------------------------------------------------------------
def placed(text: str, **values: str) -> Program:
    return put_on_devices(parse_program(text), pair("avx512-xla", "avx512-xla", **values))


def test_a_value_is_computed_where_its_first_placed_operand_is():
    text = "input x: f32[4]\ninput y: f32[4]\nz = sub(x, y)\nu = sub(y, exp(x))\nreturn z, u"
    program = placed(text, y="b")
    assert [n.op for n in program.nodes].count("transfer") == 2
    devices = node_devices(program, {"y": "b"}, "a")
    assert [devices[r] for r in program.results] == ["a", "b"]


def test_a_value_crosses_once_however_often_it_is_read():
    text = "input x: f32[4]\ny = exp(x)\nz = tanh(x)\nreturn y, z"
    program = put_on_devices(
        parse_program(text),
        replace(pair("avx512-xla", "avx512-xla"), values=(("%1", "b"), ("%2", "b"))),
    )
    assert [n.op for n in program.nodes].count("transfer") == 1


def test_a_weight_that_two_devices_read_is_loaded_on_both():
    text = MLP.replace("weight v: f32[64, 32]\n", "").replace("matmul(g, v)", "matmul(g, w2)")
    text = text.replace("weight w: f32[128, 64]", "weight w: f32[128, 64]\nweight w2: f32[64, 64]")
    text = text.replace("return y", "q = matmul(h, w2)\nreturn y, q")
    places = {"%m": "a", "%h": "a", "%q": "a", "%y": "b"}
    run = search(text, pair("avx512-xla", "avx512-xla", **places))
    schedule = schedule_of(run)
    loaded = [i for i in schedule.ahead if schedule.program.nodes[i].op == "transfer"]
    assert len(loaded) == 1, "the copy is made while weights are loaded"
    assert len([b for b in schedule.buffers if b.role == "weight"]) == 3
    assert_right(run)


def test_a_transfer_to_where_it_is_already_is_none():
    program = placed('input x: f32[4]\ny = transfer(x, device="a")\nreturn exp(y)')
    assert "transfer" not in {n.op for n in program.nodes}


def test_constants_are_free_anywhere():
    text = "input x: f32[4]\nc = fill(value=2.0) : f32[4]\ny = add(x, c)\nreturn y"
    program = placed(text, x="b")
    assert "transfer" not in {n.op for n in program.nodes}
    assert node_devices(program, {"x": "b"}, "a")[program.results[0]] == "b"


@pytest.mark.parametrize(
    ("text", "values", "code"),
    [
        ("input x: f32[4]\nreturn exp(x)", {"q": "b"}, "E391"),
        ('input x: f32[4]\nreturn transfer(x, device="c")', {}, "E391"),
    ],
)
def test_what_is_not_there_cannot_be_placed(text: str, values: dict[str, str], code: str):
    with pytest.raises(EqsatError) as caught:
        placed(text, **values)
    assert caught.value.diagnostics[0].code == code


def test_a_border_needs_a_link_and_a_map():
    program = parse_program(MLP)
    with pytest.raises(EqsatError, match="has none") as caught:
        put_on_devices(program, replace(pair("avx512-xla", "avx512-xla"), links=LINKS[1:]))
    assert caught.value.diagnostics[0].code == "E392"
    with pytest.raises(EqsatError, match="no map of devices is given") as caught:
        eqsat.optimize(program, target="reference")
    assert caught.value.diagnostics[0].code == "E391"
    with pytest.raises(EqsatError, match="not both"):
        eqsat.optimize(program, target="avx512-xla", devices=pair("avx512-xla", "avx512-xla"))


# ---- checkers ------------------------------------------------------------------------------------
def test_the_checkers_know_the_border():
    """A schedule whose border is cut, or whose dispatch is elsewhere, is found out."""
    run = search(MLP, fixed("avx512-xla", "vmvx-like"))
    schedule = schedule_of(run)
    moved = tuple(replace(d, device="a") for d in schedule.dispatches)
    assert any(
        "is on a and on b" in f for f in faults(replace(schedule, dispatches=moved), run.target)
    )
    swapped = replace(run.target, devices=tuple((n, dict(run.target.devices)[o]) for n, o in
                                                (("a", "b"), ("b", "a"))))  # fmt: skip
    assert any("no tile of b" in f for f in faults(schedule, swapped))
    assert run.egraph is not None
    assert run.selection is not None
    assert any("layout" in f for f in check(run.egraph, swapped, run.selection))


def test_a_map_and_its_machine_go_to_json_and_back():
    whole = machine(pair("avx512-xla", "gfx942", x="b"))
    whole.verify()
    assert Target.from_json(json.loads(json.dumps(whole.to_json()))) == whole
    assert "link a to b" in whole.to_text()
    transfer = Transfer((4, 8), "a", "b")
    text = 'input x: f32[4, 8]\n%1 = transfer(x, origin="a", device="b") : f32[4, 8]\nreturn %1'
    program = parse_program(text)
    assert program.nodes[1].attr == transfer
    assert parse_program(program.to_text()) == program
    assert Program.from_json(json.loads(json.dumps(program.to_json()))) == program


# ---- files ---------------------------------------------------------------------------------------
GOOD = """devices: d
doc: two
default: a
targets: {a: avx512-xla, b: vmvx-like}
links: [{between: [a, b], bandwidth: 1 GB/s, latency: 2 us}]
"""


def test_our_own_map_is_read():
    found = load_devices("two-hosts")
    assert found.names == ("core", "far")
    assert len(found.links) == 2
    assert machine(found).default_device == "core"


@pytest.mark.parametrize(
    ("old", "new", "code", "line"),
    [
        ("default: a", "default: c", "E212", 3),
        ("between: [a, b]", "between: [a, c]", "E212", 5),
        ("between: [a, b]", "between: [a, a]", "E213", 5),
        ("between: [a, b]", "origin: a", "E213", 5),
        ("between: [a, b],", "between: [a, b], origin: a,", "E213", 5),
        ("latency: 2 us}", "latency: 2 us}, {origin: a, device: b, bandwidth: 1 GB/s}", "E213", 5),
        ("1 GB/s", "0 GB/s", "E201", 5),
        ("1 GB/s", "1 GB", "E204", 5),
        ("doc: two", "dog: two", "E003", 2),
        ("{a: avx512-xla, b: vmvx-like}", "{}", "E005", 4),
    ],
)
def test_a_wrong_map_is_refused_at_its_place(
    tmp_path: Path, old: str, new: str, code: str, line: int
):
    file = tmp_path / "d.yaml"
    file.write_text(GOOD.replace(old, new))
    with pytest.raises(EqsatError) as caught:
        load_devices(file)
    found = {(d.code, d.span.line) for d in caught.value.diagnostics if d.span is not None}
    assert (code, line) in found


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    program, devices, folder = tmp_path / "p.eqs", tmp_path / "d.yaml", str(tmp_path / "run")
    program.write_text(MLP)
    devices.write_text(GOOD)
    asked = ["optimize", str(program), "--devices", str(devices)]
    assert command(["check", str(devices)]) == 0
    assert command([*asked, "--verify", "-o", folder]) == 0
    assert "on b (vmvx-like):" in capsys.readouterr().out
    assert command(["show", folder]) == 0
    assert "transfer on b (" in capsys.readouterr().out
    assert command(["explain", folder]) == 0
    assert "on b (" in capsys.readouterr().out
    assert command(["check", folder]) == 0
    assert command(["schema", "devices"]) == 0
    assert command([*asked, "--target", "avx512-xla"]) == 2
    assert "E214" in capsys.readouterr().err
    assert command(["optimize", str(program), "--devices", "nowhere"]) == 2
    assert "E211" in capsys.readouterr().err
