"""Padding: how a buffer lies in a memory that is made of rows of lanes, and the bytes it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from eqsat.model.tensor import DTYPES, cdiv

WORD_BITS = 32  # of a lane: narrower elements of neighbouring rows share one


@dataclass(frozen=True)
class Padding:
    """The last two dims of a buffer are padded to rows and lanes.

    rows: more rows are a multiple of it, fewer a power of two, of narrow types at least as many
    as share a word (2 of bf16, 4 of i8); a vector lies in rows of lanes. granule_bytes: what
    memory is given out by. The figures of a TPU are 8 rows, 128 lanes and 512 B: XLA states them
    in its layouts, such as `T(8,128)(2,1)`. narrowed: type and precision of contractions, and the
    type in which a temporary is kept that nothing else reads (`f32/default`, `bf16`).
    """

    rows: int
    lanes: int
    granule_bytes: int = 1
    narrowed: tuple[tuple[str, str], ...] = ()

    def shape(self, shape: Sequence[int], dtype: str) -> tuple[int, ...]:
        """The extents that a tensor takes, with its dims in this order.

        >>> Padding(8, 128).shape((100, 100), "f32"), Padding(8, 128).shape((1, 100), "bf16")
        ((104, 128), (2, 128))
        """
        if len(shape) < 2:
            return self._vector(shape, dtype)
        *outer, rows, lanes = shape
        return (*outer, self._rows(rows, dtype), cdiv(lanes, self.lanes) * self.lanes)

    def to_text(self) -> str:
        """The rule of padding, on one line."""
        padded = f"padded to {self.rows} rows of {self.lanes} lanes, {self.granule_bytes} bytes"
        return padded + "".join(f", {read} kept as {stored}" for read, stored in self.narrowed)

    def _rows(self, rows: int, dtype: str) -> int:
        if rows >= self.rows:
            return cdiv(rows, self.rows) * self.rows
        return max(min(self.rows, _shared(dtype)), _power(rows))

    def _vector(self, shape: Sequence[int], dtype: str) -> tuple[int, ...]:
        rows = min(self.rows, max(_shared(dtype), _power(cdiv(math.prod(shape), self.lanes))))
        unit = rows * self.lanes
        return (cdiv(max(1, math.prod(shape)), unit) * unit,)

    def nbytes(self, shape: Sequence[int], dtype: str) -> int:
        """Bytes of a tensor whose dims lie in this order.

        >>> Padding(8, 128).nbytes((128, 128), "f32"), Padding(8, 128).nbytes((100,), "i8")
        (65536, 512)
        """
        return cdiv(math.prod(self.shape(shape, dtype)) * DTYPES[dtype][0], 8)

    def buffer_bytes(self, shape: Sequence[int], dtype: str) -> int:
        """Bytes of a buffer whose order of dims is the compiler's choice: the fewest there are.

        >>> Padding(8, 128, 512).buffer_bytes((8, 1), "f32")
        512
        """
        return _least_bytes(self, tuple(shape), dtype)


def _shared(dtype: str) -> int:
    """Rows of an element type that share a word."""
    return max(1, WORD_BITS // DTYPES[dtype][0])


def _power(extent: int) -> int:
    """The power of two that is not below."""
    return 1 << max(0, extent - 1).bit_length()


@lru_cache(maxsize=100_000)
def _least_bytes(padding: Padding, shape: tuple[int, ...], dtype: str) -> int:
    if 0 in shape:
        return 0
    granule = padding.granule_bytes
    choices = [padding.nbytes(shape, dtype)]
    dims = range(len(shape))
    for row in dims:
        for lane in dims:
            if row != lane:
                outer = [s for d, s in enumerate(shape) if d not in (row, lane)]
                choices.append(padding.nbytes((*outer, shape[row], shape[lane]), dtype))
    return cdiv(min(choices), granule) * granule
