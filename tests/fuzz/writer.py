"""What draws a function line by line: values to read, sizes to cut at, and lines that are valid."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

from fuzz.written import Argument, Line, Types, Written

# around vectors and panels of 8 and 16 lanes, and those of models people write
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20, 24, 31, 32, 33, 36, 40, 48, 49, 64, 65, 100)
SMALL = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20, 33)
MOST = 12_000  # elements of a value
MOST_WORK = 600_000  # multiply-adds of a product
RECENT = 0.6  # how often the newest value that fits is read
TRIES = 40
LONG = 8  # lines after which no step is begun


Infer = Callable[[Written], Types]


class Unfit(Exception):
    """A line that is not valid here, or too large."""


class Writer:
    """The function so far. infer: its types, or an error; sizes: extents that arguments have."""

    def __init__(self, rng: Random, infer: Infer, sizes: Sequence[int] = SIZES):
        self.rng, self.infer, self.sizes = rng, infer, sizes
        self.arguments: list[Argument] = []
        self.lines: list[Line] = []
        self.types: Types = {}

    # ---- reading ---------------------------------------------------------------------------------
    def size(self, most: int = 100) -> int:
        return self.rng.choice([s for s in self.sizes if s <= most])

    def shape(self, name: str) -> tuple[int, ...]:
        return self.types[name].shape

    def rank(self, name: str) -> int:
        return len(self.shape(name))

    def is_float(self, name: str) -> bool:
        return self.types[name].dtype.kind not in "iub"

    def axis(self, name: str) -> int:
        return self.rng.randrange(self.rank(name))

    def pick(self, low: int = 1, high: int = 4, *, floats: bool = True) -> str:
        """A value of a rank from `low` to `high`; a new argument if there is none."""
        fits = [
            n
            for n, t in self.types.items()
            if low <= len(t.shape) <= high and (not floats or self.is_float(n))
        ]
        if not fits:
            rank = self.rng.choice([r for r in (1, 2, 2, 2, 3, 3, 4) if low <= r <= high] or [low])
            return self.argument(*(self.size(33 if rank > 2 else 100) for _ in range(rank)))
        return fits[-1] if self.rng.random() < RECENT else self.rng.choice(fits)

    def like(self, shape: Sequence[int]) -> str:
        """A float value of this shape: one that is there, or a new argument."""
        same = [n for n, t in self.types.items() if t.shape == tuple(shape) and self.is_float(n)]
        if same and self.rng.random() < 0.6:
            return self.rng.choice(same)
        return self.argument(*shape)

    def argument(self, *shape: int, dtype: str = "float32", below: int = 0) -> str:
        if math.prod(shape) > MOST:
            raise Unfit
        is_weight = bool(self.arguments) and dtype == "float32" and self.rng.random() < 0.3
        made = Argument(f"x{len(self.arguments)}", dtype, tuple(shape), is_weight, below)
        self.arguments.append(made)
        self.types[made.name] = made.type
        return made.name

    # ---- writing ---------------------------------------------------------------------------------
    def write(self, text: str, count: int = 1) -> str:
        """One line of one value; the names of several, split by spaces."""
        first = sum(len(n.names) for n in self.lines)
        line = Line(tuple(f"v{first + i}" for i in range(count)), text)
        so_far = Written(tuple(self.arguments), (*self.lines, line), line.names)
        try:
            found = self.infer(so_far)
        except Exception as why:  # whatever JAX or onnx raises for what is not valid
            raise Unfit(str(why)) from why
        if any(not 0 < found[n].size <= MOST for n in line.names):
            raise Unfit
        self.lines.append(line)
        self.types = found
        return " ".join(line.names)

    def within(self, *extents: int) -> None:
        """Unfit if a product over these is too much work."""
        if math.prod(extents) > MOST_WORK:
            raise Unfit

    def step(self, make: Callable[[Writer], object]) -> bool:
        """What a step writes, all of it or nothing."""
        before = list(self.arguments), list(self.lines), dict(self.types)
        try:
            make(self)
        except Unfit:
            self.arguments, self.lines, self.types = before
            return False
        return True

    def written(self) -> Written:
        """Most values that nobody reads are results, and now and then one that is read, too."""
        values = [n for line in self.lines for n in line.names]
        read = {n for line in self.lines for n in line.reads}
        ends = [n for n in values[:-1] if n not in read and self.rng.random() < 0.6]
        inner = [n for n in values if n in read]
        more = self.rng.sample(inner, min(len(inner), self.rng.choice((0, 0, 1, 2))))
        results = [values[-1], *self.rng.sample(ends, min(len(ends), 3)), *more]
        self.rng.shuffle(results)
        return Written(tuple(self.arguments), tuple(self.lines), tuple(results)).pruned()


Steps = Sequence[tuple[Callable[[Writer], object], int]]  # with their weights


def draw(rng: Random, steps: Steps, infer: Infer, small: bool) -> Written:
    """A function of one to six steps and about eight lines, or of up to four of small values.

    small: always of the second kind, else now and then.
    """
    small = small or rng.random() < 0.4  # many of them cost as one of the others
    writer = Writer(rng, infer, SMALL if small else SIZES)
    kinds, weights = zip(*steps, strict=True)
    wanted = rng.randint(1, 4 if small else 6)
    for _ in range(TRIES):
        wanted -= writer.step(rng.choices(kinds, weights)[0])
        if not wanted or len(writer.lines) >= LONG:
            break
    return writer.written()
