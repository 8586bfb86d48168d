"""What plans take for granted of the cores of any machine; the rest is in `model.plan.Machine`."""

from __future__ import annotations

PAGE_BYTES = 4096  # of memory: a longer step ends what a prefetcher follows, and needs the TLB
CHAINS = 8  # multiply-adds that have to be independent: latency 4, two units
CHAIN = 384  # longest sum in registers: its error is then like that of blocked libraries
ITEMS_PER_CORE = 4  # work items at least, so that others take those of a core that is late
LINE = 16  # f32 elements of a cache line
LEAST_ITEM = 1 << 14  # vectors of multiply-adds that are worth a work item: some microseconds
LEAST_APART = 1024  # bytes between rows that are worth streaming: not those of a panel
OWN_CACHE = 1 << 20  # bytes that a core's own caches hold, where nothing has to be asked for
ASKED_BYTES = 12 << 10  # of streams, between what is read and what is asked for
NEAR = 4  # elements apart at most that are shuffled out of whole vectors, not read one by one
LEAST_CORES = 2  # that plans think of, also where a target prices the work of one
MANY_ITEMS = 13  # from here on an odd number does not matter: one of two cores does 54 %


def even_blocks(parts: int, size: int, each: int = 1) -> int:
    """Parts of a block, at most `size`, so that two cores have equally many items.

    A block is `each` items. The size stays where blocks that are a little smaller do not come out
    even, and where there is one item.
    """
    blocks = -(-parts // size)
    for wanted in range(blocks, blocks + 3):
        cut = size if wanted == blocks else -(-parts // wanted)
        items = each * -(-parts // cut)
        if items == 1 or items % 2 == 0 or items >= MANY_ITEMS:
            return cut
    return size
