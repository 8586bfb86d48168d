"""What every answer owes and what buffers are, told of a pool for the columns of its candidates."""

from __future__ import annotations

import numpy as np

from eqsat.extract.candidates.loading import kept_rows, originals_held
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.choice.columns import BlockImages, ChoiceFacts


def choice_facts(pool: Pool, linear: tuple[str, ...]) -> ChoiceFacts:
    """What every answer owes, whatever the candidates."""
    space = pool.space
    made = [r for r in space.roots if r not in pool.held]
    held = [r for r in space.roots if r in pool.resident]
    originals = originals_held(pool)
    always = (*held, *made, *(b for b in originals if b not in held))
    nbytes = np.array(space.sizes, dtype=np.int64)
    nbytes[[*originals, *held]] = 0
    source = np.zeros(len(space.buffer), dtype=bool)
    source[[v for v in set(space.value) if space.is_source(v)]] = True
    source[[space.value[b] for b in pool.held | pool.resident]] = True
    return ChoiceFacts(
        linear,
        nbytes,
        space.input_bytes + sum(space.nbytes(b) * space.times(b) for b in always),
        roots=np.array(made, dtype=np.int64),
        needed=np.array(pool.needed, dtype=np.int64),
        served=np.array(sorted(frozenset().union(*pool.served.values())), dtype=np.int64),
        value_of=np.array(space.value, dtype=np.int64),
        is_source=source,
        times=np.array([space.times(c) for c in range(len(space.buffer))], dtype=np.int64),
        kept=kept_rows(pool),
        blocks=_blocks(pool),
    )


def _blocks(pool: Pool) -> BlockImages | None:
    """Where buffers and values are among equal blocks; None: the e-graph stands for itself."""
    rolled = pool.space.rolled
    if rolled is None:
        return None
    later = pool.space.later
    numbers = [later.number(n) for n in range(len(later.node) + len(later.value))]
    return BlockImages(
        level=np.array(rolled.level, dtype=np.int64),
        buffer=np.array(later.buffer, dtype=np.int64),
        value=np.array(later.value, dtype=np.int64),
        number=np.array(numbers, dtype=np.int64),
        count=rolled.count,
    )
