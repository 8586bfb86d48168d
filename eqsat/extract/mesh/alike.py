"""Ops of equal layers, which are cut alike in large programs."""

from __future__ import annotations

from eqsat.model.schedule import Schedule


def alike_layers(schedule: Schedule, rounds: int = 4) -> list[int]:
    """Node → a number that nodes share whose surroundings are the same, as in equal layers.

    Colours are refined by those of operands and readers so many times (Weisfeiler and Leman).
    """
    program = schedule.program
    readers: list[list[int]] = [[] for _ in program.nodes]
    for i, n in enumerate(program.nodes):
        for o in n.operands:
            readers[o].append(i)
    seen: dict[object, int] = {}
    computed = {m for d in schedule.dispatches for m in d.members}
    ends = set(program.results)
    colours = [
        seen.setdefault(
            (n.op, n.types, None if not n.operands else n.attr, i in computed, i in ends), i
        )
        for i, n in enumerate(program.nodes)
    ]
    for _ in range(rounds):
        seen = {}
        colours = [
            seen.setdefault(
                (
                    colours[i],
                    tuple(colours[o] for o in n.operands),
                    tuple(sorted(colours[r] for r in readers[i])),
                ),
                i,
            )
            for i, n in enumerate(program.nodes)
        ]
    return colours
