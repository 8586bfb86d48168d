"""Peak memory in every order, in the model: what is live when an item is first made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eqsat.extract.solve.anyorder import PAIRS, AnyOrder
from eqsat.extract.solve.constraints import any_chosen
from eqsat.extract.solve.live import claims
from eqsat.extract.solve.watch import FirstMaking, HeldItem
from eqsat.model.bitsets import bits
from eqsat.model.deadline import tick

if TYPE_CHECKING:
    from eqsat.extract.solve.cpsat import ChoiceModel

TRIPLES = 20_000  # of them that are kept from running in a circle


class AnyOrderRows:
    """`room` is at least what is live at the first dispatch of each item.

    Where necessity does not tell which of two items comes first, a literal may.
    """

    def __init__(self, model: ChoiceModel, problem: AnyOrder, unit: int, room: Any):
        self.model, self.problem, self.unit, self.room = model, problem, unit, room
        self.own = [problem.own_bytes(i) // unit for i in range(len(problem.options))]
        self.first: dict[tuple[int, int], Any] = {}  # (a, b): a is computed before b, or with it
        self._again: dict[tuple[int, ...], Any] = {}
        self._read: dict[tuple[int, ...], Any] = {}

    def add(self, pairs: bool) -> None:
        if pairs:
            self._orders()
        watched: set[int] = set()
        for n, w in enumerate(self.problem.watches):
            self._watch(n, w)
            watched.update(w.options if w.is_once else ())
        by_write: dict[int, list[int]] = {}
        for i, o in enumerate(self.problem.options):
            if i not in watched:
                by_write.setdefault(o.writes[0], []).append(i)
        for options in by_write.values():  # one of them at most
            self._at_most([(self.own[i], self.model.x[i]) for i in options])

    def _at_most(self, terms: list[tuple[int, Any]]) -> None:
        self.model.model.add(sum(s * v for s, v in terms) <= self.room)

    # ---- which of two items comes first -----------------------------------------------------
    def _orders(self) -> None:
        """Literals for pairs in either order, and that they make an order with what is known."""
        watches, cp = self.problem.watches, self.model.model
        free = self.problem.unordered
        if len(free) > PAIRS:
            return
        self.first = {pair: cp.new_bool_var("") for pair in free}
        for (a, b), literal in self.first.items():
            tick()
            if a < b:
                cp.add_bool_or([literal, self.first[b, a]])
            for u in bits(watches[a].before):
                if (u, b) in self.first:
                    cp.add_implication(literal, self.first[u, b])
                if (b, u) in self.first and (b, a) in self.first:
                    cp.add_implication(self.first[b, u], self.first[b, a])
        triples = 0
        for (a, b), literal in self.first.items():
            tick()
            for c in range(len(watches)):
                if (b, c) in self.first and (a, c) in self.first and triples < TRIPLES:
                    triples += 1
                    cp.add_bool_or(
                        [literal.negated(), self.first[b, c].negated(), self.first[a, c]]
                    )

    # ---- one item ---------------------------------------------------------------------------
    def _watch(self, number: int, watch: FirstMaking) -> None:
        first = {i: self.model.x[i] for i in watch.options}
        if not watch.is_once and len(first) > 1:
            first = {i: self.model.model.new_bool_var("") for i in watch.options}
            for i, v in first.items():
                self.model.model.add_implication(v, self.model.x[i])
            self.model.model.add_exactly_one(first.values())
        terms = [(self.own[i], v) for i, v in first.items()]
        for h in watch.held:
            live = self._live(number, watch, h, first)
            if live is not None:
                terms.append((h.nbytes // self.unit, live))
        self._at_most(terms)

    def _live(self, number: int, watch: FirstMaking, held: HeldItem, first: dict[int, Any]) -> Any:
        """1 if the value is live: there before, read later, not touched here nor computed again.

        None if nothing says so.
        """
        tick()
        excuses = [first[i] for i in held.touching]
        excuses += [self._computed_again(held.makers)] if len(held.makers) > 1 else []
        if not watch.is_after(held.item):
            if (held.item, number) not in self.first:
                return None
            excuses.append(self.first[held.item, number].negated())
        reasons = self._reasons(number, held)
        if not excuses and held.always:
            return 1
        if not reasons:
            return None
        live = self.model.model.new_bool_var("")
        for unless in reasons:
            self.model.model.add_bool_or([live, *excuses, *unless])
        return live

    def _reasons(self, number: int, held: HeldItem) -> list[list[Any]]:
        """Each: the value is read after the watched one unless one of these is true."""
        if held.always:
            return [[]]
        found = [[self.first[z, number]] for z in held.later if (z, number) in self.first]
        return found + ([[self._is_read(held.readers).negated()]] if held.readers else [])

    def _computed_again(self, makers: tuple[int, ...]) -> Any:
        if makers not in self._again:
            again = self.model.model.new_bool_var("")
            self.model.model.add(sum(self.model.x[i] for i in makers) >= 2 * again)
            self._again[makers] = again
        return self._again[makers]

    def _is_read(self, readers: tuple[int, ...]) -> Any:
        if readers not in self._read:
            cliques = claims(self.problem, readers, readers)
            self._read[readers] = any_chosen(self.model, cliques)
        return self._read[readers]
