"""Functions whose first call of each shape is made by the original, too (`beside`).

What the caller has is a plain `functools.partial`, and what stands behind it changes: Python while
something is to be checked, then the jitted function that serves, whose calls are C. A shape that is
new then is seen as JAX traces it. No concrete arguments are at hand there, so the original serves
that call, and the next one is checked.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import MethodType
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend.core import take_current_trace

from eqsat.execute.beside import AGREED, AGREES, ALWAYS, ANSWER, FirstCall, Pair, Trial, tell
from eqsat.execute.calls import JITTED, Callee

CALM = 16  # calls of shapes that are known, after which calls are C
RESETS = 2  # after that Python stays: each time compiled functions are lost
MORE = 3  # further calls that are checked where arguments or results are all one number
Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]


class Unchecked(Exception):
    """Raised in a trace within a trace, of a shape that no call has had yet."""


@dataclass(frozen=True)
class Wanted:
    """check: `first` or `always`. race: keep the original where it is quicker.

    uses_up: calls use arguments up, so that none can be made again.
    """

    check: str
    race: bool
    uses_up: bool = False


@dataclass(frozen=True)
class Before:
    """What other processes have seen of the call with these arguments, and what they are told.

    agreed: whether a first call was checked, so that none is to be; note: that one agreed.
    """

    agreed: Callable[[Args, Kwargs], bool] = lambda _, __: False
    note: Callable[[Args, Kwargs], None] = lambda _, __: None


class Method(functools.partial):
    """A function of a class, which a `partial` is not; its calls cost a tenth of a µs more."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)


class Redirect:
    """A function whose calls go where they are told to; `function` is what the caller has."""

    def __init__(self, like: Any, call: Callable[..., Any]):
        wrapper = Method if _is_method(like) else functools.partial
        self.function: Any = functools.update_wrapper(wrapper(call), like)

    def to(self, call: Callable[..., Any]) -> None:
        """A `partial` takes another function the way it is unpickled, and in no other."""
        self.function.__setstate__((call, (), {}, vars(self.function)))


class Once:
    """A function of one shape: its first call is checked, then one of both sides serves.

    answer: jitted; original: makes the other one. pair: what is known of them. forget: drops what
    the answer holds. proven: is told once a call has shown that the answer is right.
    """

    def __init__(
        self,
        answer: Any,
        original: Callable[[], Any],
        pair: Callable[[Any, Any], Pair],
        wanted: Wanted,
        forget: Callable[[], None],
        proven: Callable[[], None] | None = None,
    ):
        self.proven = proven
        self.answer, self.make, self.pair_of = answer, original, pair
        self.wanted, self.forget = wanted, forget
        self.lock, self.tries = threading.RLock(), 0
        self.checks: list[FirstCall] = []
        self.switch = Redirect(answer, self._call)
        _adorn(self.switch.function, answer, self.checks)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        if is_traced(args, kwargs):
            return self.answer(*args, **kwargs)
        with self.lock:
            if self.switch.function.func != self._call:  # another thread was first
                return self.switch.function(*args, **kwargs)
            pair = self.pair_of(self.answer, self.original)
            result, outcome = Trial(pair, args, kwargs).run(self.wanted.race and not self.checks)
            self.checks.append(outcome)
            self._settle(outcome)
            tell(pair, outcome)
            return result

    @functools.cached_property
    def original(self) -> Any:
        return self.make()

    def _settle(self, outcome: FirstCall) -> None:
        self.tries += 1
        if outcome.kept != ANSWER:
            self.switch.to(self.original)
            _forget_compiled(self.answer)
            self.forget()
        elif self.wanted.check != ALWAYS and (outcome.proves or self.tries > MORE):
            self.switch.to(self.answer)
            _forget_compiled(vars(self).pop("original"))
            if outcome.proves and self.proven is not None:
                self.proven()


class ByShape:
    """A function of any shapes: of each, the first call is checked.

    find: the callee for (args, kwargs), made by a search. key: what a search depends on. sides:
    from the callee that is asked for in a trace the jitted function of it (`answer`). function: the
    original. pair: of a call what is known of both sides. before: what other processes have seen.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        find: Callable[[Args, Kwargs], Callee],
        key: Callable[[Args, Kwargs], Hashable],
        answer: Callable[[Callable[[Args, Kwargs], Callee]], Any],
        jit: Callable[[Callable[..., Any]], Any],
        pair: Callable[[ByShape, Args, Kwargs], Pair],
        wanted: Wanted,
        before: Before = Before(),
    ):
        self.before = before
        self.renewed: list[Hashable] = []  # shapes that have another callee from the next call on
        self.original_function, self.find, self.key, self.pair_of = function, find, key, pair
        self.wanted = wanted
        self.serving: dict[Hashable, Callee] = {}  # what was checked
        self.doubts: dict[Hashable, int] = {}  # checked, but nothing was shown: how often
        self.unsure: set[Hashable] = set()  # traced, but not yet checked
        self.checks: list[FirstCall] = []
        self.trying = threading.local()
        self.lock = threading.RLock()
        self.calm, self.resets, self.is_direct = CALM, 0, False
        self.plain = answer(self._unchecked)  # for traces, where nothing can be checked
        self.answer = answer(self._checked)

        @functools.wraps(function)
        def original(*args: Any, **kwargs: Any) -> Any:
            return self._serve_original(*args, **kwargs)

        self.original = jit(original)
        self.main = self.answer
        self.switch = Redirect(self.plain, self._entry)
        _adorn(self.switch.function, self.plain, self.checks)
        self.switch.function.clear_cache = self._clear

    # ---- what is traced --------------------------------------------------------------------------
    def _unchecked(self, args: Args, kwargs: Kwargs) -> Callee:
        return self.serving.get(self.key(args, kwargs)) or self.find(args, kwargs)

    def _checked(self, args: Args, kwargs: Kwargs) -> Callee:
        key = self.key(args, kwargs)
        if key in self.serving:
            return self.serving[key]
        if self._tries(key):
            return self.find(args, kwargs)
        if self.is_direct:
            return self._unseen(key, args, kwargs)
        if _is_nested():
            raise Unchecked
        callee = self.find(args, kwargs)
        if callee.is_input:
            self.serving[key] = callee
        else:
            self.unsure.add(key)
        return callee

    def _tries(self, key: Hashable) -> bool:
        """Whether this trace is that of a call that is being checked."""
        keys = getattr(self.trying, "keys", None)
        if keys is None or _is_nested():  # a function may call itself
            return False
        keys.add(key)
        return True

    def _serve_original(self, *args: Any, **kwargs: Any) -> Any:
        key = self.key(args, kwargs)
        if key in self.serving or self._tries(key):
            return self.original_function(*args, **kwargs)
        if self.is_direct:
            callee = self._unseen(key, args, kwargs)
            return (
                self.original_function(*args, **kwargs) if callee.is_input else callee(args, kwargs)
            )
        if _is_nested():
            raise Unchecked
        self.unsure.add(key)
        return self.original_function(*args, **kwargs)

    def _unseen(self, key: Hashable, args: Args, kwargs: Kwargs) -> Callee:
        """The callee of a new shape in a call that is C: the original, until it is checked."""
        callee = self.find(args, kwargs)
        if callee.is_input:
            self.serving[key] = callee
            return callee
        self._to(self._reset)
        return callee if _is_nested() else callee.as_original

    # ---- what is called --------------------------------------------------------------------------
    def _call(self, *args: Any, **kwargs: Any) -> Any:
        """Call `_steady`, and count: after some calls of checked shapes they are C."""
        result = self._steady(*args, **kwargs)
        self._count()
        return result

    def _steady(self, *args: Any, **kwargs: Any) -> Any:
        """A call of shapes that may all be known; what is traced notes those that are not."""
        try:
            result = self.main(*args, **kwargs)
        except BaseException as error:
            if isinstance(error, Unchecked):
                return self.plain(*args, **kwargs)
            self._forget_unsure()
            raise
        return self._first(*args, **kwargs) if self.unsure else result

    def _forget_unsure(self) -> None:
        """A first call that failed: what was traced for it would serve the next one unchecked."""
        if self.unsure:
            self.unsure.clear()
            self._clear()

    def _count(self) -> None:
        self.calm -= 1
        if self.calm:
            return
        packs = isinstance(getattr(self.main, "func", None), MethodType)  # its calls are Python
        self.is_direct = self.resets < RESETS and not packs and not self._goes_on
        if self.is_direct:
            self._to(self.main)
        elif self._entry == self._call:
            self._to(self._steady)

    def _reset(self, *args: Any, **kwargs: Any) -> Any:
        """The call after one with a new shape: what was compiled for that one is not to stay."""
        with self.lock:
            if self.is_direct:
                self.is_direct = False
                self.resets += 1
                self._clear()
                self._stand()
        return self.switch.function(*args, **kwargs)

    def _clear(self) -> None:
        for side in (self.answer, self.original, self.plain):
            side.clear_cache()

    def _stand(self) -> None:
        """Choose what stands behind the function while calls are Python."""
        self.calm = CALM
        self._to(self._entry)

    def _to(self, call: Callable[..., Any]) -> None:
        """Calls go there, unless another thread has renewed a shape: it may do so meanwhile."""
        self.switch.to(call)
        if self.renewed:
            self.switch.to(self._renew)

    def renew(self, key: Hashable) -> None:
        """Let the next call be a first one of this shape; for other threads."""
        self.renewed.append(key)
        self.switch.to(self._renew)

    def _renew(self, *args: Any, **kwargs: Any) -> Any:
        with self.lock:
            while self.renewed:
                self.serving.pop(self.renewed.pop(), None)
            self.is_direct = False
            self._clear()
            self._stand()
        return self.switch.function(*args, **kwargs)

    @property
    def _entry(self) -> Callable[..., Any]:
        asks = not self.serving or self.wanted.uses_up or self._goes_on
        return self._first if asks else self._call

    @property
    def _goes_on(self) -> bool:
        """Whether calls of shapes that are known are checked, too."""
        return bool(self.doubts) or self.wanted.check == ALWAYS

    def _wait(self, *args: Any, **kwargs: Any) -> Any:
        """A call while another thread checks, or while the original calls itself."""
        with self.lock:
            return self._entry(*args, **kwargs)

    def _first(self, *args: Any, **kwargs: Any) -> Any:
        """A call that may have to be checked."""
        if is_traced(args, kwargs):
            return self.plain(*args, **kwargs)
        with self.lock:
            key = self.key(args, kwargs)
            if key is None:  # an argument is no array, as JAX says
                return self.plain(*args, **kwargs)
            callee = self.serving.get(key) or self.find(args, kwargs)
            if callee.signature.captured:
                return self.plain(*args, **kwargs)
            if callee.is_input or (key in self.serving and not self._is_open(key)):
                return self._serve(key, callee, args, kwargs)
            is_first = key not in self.serving and self.wanted.check != ALWAYS
            if is_first and self.before.agreed(args, kwargs):
                self.checks.append(FirstCall(ANSWER, AGREED))
                return self._serve(key, callee, args, kwargs)
            return self._tried(key, callee, args, kwargs)

    def _serve(self, key: Hashable, callee: Callee, args: Args, kwargs: Kwargs) -> Any:
        is_new = key not in self.serving
        self.serving[key] = callee
        self.unsure.discard(key)
        result = self.main(*args, **kwargs)
        if is_new:
            self._stand()
        self._count()
        return result

    def _is_open(self, key: Hashable) -> bool:
        return key in self.doubts or self.wanted.check == ALWAYS

    def _tried(self, key: Hashable, callee: Callee, args: Args, kwargs: Kwargs) -> Any:
        self._to(self._wait)
        self.trying.keys = {key}
        try:
            pair = self.pair_of(self, args, kwargs)
            result, outcome = Trial(pair, args, kwargs).run(
                self.wanted.race and key not in self.serving
            )
        except BaseException:
            self._clear()  # what was compiled is not checked
            raise
        finally:
            keys, self.trying.keys = self.trying.keys, None
            self._stand()
        self.checks.append(outcome)
        self._settle(keys, callee, outcome)
        if outcome.why == AGREES and outcome.proves:
            self.before.note(args, kwargs)
        tell(pair, outcome)
        return result

    def _settle(self, keys: set[Hashable], callee: Callee, outcome: FirstCall) -> None:
        server = callee if outcome.kept == ANSWER else callee.as_original
        self.serving.update(dict.fromkeys(keys, server))
        self.unsure -= keys
        for key in keys:
            tries = self.doubts.pop(key, 0) + 1
            if outcome.kept == ANSWER and not outcome.proves and tries <= MORE:
                self.doubts[key] = tries
        serves = any(not c.is_input for c in self.serving.values())
        self.main = self.answer if serves else self.original
        if outcome.kept != ANSWER:
            self.answer.clear_cache()
            self.plain.clear_cache()
            callee.executable.take_weights({})
        if serves and not self._goes_on:
            self.original.clear_cache()  # what it compiled holds what the function closes over
        self._stand()


def _is_method(function: Any) -> bool:
    """Whether a function was defined in a class, or for one."""
    where = str(getattr(function, "__qualname__", "")).rpartition(".")[0]
    try:
        first = next(iter(inspect.signature(function).parameters), "")
    except (TypeError, ValueError):  # some callables have none
        first = ""
    return bool(where and not where.endswith("<locals>")) or first == "self"


def _adorn(function: Any, like: Any, checks: list[FirstCall]) -> None:
    """Attributes of a jitted function, and its checks."""
    for name in (*JITTED, "put", "formats"):
        if hasattr(like, name):
            setattr(function, name, getattr(like, name))
    function.checks = checks


def _forget_compiled(function: Any) -> None:
    """Clear the cache of a jitted function; executors need not make one of `jax.jit`."""
    forget = getattr(function, "clear_cache", None)
    if forget is not None:
        forget()


def is_traced(args: Args, kwargs: Mapping[str, Any]) -> bool:
    """Whether a call is part of a trace: of its arguments, or of all that is computed now."""
    if any(isinstance(x, Tracer) for x in jax.tree_util.tree_leaves((args, kwargs))):
        return True
    return isinstance(jnp.add(0, 0), Tracer)


def _is_nested() -> bool:
    """Whether what JAX traces now is called in another trace."""
    with take_current_trace() as trace:
        return hasattr(getattr(trace, "parent_trace", None), "parent_trace")
