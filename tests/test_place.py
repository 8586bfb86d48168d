"""Placement: against brute force, against a checker of its own, on bad files, from the shell."""

from __future__ import annotations

import csv
import itertools
import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreted import as_python
from seeds import seeds

from eqsat.cli.app import run as eqsat
from eqsat.extract.place import depthfirst, place, search
from eqsat.extract.place.search import placements, priorities, problems
from eqsat.frontends.contests import read_buffers
from eqsat.model.deadline import Stop
from eqsat.model.diag import EqsatError
from eqsat.model.sharding import Lifetime, Placement

# the lowest height is above what is live at once: only a proof can say so (found by search);
# brute force takes half a minute for the first, whose lowest height is therefore stated
LOWEST = [8, 8, 5]
ABOVE_THEIR_LOAD = [
    [(0, 1, 5), (1, 2, 4), (2, 3, 1), (0, 3, 2), (1, 4, 1), (3, 4, 3), (4, 5, 4), (2, 6, 3),
     (5, 6, 3), (5, 6, 1)],
    [(0, 1, 6), (1, 2, 4), (1, 3, 2), (0, 4, 1), (2, 4, 2), (2, 4, 1), (3, 4, 1), (2, 5, 1),
     (3, 5, 1), (4, 5, 5)],
    [(0, 1, 2), (0, 2, 2), (2, 3, 1), (1, 3, 1), (1, 4, 1), (2, 4, 1), (3, 5, 2), (4, 6, 2),
     (5, 7, 2), (6, 7, 1), (6, 7, 1)],
]  # fmt: skip
MORE = [(0, 4, 3), (2, 6, 1), (5, 9, 4), (1, 3, 2), (8, 9, 1)]


@pytest.fixture(autouse=True)
def uncompiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`slow` tests compile the search, 30 s: what numba refuses must not pass there."""
    compiles = request.node.get_closest_marker("slow") is not None
    if getattr(request.node, "callspec", None) and "is_compiled" in request.node.callspec.params:
        compiles = request.node.callspec.params["is_compiled"]
    if compiles:
        yield
        return
    monkeypatch.setattr(depthfirst, "is_compiled", lambda: True)
    with as_python(depthfirst):
        yield


def faults(buffers: Sequence[Lifetime], offsets: Sequence[int], height: int, bound: int):
    return Placement(tuple(offsets), height, bound, "feasible", "work").faults(buffers)


def lifetimes(rows: list[tuple[int, int, int]]) -> list[Lifetime]:
    return [Lifetime(f"b{i}", *row) for i, row in enumerate(rows)]


def drawn(rng: random.Random, count: int, steps: int = 8, most: int = 9) -> list[Lifetime]:
    rows = []
    for _ in range(count):
        lower = rng.randrange(steps)
        rows.append((lower, lower + rng.randint(1, steps - lower), rng.randint(1, most)))
    return lifetimes(rows)


def share_a_step(a: Lifetime, b: Lifetime) -> bool:
    return a.lower < b.upper and b.lower < a.upper


def lowest_height(buffers: list[Lifetime]) -> int:
    """By brute force: every offset of every buffer, one byte more of height at a time."""
    height = max((b.size for b in buffers), default=0)
    while not _fits(buffers, height, []):
        height += 1
    return height


def _fits(buffers: list[Lifetime], height: int, at: list[int]) -> bool:
    if len(at) == len(buffers):
        return True
    new = buffers[len(at)]
    others = [(o, b) for o, b in zip(at, buffers, strict=False) if share_a_step(b, new)]
    return any(
        all(o + b.size <= low or low + new.size <= o for o, b in others)
        and _fits(buffers, height, [*at, low])
        for low in range(height - new.size + 1)
    )


def is_legal(buffers: list[Lifetime], offsets: tuple[int, ...]) -> bool:
    """By every pair of buffers and every byte they may share."""
    pairs = itertools.combinations(range(len(buffers)), 2)
    return min(offsets, default=0) >= 0 and not any(
        share_a_step(buffers[i], buffers[j])
        and offsets[i] < offsets[j] + buffers[j].size
        and offsets[j] < offsets[i] + buffers[i].size
        for i, j in pairs
    )


def cut_up(rng: random.Random, pieces: int, steps: int = 64, height: int = 64) -> list[Lifetime]:
    """A rectangle of steps x bytes, cut up: the lowest height is known, and hard to find."""
    parts = [(0, steps, height)]
    while len(parts) < pieces:
        lower, upper, size = parts.pop(max(range(len(parts)), key=lambda i: _area(parts[i])))
        if upper - lower > 1 and (size == 1 or rng.random() < 0.5):
            at = rng.randint(lower + 1, upper - 1)
            parts += [(lower, at, size), (at, upper, size)]
        else:
            at = rng.randint(1, size - 1)
            parts += [(lower, upper, at), (lower, upper, size - at)]
    rng.shuffle(parts)
    return lifetimes(parts)


def _area(part: tuple[int, int, int]) -> int:
    return (part[1] - part[0]) * part[2]


def requests() -> list[list[Lifetime]]:
    rng = random.Random(0)
    few = [drawn(rng, rng.randint(1, 7), most=5) for _ in range(24)]
    return [*map(lifetimes, ABOVE_THEIR_LOAD), *few]


@pytest.mark.parametrize(
    "buffers",
    [pytest.param(b, marks=[pytest.mark.slow] if n < 3 else []) for n, b in enumerate(requests())],
)
def test_brute_force_agrees(buffers: list[Lifetime]):
    found = place(buffers)
    assert is_legal(buffers, found.offsets)
    assert (found.status, found.stop) == ("optimal", "proof")
    assert found.height == found.bound == lowest_height(buffers)


@pytest.mark.parametrize("is_compiled", seeds(1, [False, True]))
def test_depth_first_search_finds_and_refutes_like_brute_force(is_compiled: bool):
    assert hasattr(depthfirst._search, "py_func") == is_compiled
    rng = random.Random(7)
    few = [drawn(rng, rng.randint(2, 6)) for _ in range(8)]
    cases = [*zip(map(lifetimes, ABOVE_THEIR_LOAD), LOWEST, strict=True)]
    cases += [(buffers, lowest_height(buffers)) for buffers in few]
    for buffers, lowest in cases:
        parts = problems([(b.lower, b.upper) for b in buffers], [b.size for b in buffers])
        heights = []
        for p in parts:
            searcher = depthfirst.Searcher(p.first, p.last, p.sizes, seed=1)
            for priority in priorities(p).values():
                height, offsets = p.bound, searcher.search(priority, p.bound, 10**6, True)
                while offsets == []:
                    height += 1
                    offsets = searcher.search(priority, height, 10**6, height % 2 == 0)
                assert offsets is not None
                assert p.height(offsets) <= height
                assert not faults(_members(buffers, p), _bytes(offsets, p), *_heights(p, offsets))
            heights.append(height * p.unit)
        assert max(heights) == lowest
    searcher = depthfirst.Searcher((0,), (1,), (1,), seed=1)
    assert searcher.search([1.0], 1, 0, False) is None
    searcher.stop()
    assert searcher.search([1.0], 1, 10, False) is None


def _members(buffers, problem):
    return [buffers[i] for i in problem.members]


def _bytes(offsets, problem):
    return [o * problem.unit for o in offsets]


def _heights(problem, offsets):
    return problem.height(offsets) * problem.unit, problem.bound * problem.unit


def test_rectangles_are_put_together_again_by_search():
    """Large enough for the depth-first search, and first fit alone does not find them."""
    searched = 0
    for seed in range(6):
        buffers = cut_up(random.Random(seed), 48)
        parts = problems([(b.lower, b.upper) for b in buffers], [b.size for b in buffers])
        greedy = [min(p.height(o) for o in placements(p)) * p.unit for p in parts]
        searched += max(greedy) > 64
        found = place(buffers, seconds=60)
        assert (found.height, found.status) == (64, "optimal")
        assert is_legal(buffers, found.offsets)
        assert place(buffers, seconds=60) == found
        assert place(buffers, seconds=60, capacity=64).status == "optimal"
        assert place(buffers, seconds=60, capacity=63).status == "infeasible"
    assert searched >= 3


def test_a_capacity_ends_the_search_at_the_first_placement_that_fits():
    buffers = lifetimes(ABOVE_THEIR_LOAD[0])
    lowest = lowest_height(buffers)
    roomy = place(buffers, capacity=10 * lowest)
    assert (roomy.status, roomy.stop) == ("feasible", "capacity")
    exact = place(buffers, capacity=lowest)
    assert exact.height == lowest
    assert exact.status in ("feasible", "optimal")
    assert place(buffers, capacity=lowest - 1).status == "infeasible"
    assert place(buffers, capacity=0).status == "infeasible"


def test_nothing_nothing_live_and_nothing_large():
    assert place([]) == Placement((), 0, 0, "optimal", "proof")
    assert place(lifetimes([(0, 1, 0), (0, 9, 0)])).height == 0
    assert place(lifetimes([(-5, -2, 3), (-2, 7, 4)])).offsets == (0, 0)
    large = 2**40
    assert place(lifetimes([(0, 2, large), (1, 3, large)])).height == 2 * large
    many = lifetimes([(i, i + 1, 1 + i % 7) for i in range(3_000)])
    assert place(many, seconds=30).height == 7


def test_the_checker_finds_every_overlap():
    rng = random.Random(3)
    wrong = 0
    for _ in range(300):
        buffers = drawn(rng, rng.randint(1, 9))
        offsets = tuple(rng.randint(-1, 40) for _ in buffers)
        height = max(o + b.size for o, b in zip(offsets, buffers, strict=True))
        found = faults(buffers, offsets, height, height)
        assert (not found) == is_legal(buffers, offsets)
        wrong += bool(found)
    assert 100 < wrong < 290
    buffers = lifetimes(MORE)
    good = place(buffers)
    assert faults(buffers, good.offsets, good.height, good.bound) == []
    assert faults(buffers, good.offsets, good.height - 1, good.bound)
    assert faults(buffers, good.offsets, good.height, good.bound - 1)
    assert faults(buffers, good.offsets, good.height, good.height + 1)
    assert faults(buffers, good.offsets[1:], good.height, good.bound)


def test_a_wrong_placement_is_our_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(search, "placements", lambda problem: [[0] * len(problem.members)])
    monkeypatch.setattr(
        search._Arena, "take", lambda g, o: vars(g).update(offsets=o, height=g.bound)
    )
    with pytest.raises(EqsatError) as e:
        place(lifetimes(MORE))
    assert e.value.exit_code == 4
    assert e.value.diagnostics[0].code == "E904"


def test_above_their_load_they_are():
    for buffers in map(lifetimes, ABOVE_THEIR_LOAD):
        most = max(sum(b.size for b in buffers if b.lower <= t < b.upper) for t in range(9))
        assert lowest_height(buffers) > most


def test_a_stop_and_lack_of_memory_keep_the_best_so_far(monkeypatch: pytest.MonkeyPatch):
    buffers = lifetimes(ABOVE_THEIR_LOAD[0])
    stop = Stop()
    stop.request()
    found = place(buffers, stop=stop)
    assert stop.has_answer
    assert found.stop == "interrupted"
    assert is_legal(buffers, found.offsets)
    late = place(buffers, seconds=0)
    assert late.stop == "time"
    assert late.height < sum(b.size for b in buffers)

    def full(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(search._PlacementSearch, "thorough", full)
    found = place(buffers)
    assert (found.status, found.stop) == ("feasible", "memory")
    assert is_legal(buffers, found.offsets)


def test_quick_placements_are_legal_and_no_proof_is_made_up():
    for buffers in map(lifetimes, ABOVE_THEIR_LOAD):
        found = place(buffers, quick=True)
        assert is_legal(buffers, found.offsets)
        assert found.bound <= lowest_height(buffers) <= found.height


def test_a_placement_survives_json():
    found = place(lifetimes(MORE))
    assert Placement.from_json(json.loads(json.dumps(found.to_json()))) == found


# ---- files ----------------------------------------------------------------------------------
def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "buffers.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_the_public_format_is_read(tmp_path: Path):
    text = "\ufeffsize, ID ,lower,upper,hint,gaps,alignment\r\n4,a,0,3,7,,1\r\n\r\n0,b,-3,9,,,\r\n"
    found = read_buffers(written(tmp_path, text))
    assert found == [Lifetime("a", 0, 3, 4), Lifetime("b", -3, 9, 0)]


BAD = {
    "": ["1: the file is empty"],
    "\n \n": ["1: the file is empty"],
    "id,lower,upper,size\n": ["1: there are no buffers"],
    "id,lower,upper\na,0,1\n": ["1: no column `size`"],
    "id,lower,upper,size,size,colour\n": ["1: column `size` is there twice", "1: unknown column"],
    "id,start,end,size\na,0,1,4\n": ["1: column `start`", "1: column `end`", "1: no column"],
    "id,lower,upper,size\na,0,1,x\nb,0,1.5,\n": ["2: `size` is not", "3: `upper`", "3: `size`"],
    "id,lower,upper,size\na,2,2,4\nb,3,2,-1\n": ["2: `upper` 2", "3: `upper` 2", "3: `size` -1"],
    "id,lower,upper,size\na,0,1,4\na,0,1,4\n,0,1,4\n": ["3: `a` is there", "4: the `id` is empty"],
    "id,lower,upper,size\na,0,1\nb,0,1,4,5\n": ["2: 3 values", "3: 5 values"],
    f"id,lower,upper,size\na,0,1,{10**400}\nb,0,{2**60},1\n": ["2: `size` is out", "3: `upper`"],
    'id,lower,upper,size\n"a,0,1,4\n': ["2: not a line of CSV"],
    "id,lower,upper,size,offset,alignment,gaps\na,0,1,4,3,8,0-1\nb,0,1,4,3,8,0-1\n": [
        "2: column `alignment`", "2: column `gaps`", "2: column `offset`",
    ],
    "id,lower,upper,size\n" + "".join(f"{i},0,1,{2**53}\n" for i in range(200)): ["1: the sizes"],
    "id,lower,upper,size\n" + "".join(f"{i},0,1,1\n" for i in range(10_001)): ["1: there are"],
    b"\x93NUMPY\x00\xff\xfe": ["is not UTF-8"],
    b"id,lower\x00,upper,size\n": ["null characters"],
}  # fmt: skip


@pytest.mark.parametrize("text", BAD, ids=lambda t: repr(t[:30]))
def test_bad_files_are_refused_with_every_line_that_is_wrong(text: str | bytes, tmp_path: Path):
    path = written(tmp_path, text)
    with pytest.raises(EqsatError) as e:
        read_buffers(path)
    found = e.value.diagnostics
    assert e.value.exit_code == 2
    assert {d.code for d in found} == {"E350"}
    said = [f"{d.span.line}: {d.message}" if d.span else d.message for d in found]
    assert len(said) == len(BAD[text]), said
    for one, wanted in zip(sorted(said), sorted(BAD[text]), strict=True):
        assert wanted in one, said


def test_a_very_bad_file_shows_twenty_problems(tmp_path: Path):
    path = written(tmp_path, "id,lower,upper,size\n" + "a,0,1,x\n" * 50)
    with pytest.raises(EqsatError) as e:
        read_buffers(path)
    assert len(e.value.diagnostics) == 21
    for missing in (tmp_path, tmp_path / "none.csv"):
        with pytest.raises(EqsatError, match="no file"):
            read_buffers(missing)


CELLS = st.sampled_from(["0", "1", "-2", "7", "", "x", '"', "1e3", "٣", "9" * 25, "a", "\t", "0x1"])
ROWS = st.lists(st.lists(CELLS, max_size=5).map(",".join), max_size=5)


@settings(max_examples=40, deadline=None)
@given(st.one_of(ROWS.map(lambda r: "\n".join(["id,lower,upper,size", *r])), st.text()))
def test_no_file_gets_a_traceback(tmp_path_factory: pytest.TempPathFactory, text: str):
    path = written(tmp_path_factory.getbasetemp(), text.encode("utf-8", "surrogatepass"))
    try:
        buffers = read_buffers(path)
    except EqsatError:
        return
    found = place(buffers, seconds=5)
    assert is_legal(buffers, found.offsets)


# ---- from the shell -------------------------------------------------------------------------
EXAMPLE = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\n"


def test_the_command_prints_one_object_and_writes_the_offsets(tmp_path: Path, capsys):
    path, out = written(tmp_path, EXAMPLE), tmp_path / "placed" / "out.csv"
    assert eqsat(["place", str(path), "--output-format", "json", "-o", str(out)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["status"], printed["height"], printed["bound"]) == ("optimal", 8, 8)
    assert printed["seconds"] >= 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [[r[k] for k in ("id", "lower", "upper", "size")] for r in rows] == [
        line.split(",") for line in EXAMPLE.split()[1:]
    ]
    assert is_legal(read_buffers(path), tuple(int(r["offset"]) for r in rows))
    assert eqsat(["place", str(path)]) == 0
    assert "height   8" in capsys.readouterr().out


def test_the_command_says_whether_a_capacity_is_enough(tmp_path: Path, capsys):
    path, out = written(tmp_path, EXAMPLE), tmp_path / "out.csv"
    assert eqsat(["place", str(path), "--capacity", "1KiB"]) == 0
    capsys.readouterr()
    assert eqsat(["place", str(path), "--capacity", "7", "-o", str(out)]) == 3
    said = capsys.readouterr()
    assert "infeasible" in said.out
    assert "E416" in said.err
    assert "proven" in said.err
    assert not out.exists()
    hard = lifetimes(ABOVE_THEIR_LOAD[0])
    rows = "".join(f"{b.name},{b.lower},{b.upper},{b.size}\n" for b in hard)
    path = written(tmp_path, "id,lower,upper,size\n" + rows)
    command = ["place", str(path), "--capacity", str(lowest_height(hard) - 1)]
    assert eqsat([*command, "--time-limit", "0s"]) == 3
    assert "not known" in capsys.readouterr().err
    assert eqsat([*command, "--capacity", "many"]) == 2
    assert eqsat(["place", str(tmp_path / "none.csv")]) == 2
    assert eqsat(["place", str(path), "-o", str(tmp_path)]) == 2


def test_an_easy_file_loads_nothing_heavy(tmp_path: Path):
    path = written(tmp_path, EXAMPLE)
    code = (
        "import sys; from eqsat.api import place_buffers;"
        f"assert place_buffers({str(path)!r})['status'] == 'optimal';"
        "print([m for m in ('numba', 'ortools', 'jax', 'egglog') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# presses Ctrl-C as soon as the search has gone on to what takes long
PRESS = """
import os, signal, sys, threading, time
from eqsat.cli import run

def press():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    while "eqsat.extract.place.depthfirst" not in sys.modules:
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=press, daemon=True).start()
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.slow  # an interpreter, 3 s; a stop is asked for above
@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signals between threads")
def test_ctrl_c_keeps_the_best_placement_so_far(tmp_path: Path):
    rng = random.Random(11)
    buffers = always_full(rng, steps=60, height=97)
    rows = "".join(f"{b.name},{b.lower},{b.upper},{b.size}\n" for b in buffers)
    path, out = written(tmp_path, "id,lower,upper,size\n" + rows), tmp_path / "out.csv"
    command = ["place", str(path), "-o", str(out), "--time-limit", "200s"]
    done = subprocess.run(
        [sys.executable, "-c", PRESS, *command], capture_output=True, text=True, check=False,
        timeout=150,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert "E401" in done.stderr
    with out.open() as file:
        offsets = tuple(int(r["offset"]) for r in csv.DictReader(file))
    assert is_legal(buffers, offsets)


def always_full(rng: random.Random, steps: int, height: int) -> list[Lifetime]:
    """All bytes are live at every step, by buffers that end at random: too hard to place."""
    rows: list[tuple[int, int, int]] = []
    live: list[tuple[int, int]] = []
    for step in range(steps):
        free = height - sum(size for _, size in live)
        while free:
            live.append((step, rng.randint(1, min(free, 9))))
            free -= live[-1][1]
        gone = live if step == steps - 1 else rng.sample(live, rng.randint(1, len(live) // 2))
        rows += [(lower, step + 1, size) for lower, size in gone]
        live = [b for b in live if b not in gone]
    return lifetimes(rows)
