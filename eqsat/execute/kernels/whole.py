"""A schedule of kernels with large temporaries → one call of XLA's that runs all of them.

XLA asks for the memory of temporaries in every call. The system gives what is large anew each time,
and its first touch, page by page, takes longer than many a kernel. In one call they are scratch,
which stays allocated, in huge pages.
"""

from __future__ import annotations

import hashlib

from eqsat.execute.kernels.loopcode import ONCE, Loop
from eqsat.execute.kernels.loops import KernelBody, LoopCall, stacked, temporaries, why_not_loaded
from eqsat.execute.kernels.runtime import KernelCall
from eqsat.model.nest import NoNest
from eqsat.model.plan import Machine
from eqsat.model.schedule import Schedule

LEAST_BYTES = 2**18  # of temporaries; malloc gives from 128 KiB on back to the system
MOST_BYTES = 256 * 2**20  # that a process keeps


def whole_call(schedule: Schedule, machine: Machine) -> KernelCall:
    """The call of a whole schedule; NoNest with the reason if it has none that is worth it."""
    if not LEAST_BYTES <= schedule.arena_bound <= MOST_BYTES:
        raise NoNest("its temporaries are not of a size that is worth one call")
    found = _planned(schedule, machine)
    if why := why_not_loaded(found, machine):
        raise NoNest(why)
    return KernelCall(found.name, found.reads, found.writes)


def _planned(schedule: Schedule, machine: Machine) -> LoopCall:
    """The call and what it calls; NoNest if a dispatch is no kernel."""
    body = KernelBody(schedule, machine, schedule.kept)
    if body.changed:
        raise NoNest("it writes over an argument")
    nodes, results = schedule.program.nodes, schedule.program.results
    if any(0 in nodes[i].types[0].shape for i in (*body.inputs, *results)):
        raise NoNest("one of its buffers is empty")
    loop = _laid_out(body)
    text = f"{loop!r} {sorted(body.kernels)}"
    name = f"eqsat_whole_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    return LoopCall(name, loop, body.inputs, results, body.kernels, tuple(body.loops))


def _laid_out(body: KernelBody) -> Loop:
    """Where everything is: constants, temporaries, then the kernels' own scratch."""
    starts, end = stacked([body.nbytes(f) for f in body.fills], 0)
    own = {w for w in body.written if w not in body.results}
    offsets, top = temporaries(body, own, end)
    made = body.body(offsets, dict(zip(body.fills, starts, strict=True)))
    scratch = top + body.scratch()
    return Loop(ONCE, len(body.inputs), 0, 1, False, (), (made,), (), top, scratch)
