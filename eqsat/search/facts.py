"""What is known of a program besides the rules: equalities of loops, like parts and weights."""

from __future__ import annotations

from eqsat.model.equalities import Equalities
from eqsat.model.program import Program
from eqsat.model.rules import RuleSet


def unstated_equalities(
    program: Program, rules: RuleSet, loops: tuple[Equalities, ...]
) -> tuple[Equalities, ...]:
    """Equalities of a program that no rule states: of loops, of parts that are alike, of weights.

    Those of weights are stated only where no blocks repeat, or none of them needs another one, and
    all blocks are then searched: otherwise the equalities of one block would be copied to the
    others, although several may read one weight.
    """
    from eqsat.ops.programs.likeparts import like_parts
    from eqsat.ops.programs.sharedproducts import shared_weights, weights_of_one
    from eqsat.saturate.blocks import find_blocks

    if program.symbols:
        return loops

    def first() -> int:
        return len(program.nodes) + sum(len(facts.nodes) for facts in known)

    known = list(loops)
    alike = like_parts(program, first(), rules.reorders_sums)
    known += [] if alike is None else [alike]
    many, shared = weights_of_one(program, first()), shared_weights(program, first())
    blocks = find_blocks(program) if many is not None or shared is not None else None
    if blocks is not None:
        many = weights_of_one(program, first(), blocks.place)
    known += [] if many is None else [many]
    if shared is not None and many is not None:
        shared = shared_weights(program, first())  # numbered on from these
    if shared is not None and (blocks is None or not blocks.carried):
        known.append(shared)
    return tuple(known)
