"""Prices of usage per step: one set makes the bound high, another one makes choices that fit.

A price grows by a factor where more than the limit is used, and shrinks where less is: an entropic
ascent, which stays calm with many thousand steps. What "is used" differs: for the bound it is the
slope of the message passing's bound, for choices it is what the decoded choice uses.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from eqsat.extract.shard.descent import expected_use, price_usages, used
from eqsat.extract.shard.messages import exact_bound, message_sweep, slopes
from eqsat.extract.shard.network import Network

FIRST_SWEEPS, SWEEPS = 30, 4  # before prices change; between two changes
FIRST_PRICES = 0.05  # of the bound: what the whole limit costs in the beginning
LOWEST_PRICE = 1e-5  # of the highest: a price of zero could not grow
INERTIA = 0.7  # of the old direction
PRICE_BITS = 40  # of the fractions of prices in the proof of the bound
COST_BITS = 60  # of integers in it, sums included


@dataclass
class Ascent:
    """Messages and prices that follow each other; `best` is a bound and what it was found with."""

    net: Network
    to_first: np.ndarray = field(init=False)
    to_second: np.ndarray = field(init=False)
    beliefs: np.ndarray = field(init=False)
    choice: np.ndarray = field(init=False)
    prices: np.ndarray = field(init=False)
    direction: np.ndarray | None = None
    best: tuple[float, np.ndarray, np.ndarray] | None = None

    def __post_init__(self) -> None:
        graph = self.net.graph
        self.floats: tuple[np.ndarray, ...] = (
            *graph[:4], graph[4].astype(float), graph[5].astype(float), *graph[6:],
        )  # fmt: skip
        self.costs = self.net.costs.astype(float)
        self.theta = self.costs.copy()
        self.to_first = np.zeros(int(graph[9][-1]))
        self.to_second = np.zeros(int(graph[10][-1]))
        self.beliefs = np.zeros(len(self.costs))
        self.choice = np.zeros(len(graph[0]) - 1, np.int64)
        self.use = np.zeros(len(self.net.base))
        bound = self._sweeps(FIRST_SWEEPS, decode=False)
        steps = max(len(self.use), 1)
        price = FIRST_PRICES * max(abs(bound), 1.0) / max(self.net.limit, 1) / steps
        self.prices = np.full(len(self.use), price)
        self._keep(bound, np.zeros(len(self.use)))

    def _keep(self, bound: float, prices: np.ndarray) -> None:
        if self.best is None or bound > self.best[0]:
            self.best = (bound, prices.copy(), self.to_first.copy())

    def _sweep(self, forward: bool, decode: bool) -> float:
        state: tuple[Any, ...] = (self.to_first, self.to_second, self.beliefs, self.choice)
        return message_sweep(self.theta, self.floats, *state, forward, decode)

    def _sweeps(self, count: int, decode: bool) -> float:
        """An even number of sweeps, the last one forward; its bound."""
        for q in range(count - 1):
            self._sweep(q % 2 == 1, False)
        return self._sweep(True, decode)

    def raise_bound(self, rate: float) -> float:
        """One change of the prices towards a higher bound; the bound that was found before it."""
        price_usages(self.costs, self.net.graph, self.net.pieces, self.prices, self.theta)
        found = self._sweeps(SWEEPS, decode=False)
        found -= float(self.prices @ (self.net.limit - self.net.base))
        self._keep(found, self.prices)
        weights = slopes(self.floats, self.to_first, self.beliefs)
        expected_use(self.net.base, self.net.graph, self.net.pieces, weights, self.use)
        self._follow(rate, self.net.limit)
        return found

    def fit(self, rate: float, limit: float) -> None:
        """One change of the prices towards choices within this limit; `choice` is of before it."""
        price_usages(self.costs, self.net.graph, self.net.pieces, self.prices, self.theta)
        self._sweeps(SWEEPS, decode=True)
        taken = np.zeros(len(self.use), np.int64)
        used(self.net.base, self.net.pieces, self.choice, taken)
        self.use[:] = taken
        self._follow(rate, limit)

    def _follow(self, rate: float, limit: float) -> None:
        if not len(self.use):
            return
        slope = self.use / max(limit, 1) - 1
        old = slope if self.direction is None else self.direction
        self.direction = INERTIA * old + (1 - INERTIA) * slope
        self.prices *= np.exp(rate * np.clip(self.direction, -0.5, 1.0))
        np.maximum(self.prices, LOWEST_PRICE * self.prices.max(), out=self.prices)


def climb(
    ascent: Ascent,
    rates: tuple[float, float],
    seconds: float,
    turns: int,
    more: Callable[[], bool],
) -> None:
    """Raise the bound for so long or so often, with rates from the first to the last."""
    start = time.monotonic()
    for _ in range(turns):
        gone = (time.monotonic() - start) / max(seconds, 1e-9)
        if gone >= 1 or not more():
            return
        ascent.raise_bound(rates[0] * (rates[1] / rates[0]) ** gone)


def proven(net: Network, prices: np.ndarray, to_first: np.ndarray) -> int:
    """A bound of the cost of every choice within the limit, in integers only.

    Prices become fractions, what they make of usages is rounded down, messages are rounded; none of
    this makes the bound wrong: sum of (cost + price * usage) - price * limit is no more than the
    cost of a choice within the limit.
    """
    exact = [int(p * 2**PRICE_BITS) for p in prices.tolist()]
    total = [0]
    for p in exact:
        total.append(total[-1] + p)
    spans = int(np.abs(net.costs).sum()) + int(np.abs(net.graph[4]).sum()) + 1
    start, lower, upper, at, usages = (x.tolist() for x in net.pieces)
    own = [(total[b] - total[a]) for a, b in zip(lower, upper, strict=True)]
    most = sum(
        w * max(usages[at[p] : at[p + 1]], default=0) >> PRICE_BITS for p, w in enumerate(own)
    )
    bits = COST_BITS - (spans + most).bit_length() - 1
    if bits < 0:
        return _floor(net)
    scale = 2 ** min(bits, PRICE_BITS)
    theta = (net.costs.astype(object) * scale).tolist()
    offsets = net.offsets.tolist()
    for i, o in enumerate(offsets[:-1]):
        for p in range(start[i], start[i + 1]):
            price = own[p] * scale
            if price:
                for s in range(offsets[i + 1] - o):
                    theta[o + s] += price * usages[at[p] + s] >> PRICE_BITS
    whole = np.clip(np.rint(to_first * scale), -(2.0**COST_BITS), 2.0**COST_BITS).astype(np.int64)
    below, fits = exact_bound(np.array(theta, np.int64), net.graph, scale, whole)
    if not fits:
        return _floor(net)
    free = sum(p * (net.limit - b) for p, b in zip(exact, net.base.tolist(), strict=True))
    found = Fraction(int(below), scale) - Fraction(free, 2**PRICE_BITS)
    return max(-(-found.numerator // found.denominator), _floor(net))


def _floor(net: Network) -> int:
    """Every node and edge at its least."""
    own = np.minimum.reduceat(net.costs, net.offsets[:-1]).sum() if len(net.costs) else 0
    at = net.graph[3]
    pairs = np.minimum.reduceat(net.graph[4], at[:-1]).sum() if len(at) > 1 else 0
    return int(own) + int(pairs)
