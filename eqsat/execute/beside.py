"""Differential run of a call, by an answer and by the original function: which of them stays.

The original runs first, on copies of what the call uses up. Its results are returned where those of
the answer differ from them beyond rounding; and it stays where it is quicker, timed in turns.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import tree_flatten, tree_unflatten

from eqsat.execute.agree import (
    Difference,
    Subject,
    arrays_of,
    is_explained,
    says_little,
    worst_difference,
)
from eqsat.execute.timing import interval
from eqsat.host import free_bytes, in_units
from eqsat.model.diag import Diagnostic, EqsatWarning, did_you_mean, fail

SECONDS = 0.5  # for all calls of both, unless `LEAST` rounds take longer; 0: there is no race
BATCH_SECONDS = 0.001  # of one side in one round
LEAST, ENOUGH, MOST = 3, 10, 150  # rounds: of calls that are slow, before it may end early, at most
LONG = 1.0  # seconds of a call that is timed once
CLEAR = 0.01  # this far from equal an interval ends the race
NOISE = 0.1  # of a single round


@dataclass(frozen=True)
class Race:
    """Times of the answer over those of the original: their median and its 95 % interval."""

    ratio: float
    lower: float
    upper: float
    rounds: int

    @property
    def is_slower(self) -> bool:
        """Whether the answer is slower by more than the noise."""
        return self.lower > 1 and (self.rounds >= LEAST or self.ratio > 1 + NOISE)

    def __str__(self) -> str:
        return f"{self.ratio:.3f} ({self.lower:.3f} to {self.upper:.3f}) in {self.rounds} round(s)"


def has_time() -> bool:
    """Whether there are races at all."""
    return SECONDS > 0


Side = tuple[Callable[..., Any], Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]]


def race(answer: Side, original: Side, uses_up: bool = False) -> Race:
    """A side: the function, and what gives its arguments. uses_up: they serve for one call."""
    sides = {"answer": answer, "original": original}
    once = max(min(_seconds(side, 1) for _ in range(2)) for side in sides.values())
    count = 1 if uses_up else max(1, min(1000, int(BATCH_SECONDS / max(once, 1e-7))))
    rounds = 1 if once > LONG else LEAST
    end = time.perf_counter() + SECONDS
    drawn, order, ratios = random.Random(0), list(sides), list[float]()
    while len(ratios) < MOST:
        drawn.shuffle(order)
        seconds = {name: _batch(sides[name], count) for name in order}
        ratios.append(seconds["answer"] / seconds["original"])
        if len(ratios) >= ENOUGH and _is_clear(ratios):
            break
        if len(ratios) >= rounds and time.perf_counter() > end:
            break
    return Race(*interval(ratios), len(ratios))


def _is_clear(ratios: list[float]) -> bool:
    _, lower, upper = interval(ratios)
    return lower > 1 + CLEAR or upper < 1 - CLEAR


def _batch(side: Side, count: int) -> float:
    """After a call that is not counted: what ran before has its own data in the caches."""
    _seconds(side, 1)
    return _seconds(side, count)


def _seconds(side: Side, count: int) -> float:
    function, arguments = side
    args, kwargs = jax.block_until_ready(arguments())
    clock = _clock()
    start = clock()
    result = function(*args, **kwargs)
    for _ in range(count - 1):
        result = function(*args, **kwargs)
    jax.block_until_ready(result)
    return clock() - start


def _clock() -> Callable[[], float]:
    """On one core, what others run there does not count; on several, threads run side by side."""
    cores = getattr(os, "sched_getaffinity", lambda _: (0, 1))(0)
    return time.process_time if len(cores) == 1 else time.perf_counter


FIRST, NEVER, ALWAYS = CHECKS = ("first", "never", "always")
ANSWER, ORIGINAL = "answer", "original"
AGREES, SLOWER, WRONG, UNSTEADY, UNCHECKED = "agrees", "slower", "wrong", "unsteady", "unchecked"
AGREED = "agreed"
COPIED = (
    "NumPy arrays are copied at each call, and weights among them packed; arrays of `jax.numpy`,"
    " made once, are not"
)
LOG = logging.getLogger("eqsat.first-call")
# writes what reproduces a difference: arguments of a call → the folder, and whether it shows there
Reproduce = Callable[[tuple[Any, ...], Mapping[str, Any]], str]


def check_options(check: Any, may_race: Any) -> None:
    """EqsatError E400 for other words."""
    if check not in CHECKS:
        message = f"no check `{check}`: `first`, `never` or `always`"
        raise fail("E400", message, help=did_you_mean(str(check), CHECKS))
    if not isinstance(may_race, bool):
        raise fail("E400", f"`race` is True or False, not `{may_race!r}`", help="race=False")


@dataclass(frozen=True)
class FirstCall:
    """Result of a first call.

    kept: `answer` or `original`, which serves from then on; why: `agrees`, `slower`, `wrong`,
    `unsteady` (the function changes from call to call), `unchecked` (with the reason in `reason`),
    or `agreed`: in a process of before, so that this call was not checked. seconds: of the calls
    and what lies between them. proves: whether a wrong answer would have been seen.
    """

    kept: str
    why: str
    reason: str = ""
    difference: Difference | None = None
    race: Race | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    proves: bool = True


@dataclass(frozen=True)
class Pair:
    """Both sides of a function, and what is known of them.

    afresh: a jitted function of the original that is traced again. donated: of the leaves of a
    call. bytes: of memory that a call of the answer needs. may_race: the original could serve in
    its place: its results lie where those of the answer do.
    """

    name: str
    answer: Callable[..., Any]
    original: Callable[..., Any]
    afresh: Callable[[], Callable[..., Any]]
    subject: Subject
    reproduce: Reproduce
    bytes: int
    donated: Sequence[int] = ()
    may_race: bool = True


class Trial:
    """One call of both sides with the same arguments."""

    def __init__(self, pair: Pair, args: tuple[Any, ...], kwargs: dict[str, Any]):
        self.pair, self.args, self.kwargs = pair, args, kwargs
        self.leaves, self.tree = tree_flatten((args, kwargs))
        self.seconds: dict[str, float] = {}

    def run(self, has_race: bool) -> tuple[Any, FirstCall]:
        """The results of the call, and what it has shown."""
        most = free_bytes()
        if most is not None and 2 * self.pair.bytes > most:
            needed = in_units(2 * self.pair.bytes)
            return self._alone(f"both take {needed} of memory, {in_units(most)} are free")
        try:
            self._keep()
            wanted = self._timed(ORIGINAL, self.pair.original, *self._given())
        except Exception as error:
            return self._alone(_out_of_memory(error))
        try:
            got = self._timed(ANSWER, self.pair.answer, self.args, self.kwargs)
            verdict = self._judged(got, wanted, has_race)
        except Exception as error:
            reason = _out_of_memory(error)
            del wanted
            self.args, self.kwargs = self._given()
            return self._alone(reason)
        return (got if verdict.why in (AGREES, SLOWER) else wanted), verdict

    def _keep(self) -> None:
        """Copies of what the answer uses up; the caller has the rest."""
        copies = {n: jnp.array(self.leaves[n], copy=True) for n in self.pair.donated}
        self.leaves = [copies.get(n, x) for n, x in enumerate(self.leaves)]

    def _given(self, leaves: Sequence[Any] | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments for one call."""
        given = list(self.leaves if leaves is None else leaves)
        for n in self.pair.donated:
            given[n] = jnp.array(given[n], copy=True)
        return tree_unflatten(self.tree, given)

    def _timed(self, what: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        start = time.perf_counter()
        result = jax.block_until_ready(call(*args, **kwargs))
        self.seconds[what] = time.perf_counter() - start
        return result

    def _alone(self, reason: str) -> tuple[Any, FirstCall]:
        """The call of the answer, unchecked."""
        got = self.pair.answer(*self.args, **self.kwargs)
        return got, FirstCall(ANSWER, UNCHECKED, reason)

    def _judged(self, got: Any, wanted: Any, has_race: bool) -> FirstCall:
        start = time.perf_counter()
        subject = self.pair.subject
        answers, originals = arrays_of(got, subject), arrays_of(wanted, subject)
        away = worst_difference(answers, originals, subject.limit)
        if away is not None:
            verdict = self._apart(away, answers, originals)
        else:
            verdict = FirstCall(ANSWER, AGREES, proves=not says_little(self.leaves, originals))
        self.seconds["compare"] = time.perf_counter() - start
        if verdict.kept == ANSWER and has_race and self.pair.may_race and has_time():
            verdict = self._raced(verdict)
        return replace(verdict, seconds=self.seconds)

    def _apart(self, away: Difference, got: Any, wanted: Any) -> FirstCall:
        """Of results that are further apart than roundings of well-behaved programs."""
        pair, subject = self.pair, self.pair.subject
        args, kwargs = self._given()
        again = arrays_of(pair.afresh()(*args, **kwargs), subject)
        if worst_difference(again, wanted, subject.limit) is not None:
            return FirstCall(ORIGINAL, UNSTEADY, difference=away)

        def original(leaves: Sequence[Any]) -> Any:
            args, kwargs = self._given(leaves)
            return pair.original(*args, **kwargs)

        call = self._given()
        if is_explained(subject, original, self.leaves, call, got, wanted, subject.limit):
            return FirstCall(ANSWER, AGREES)
        return FirstCall(ORIGINAL, WRONG, pair.reproduce(*call), away)

    def _raced(self, verdict: FirstCall) -> FirstCall:
        start = time.perf_counter()
        sides = (self.pair.answer, self._given), (self.pair.original, self._given)
        result = race(*sides, uses_up=bool(self.pair.donated))
        self.seconds["race"] = time.perf_counter() - start
        if result.is_slower:
            is_copied = any(isinstance(x, np.ndarray) and x.ndim > 1 for x in self.leaves)
            reason = COPIED if is_copied else ""
            return replace(verdict, kept=ORIGINAL, why=SLOWER, reason=reason, race=result)
        return replace(verdict, race=result)


def _out_of_memory(error: Exception) -> str:
    """The message of an error of memory; other errors are raised."""
    text = str(error)
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "Out of memory" in text:
        return "memory ran out: " + (text.splitlines() or ["no more is said"])[0]
    raise error


# ---- what is said --------------------------------------------------------------------------------
def tell(pair: Pair, verdict: FirstCall) -> None:
    """The log, and a warning where something is wrong, once it is settled what serves."""
    if LOG.isEnabledFor(logging.INFO):
        LOG.info("%s", _logged(pair.name, verdict))
    if verdict.why == SLOWER and verdict.reason:
        LOG.warning("`%s`: the original is kept, as it was quicker: %s", pair.name, verdict.reason)
    warning = _warning(pair, verdict)
    if warning is not None:
        warnings.warn(EqsatWarning(warning), stacklevel=_outside())


def _logged(name: str, verdict: FirstCall) -> str:
    times = ", ".join(f"{what} {s:.3f} s" for what, s in verdict.seconds.items())
    by = f", its time over the original's is {verdict.race}" if verdict.race else ""
    chosen = "eqsat's answer" if verdict.kept == ANSWER else "the original"
    return f"`{name}`: {chosen} is kept ({verdict.why}){by}; first call: {times}"


def _warning(pair: Pair, verdict: FirstCall) -> Diagnostic | None:
    name, away = f"`{pair.name}`", verdict.difference
    if verdict.why == UNCHECKED:
        message = f"the answer for {name} is used unchecked: {verdict.reason}"
        help = 'give the process more memory, or say `check="never"`'
        return Diagnostic("E522", message, help=help, severity="warning")
    if away is None or verdict.kept == ANSWER:
        return None
    if verdict.why == UNSTEADY:
        message = (
            f"{name} changes from call to call, so its answer cannot be checked ({away.where})"
        )
        help = "make random state and counters arguments; the function itself serves from now on"
        return Diagnostic("E521", message, help=help, severity="warning")
    message = (
        f"the answer for {name} is not what the function computes: {away.where}: {away.said}. That"
        f" is {away.error:.1e} of the largest element, where rounding explains {away.allowed:.1e};"
        f" {away.share:.1%} of the elements are beyond. The results are the original function's,"
        " which serves from now on"
    )
    return Diagnostic("E520", message, help=verdict.reason, severity="warning")


def _outside() -> int:
    """Frames from the caller of this to the first that is not ours."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("eqsat."):
        depth, frame = depth + 1, frame.f_back
    return depth
