"""The first call of each shape is made by the original, too: what is returned, kept and said."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import threading
import warnings
import weakref
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fuzz import wrongplans
from seeds import one_in, seeds

import eqsat
from eqsat import host
from eqsat.execute import agree, beside
from eqsat.execute.agree import Subject, worst_difference
from eqsat.execute.beside import FirstCall
from eqsat.execute.compare import dominated
from eqsat.execute.executable import CustomCallExecutable, XlaExecutable
from eqsat.execute.firstcalls import CALM, MORE
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError, EqsatWarning

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)  # JAX's would be compiled, by every process that collects tests
X, W, B, V = (
    jnp.asarray(RNG.standard_normal(s, np.float32)) for s in ((10, 40), (40, 24), (24,), (40,))
)

# what makes `turned` another program: with all rules and goals a search takes twice as long
QUICK: dict[str, Any] = {"target": "reference", "rules": "layout/transpose", "goals": ["time"]}


def layer(x, w, b):
    return jax.nn.relu(x @ w + b)


def turned(x):
    """The answer is another program: the transposes go."""
    return ((x.T @ W[: x.shape[0]]).T + V).T


def step(x):
    """The next state."""
    return (x.T @ W[:10, :10]).T + V


def same(a, b) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)


def settle(function, *args) -> None:
    """Until its calls are C."""
    for _ in range(1 + CALM):
        function(*args)


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch):
    """Every answer that is compiled from now on is off by one in an element of its first result."""

    def off(real):
        def run(self, packed, *inputs):
            first, *rest = real(self, packed, *inputs)
            return first.at[(0,) * first.ndim].add(jnp.ones((), first.dtype)), *rest

        return run

    for kind in (XlaExecutable, CustomCallExecutable):
        monkeypatch.setattr(kind, "run", off(kind.run))


def codes(said) -> list[str]:
    return [w.message.diagnostic.code for w in said if isinstance(w.message, EqsatWarning)]


# ---- a wrong answer ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "change"), one_in(4, [("product", 0), ("softmax", 1), ("layer", 2), ("transpose", 3)])
)
def test_a_wrong_plan_is_found_and_the_original_serves(name, change):
    function, shapes = wrongplans.PROGRAMS[name]
    args = wrongplans.drawn(*shapes)
    want = jax.jit(function)(*args)
    fast = eqsat.jit(function, target="avx2", goals=["time"])
    with wrongplans.forced(change) as made:
        with pytest.warns(EqsatWarning, match="E520") as said:
            same(fast(*args), want)
        assert made
        for _ in range(2 + CALM):
            same(fast(*args), want)
    assert said[0].filename == __file__
    (found,) = fast.checks
    assert (found.kept, found.why) == ("original", "wrong")
    assert found.difference is not None
    assert found.difference.error > found.difference.allowed
    assert found.difference.where in str(said[0].message)


def test_what_reproduces_it_has_nothing_of_the_users(tmp_path, monkeypatch, wrong):
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path))
    secret = np.float32(1.2345678)
    w = jnp.full((40, 24), secret).at[0, 0].set(2.0)
    fast = eqsat.jit(lambda x: ((x.T @ w[:10]).T + V).T, **QUICK)
    with pytest.warns(EqsatWarning, match="E520"):
        fast(X)
    (folder,) = (tmp_path / "wrong").iterdir()
    assert f"{folder / 'reproduce.py'}` shows it" in fast.checks[0].reason
    run = eqsat.load(folder)
    assert run.program.weights and not run.weights
    for path in folder.rglob("*"):
        if path.is_file():
            assert secret.tobytes() not in path.read_bytes()
            assert "1.2345" not in path.read_text(encoding="utf-8", errors="ignore")
    done = subprocess.run(
        [sys.executable, str(folder / "reproduce.py")], capture_output=True, text=True, check=True
    )
    assert "no difference" in done.stdout  # the answer is wrong in this process only


@pytest.mark.usefixtures("wrong")
def test_a_compiled_run_and_a_program_from_text_are_checked_too():
    run = eqsat.optimize(turned, X, **QUICK)
    text = "program p\ninput x: f32[4, 6]\nweight w: f32[6, 8]\ny = matmul(x, w)\nreturn y\n"
    read = eqsat.optimize(parse_program(text, "p.eqs"), **QUICK)
    x, w = np.asarray(X[:4, :6]), np.asarray(W[:6, :8])
    read.use_weights({"w": w})
    for call, args, want in (
        (run.compile(), (X,), turned(X)),
        (read.compile(), (x,), (x @ w,)),
    ):
        with pytest.warns(EqsatWarning, match="E520"):
            same(call(*args), want)
        same(call(*args), want)
        assert [c.why for c in call.checks] == ["wrong"]
    assert np.abs(run.compile(check="never")(X) - turned(X)).max() > 0.5


@pytest.mark.usefixtures("wrong")
def test_always_compares_every_call():
    fast = eqsat.jit(turned, **QUICK, check="always")
    with pytest.warns(EqsatWarning, match="E520"):
        same(fast(X), turned(X))
    same(fast(X), turned(X))
    assert [c.kept for c in fast.checks] == ["original"]


def test_always_goes_on_where_the_answer_is_right():
    fast = eqsat.jit(turned, **QUICK, check="always")
    for _ in range(3):
        same(fast(X), turned(X))
    assert [c.why for c in fast.checks] == ["agrees"] * 3
    call = fast.optimize(X).compile(check="always")
    for _ in range(3):
        same(call(X), turned(X))
    assert len(call.checks) == 3


# ---- shapes and traces ---------------------------------------------------------------------------
def test_every_shape_is_checked_once():
    fast = eqsat.jit(turned, **QUICK)
    for x in (X, X[:5], X, X[:5]):
        same(fast(x), turned(x))
    assert len(fast.checks) == 2
    settle(fast, X)
    before = len(fast.runs)
    for count in (2, 3, 4):  # shapes that come when calls are C, then too many of them
        for _ in range(2):
            same(fast(X[:count]), turned(X[:count]))
        settle(fast, X[:count])
    assert len(fast.checks) == len(fast.runs) == before + 3


def test_of_a_new_shape_the_original_serves_until_it_is_checked(monkeypatch, wrong):
    fast = eqsat.jit(turned, **QUICK)
    with monkeypatch.context() as patch:
        patch.setattr(beside, "worst_difference", lambda *_: None)
        settle(fast, X)
    other = X[:5]
    same(fast(other), turned(other))
    assert len(fast.checks) == 1
    with pytest.warns(EqsatWarning, match="E520"):
        same(fast(other), turned(other))
    assert [c.kept for c in fast.checks] == ["answer", "original"]
    same(fast(other), turned(other))


def test_nothing_is_checked_in_a_trace(wrong):
    fast = eqsat.jit(turned, **QUICK)
    x = X
    off = turned(x).at[0, 0].add(1)
    same(jax.jit(fast)(x), off)
    same(jax.jit(lambda: fast(x))(), off)
    assert not fast.checks
    with pytest.warns(EqsatWarning, match="E520"):
        same(fast(x), turned(x))
    same(jax.jit(lambda y: fast(y) + 1)(x), turned(x) + 1)  # what is known now
    settle(fast, x)
    same(jax.vmap(fast)(X[None, :5])[0], turned(X[:5]).at[0, 0].add(1))
    with pytest.warns(EqsatWarning, match="E520"):
        same(fast(X[:5]), turned(X[:5]))


def test_a_method_is_bound_and_a_function_may_call_itself():
    @jax.tree_util.register_pytree_node_class
    class Model:
        def tree_flatten(self):
            return (), None

        @classmethod
        def tree_unflatten(cls, _, leaves):
            return cls()

        @eqsat.jit(**QUICK)
        def halves(self, x):
            return turned(x) if x.shape[0] < 10 else self.halves(x[:5])

    model = Model()
    for _ in range(3):
        same(model.halves(X), turned(X[:5]))


def test_threads_wait_for_the_check(wrong):
    fast, found = eqsat.jit(turned, **QUICK), []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        threads = [threading.Thread(target=lambda: found.append(fast(X))) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert codes(said) == ["E520"]
    assert len(found) == 4
    for x in found:
        same(x, turned(X))


# ---- what cannot be checked ----------------------------------------------------------------------
def test_a_function_that_changes_is_said_and_kept(wrong):
    state = iter(range(100))

    def counting(x):
        return turned(x) * (1.0 + next(state))

    fast = eqsat.jit(counting, **QUICK)
    with pytest.warns(EqsatWarning, match=r"E521.*changes from call to call"):
        first = fast(X)
    same(fast(X), first)
    assert fast.checks[0].why == "unsteady"


@pytest.mark.parametrize("when", seeds(1, ["answer", "before", "original"]))
def test_without_memory_for_both_the_answer_is_unchecked(monkeypatch, when):
    fast = eqsat.jit(step, target="avx2", donate=["x"])
    x = jnp.array(X)
    if when == "before":
        monkeypatch.setattr(beside, "free_bytes", lambda: 1000)
    else:
        real = beside.Trial._timed

        def timed(self, what, call, args, kwargs):
            if what == when:
                raise MemoryError("RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes")
            return real(self, what, call, args, kwargs)

        monkeypatch.setattr(beside.Trial, "_timed", timed)
    with pytest.warns(EqsatWarning, match=r"E522.*used unchecked"):
        same(fast(x), step(X))
    assert fast.checks[0].why == "unchecked"
    same(fast(jnp.array(X)), step(X))
    assert len(fast.checks) == 1


def test_the_machine_says_how_much_memory_is_free():
    most, free = host.machine_bytes(), host.free_bytes()
    assert most is not None
    assert free is not None
    assert 0 < free <= most


def test_other_words_are_refused():
    for options in ({"check": "often"}, {"race": "no"}, {"race": 1}):
        with pytest.raises(EqsatError, match="E400"):
            eqsat.jit(turned, **options)
        with pytest.raises(EqsatError, match="E400"):
            eqsat.optimize(turned, X, **QUICK).compile(**options)
    with pytest.raises(EqsatError, match="did you mean `first`"):
        eqsat.jit(turned, check="frist")


def test_an_error_of_the_first_call_leaves_nothing_unchecked(monkeypatch, wrong):
    fast = eqsat.jit(turned, **QUICK)
    with monkeypatch.context() as patch:
        patch.setattr(beside, "worst_difference", lambda *_: None)
        same(fast(X[:4]), turned(X[:4]).at[0, 0].add(1))
    with monkeypatch.context() as patch:
        patch.setattr(jax.stages.Lowered, "compile", _refuse)
        with pytest.raises(KeyError):
            fast(X)
    with pytest.warns(EqsatWarning, match="E520"):
        same(fast(X), turned(X))


def _refuse(*_: Any, **__: Any) -> Any:
    raise KeyError("no")


# ---- arguments that say nothing ------------------------------------------------------------------
def test_zeros_prove_nothing_so_a_later_call_is_checked(monkeypatch, wrong):
    monkeypatch.setattr(agree, "size", lambda _: 1e9)  # as if the error were below what is allowed
    fast = eqsat.jit(turned, **QUICK)
    same(fast(jnp.zeros((10, 40))), turned(jnp.zeros((10, 40))).at[0, 0].add(1))
    monkeypatch.undo()
    assert not fast.checks[0].proves


def test_what_is_one_number_says_little():
    x = np.random.default_rng(0).standard_normal((40, 30)).astype("f4")
    late = np.zeros((40, 30), "f4")
    late[-1, -1] = 1
    for leaf, result, little in (
        (x, x, False), (late, x, False), (np.ones_like(x), x, True), (x, np.zeros_like(x), True),
        (np.ones(7, "f4"), x, False), (x, np.full_like(x, np.nan), True),
        (x, np.zeros((4, 4), "i4"), False), (jax.random.split(KEY, (2, 3)), x, False),
    ):  # fmt: skip
        assert agree.says_little([leaf, 3.0], [result]) == little


def test_constant_arguments_are_checked_a_few_times():
    fast = eqsat.jit(turned, **QUICK)
    for _ in range(3 + MORE):
        fast(jnp.ones((10, 40)))
    assert [c.proves for c in fast.checks] == [False] * (1 + MORE)
    once = eqsat.jit(turned, **QUICK)
    once(jnp.ones((10, 40)))
    for _ in range(3):
        once(X)
    assert [c.proves for c in once.checks] == [False, True]


# ---- donated arguments and weights ---------------------------------------------------------------
def test_donated_arguments_are_copied_and_then_used_up(wrong):
    fast = eqsat.jit(step, target="avx2", donate=["x"])
    x = jnp.array(X)
    with pytest.warns(EqsatWarning, match="E520"):
        same(fast(x), step(X))
    assert x.is_deleted()


def test_one_of_both_is_kept(monkeypatch):
    """No arrays of a call stay, and packed weights only of an answer that serves."""
    w = jnp.array(W)
    fast = eqsat.jit(layer, weights=("w", "b"), **QUICK)
    fast(X, w, B)
    gone = weakref.ref(w)
    del w
    gc.collect()
    assert gone() is None

    def closing(x):
        return (W.T @ x.T).T

    with monkeypatch.context() as patch:
        patch.setattr(
            beside, "worst_difference", lambda *_: agree.Difference(0, (0,), 1.0, 0.0, 1.0, "")
        )
        patch.setattr(beside, "is_explained", lambda *_: False)
        patch.setattr(beside.Trial, "_apart", lambda *_: FirstCall("original", "slower"))
        fast = eqsat.jit(closing, **QUICK)
        fast(X)
    (run,) = fast.runs.values()
    assert run.executable._packed is None


# ---- rounding ------------------------------------------------------------------------------------
def subject_of(function, *args) -> Subject:
    from eqsat.run.calling import subject_of

    return subject_of(eqsat.optimize(function, *args, **QUICK))


def test_rounding_is_no_difference():
    subject = subject_of(layer, X, W, B)
    (a,) = agree.arrays_of(layer(X, W, B), subject)
    for factor, beyond in ((1 + 1e-7, False), (1 + 1e-4, True)):
        found = worst_difference([a * np.float32(factor)], [a], subject.limit)
        assert (found is not None) == beyond
    b = a.copy()
    b[3, 2] = np.nan
    found = worst_difference([b], [a], subject.limit)
    assert found is not None
    assert found.at == (3, 2)
    assert found.share == 1 / a.size
    assert worst_difference([b], [b], subject.limit) is None
    assert worst_difference([a[:5]], [a], subject.limit) is not None


def test_large_results_are_looked_at_in_parts(monkeypatch):
    monkeypatch.setattr(agree, "PART", 7)
    a = np.arange(100, dtype="f4").reshape(4, 25)
    b = a.copy()
    b[2, 3], b[3, 1] = 0, -5
    found = worst_difference([b], [a], 1e-6)
    assert found is not None
    assert found.at == (3, 1)
    assert found.share == 2 / 100
    assert found.error == pytest.approx(81 / 99)


def quantised(x):
    return jnp.round(x * 7.3).astype(jnp.int8)


def test_a_rounding_step_at_a_tie_is_right_and_others_are_not():
    x = jnp.full((4, 6), 0.5 / 7.3) * jnp.arange(1, 25).reshape(4, 6)
    x = x.at[0, 0].set(1.5 / 7.3)
    want = np.asarray(quantised(x))
    tie = want.copy()
    tie[0, 0] += 1 if want[0, 0] == 1 else -1
    subject = subject_of(quantised, x)

    def explained(got) -> bool:
        call = jax.jit(quantised)
        return agree.is_explained(
            subject, lambda leaves: call(*leaves), [x], ((x,), {}), [got], [want], subject.limit
        )

    assert worst_difference([tie], [want], subject.limit) is not None
    assert explained(tie)
    far = want.copy()
    far[1, 1] += 3
    assert not explained(far)


def test_cancellation_is_explained():
    """The sum of what was taken away again has no digits but those of rounding."""

    def cancelling(x):
        return ((x + 1e6) - 1e6).sum(1) - x.sum(1)

    x = jnp.asarray(np.random.default_rng(0).standard_normal((8, 50)), jnp.float32)
    subject, want = subject_of(cancelling, x), np.asarray(cancelling(x))
    call = jax.jit(cancelling)
    got = np.roll(want, 1)
    assert agree.is_explained(
        subject, lambda leaves: call(*leaves), [x], ((x,), {}), [got], [want], subject.limit
    )
    assert not agree.is_explained(
        subject, lambda leaves: call(*leaves), [x], ((x,), {}), [want + 50], [want], subject.limit
    )


# ---- races ---------------------------------------------------------------------------------------
def working(steps: int):
    def call(x):
        sum(range(steps))
        return x

    return call


def test_a_race_tells_the_slower_one(monkeypatch):
    monkeypatch.setattr(beside, "SECONDS", 0.2)

    def given():
        return (X,), {}

    slow, quick = working(80_000), working(10_000)
    found = beside.race((slow, given), (quick, given))
    assert found.is_slower
    assert found.lower <= found.ratio <= found.upper
    assert f"{found.rounds} round(s)" in str(found)
    assert not beside.race((quick, given), (slow, given)).is_slower
    assert not beside.Race(1.05, 1.05, 1.05, 1).is_slower  # one round says little
    assert beside.Race(1.5, 1.5, 1.5, 1).is_slower


def raced(monkeypatch, result: beside.Race, **options: Any) -> Any:
    monkeypatch.setattr(beside, "SECONDS", 1.0)
    made = []
    monkeypatch.setattr(beside, "race", lambda *sides, uses_up: made.append(uses_up) or result)
    fast = eqsat.jit(turned, **QUICK, **options)
    same(fast(X), turned(X))
    settle(fast, X)
    return fast, made


def test_the_original_is_kept_where_it_is_quicker_and_the_log_says_so(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "eqsat.first-call")
    fast, made = raced(monkeypatch, beside.Race(1.4, 1.3, 1.5, 10))
    assert made == [False]
    assert [(c.kept, c.why) for c in fast.checks] == [("original", "slower")]
    assert "`turned`: the original is kept (slower), its time over the original's is 1.4" in (
        caplog.text
    )
    plain = jax.jit(turned)
    assert fast.lower(X).as_text() == plain.lower(X).as_text()
    fast, made = raced(monkeypatch, beside.Race(0.4, 0.3, 0.5, 10))
    assert [(c.kept, c.why) for c in fast.checks] == [("answer", "agrees")]
    assert "eqsat's answer is kept (agrees)" in caplog.text
    fast, made = raced(monkeypatch, beside.Race(1.4, 1.3, 1.5, 10), race=False)
    assert made == []
    assert fast.checks[0].kept == "answer"


def test_shapes_of_which_one_keeps_the_original_serve_each_its_own(monkeypatch):
    fast, _ = raced(monkeypatch, beside.Race(1.4, 1.3, 1.5, 10))
    monkeypatch.setattr(beside, "race", lambda *_, uses_up: beside.Race(0.5, 0.4, 0.6, 10))
    for _ in range(2):
        same(fast(X[:5]), turned(X[:5]))
    assert [c.kept for c in fast.checks] == ["original", "answer"]
    texts = [fast.lower(X[:n]).as_text().count("transpose") for n in (10, 5)]
    assert texts[0] > texts[1]
    for x in (X, X[:5]):
        settle(fast, x)
        same(fast(x), turned(x))
    assert len(fast.checks) == 2


def test_what_is_the_input_is_not_called_twice():
    fast = eqsat.jit(jnp.sin, **QUICK)
    fast(X)
    assert fast.optimize(X).is_input
    assert not fast.checks


def test_pages_and_names_of_the_package_stay(tmp_path: Path):
    fast = eqsat.jit(turned, **QUICK)
    assert fast.__name__ == "turned"
    assert fast.eval_shape(X).shape == (40, 24)
    fast(X)
    fast.clear_cache()
    same(fast(X), turned(X))


def test_counts_of_ties_that_round_otherwise_may_differ_by_chance() -> None:
    def off(count: int, by: float = 1.0) -> np.ndarray:
        return np.where(np.arange(1000) < count, by, 0.0)

    none = np.zeros(1000)
    assert dominated(off(217), off(202), none)
    assert not dominated(off(217, 2.1), off(202), none)
    assert not dominated(off(270), off(202), none)
    assert dominated(off(20), off(20), none)
    assert not dominated(off(21), off(20), none)  # so few say nothing
    assert not dominated(off(1), off(0), none)
