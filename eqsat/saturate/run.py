"""Program × RuleSet → EGraph: equal blocks searched once, rules that match too often left out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from eqsat.model.egraph import BlockReuse, EGraph
from eqsat.model.equalities import Equalities
from eqsat.model.limits import Limits, check_room
from eqsat.model.program import Program
from eqsat.model.rules import RuleSet
from eqsat.model.target import Target
from eqsat.ops.programs.facts import FACTS, facts_of
from eqsat.saturate.blocks import Blocks, Short, find_blocks, first_of_equals, shorten
from eqsat.saturate.encode import too_wide
from eqsat.saturate.joins import too_many
from eqsat.saturate.rows import is_moot, variables_asked
from eqsat.saturate.samebytes import with_same_bytes
from eqsat.saturate.search import Clock, Saturation, target_facts
from eqsat.saturate.snapshot import snapshot, tables
from eqsat.saturate.unroll import NotPeriodic, TooLarge, unroll

BORDERS = (1, 2)  # blocks searched at each end of the program, next to two in the middle


class NotComplete(NotPeriodic):
    """The search of few blocks would not end with all that the rules can reach."""


def saturate(
    program: Program,
    rules: RuleSet,
    target: Target,
    limits: Limits | None = None,
    reuse_blocks: bool = True,
    deadline: float | None = None,
    equalities: Sequence[Equalities] = (),
) -> EGraph:
    """The e-graph of everything the rules can reach from `program` under the target's vocabulary.

    A rule that matches the program itself too often, or ops with too many operands, is left out
    (`EGraph.left_out`, stop `matches`). Of many equal blocks four or six are searched, if that
    gives the same e-graph (`EGraph.blocks` says so); if there is a clock, half of the time is kept
    for the direct search.
    equalities: what else equals values of the program.
    deadline: a `time.monotonic()` at which to stop (`wall`), between steps; the e-graph holds the
    program at least. Raises EqsatError: E110 if a rule builds an ill-typed term, E408 if the
    program has more nodes than `limits` allow.
    """
    limits = (limits or Limits()).resolved(program.op_count)
    check_room(limits, len(set(first_of_equals(program))), program.name)
    begin = time.monotonic()
    clock = Clock.of(limits.seconds, deadline)
    assert limits.matches is not None
    facts = target_facts(target)
    rules = replace(rules, rules=tuple(r for r in rules.rules if not is_moot(r, facts)))
    asked = [name for name in FACTS if any(variables_asked(r, name) for r in rules.rules)]
    known_facts = facts_of(program, asked)
    none_hold = {name for name, held in known_facts.holds.items() if not any(held)}
    idle = {r.name for r in rules.rules if any(variables_asked(r, name) for name in none_hold)}
    rules = replace(rules, rules=tuple(r for r in rules.rules if r.name not in idle))
    wide = too_many(rules.rules, program, program.uses, limits.matches)
    wide |= too_wide(rules.rules, program)
    search = partial(Saturation, rules=rules, target=target, limits=limits, left_out=wide)
    why, blocks = "", None
    if reuse_blocks and not clock.over(len(program.nodes)):
        blocks = find_blocks(program, known_facts)
    for border in BORDERS if blocks is not None else ():
        assert blocks is not None
        short = shorten(program, blocks, border, known_facts)
        if short is None:
            break
        try:
            short_equalities = short.knows(equalities)
            run = search(
                short.program, short.facts, clock=clock.halved(), equalities=short_equalities
            )
            graph = _with_blocks(program, blocks, short, run)
        except (TooLarge, NotComplete) as e:
            why = str(e)
            break
        except NotPeriodic as e:
            why = str(e)
            continue
        return _finished(graph, target, begin)
    graph = search(program, known_facts, clock=clock, equalities=equalities).run()
    whole = None if blocks is None else BlockReuse(blocks.count, blocks.count, why)
    return _finished(replace(graph, blocks=whole), target, begin)


def _finished(graph: EGraph, target: Target, begin: float) -> EGraph:
    """With its seconds; for kernels, which read all layouts by strides, each of them but once."""
    graph = with_same_bytes(graph) if target.is_planned else graph
    return replace(graph, seconds=time.monotonic() - begin)


def _with_blocks(program: Program, blocks: Blocks, short: Short, run: Saturation) -> EGraph:
    """Search few of the blocks and copy the rest; NotPeriodic if that would not be the same.

    A limit on nodes counts all copies, one on matches the work that is done.
    """
    if any(t.marked for t in run.texts):  # what it does depends on when it looks
        raise NotComplete("a rule asks for `is_unpacked`")
    rounds, stop = run.search()
    if stop != run.ended:
        raise NotComplete(f"the limit of {stop} was reached")
    if run.is_cut():
        raise NotComplete("a rule reached its `max_matches`")
    full = unroll(program, blocks, short, tables(run), run.interner, run.most_nodes)
    graph = snapshot(run, program, full, rounds, stop, 0.0)
    return replace(graph, blocks=BlockReuse(blocks.count, short.block_count, ""))
