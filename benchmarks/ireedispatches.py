"""IREE's dispatches of the shipped programs beside what `iree-like` permits; one JSON object.

    python benchmarks/run.py iree [--only PROGRAM …] [--level O2] [--seconds S] [--page]

Each program is exported with its weights as arguments and given to `iree-compile`, which prints its
dispatches where they are formed, before it optimizes each. A row has IREE's number of dispatches;
`illegal`: those that the checker refuses on `iree-like`, with the reasons; `apart`: pairs that
`iree-like` would permit as one, each with the reason of IREE's source to keep them apart; `least`
and `fastest`: dispatches of eqsat's answers, the least ones with their bound; `inside`: values that
IREE has in memory and the fastest answer computes inside of a dispatch. Ok if all dispatches are
legal but those of `EXCEPTIONS`, and all pairs have a reason. `--page` prints the table of the docs.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gates import say

import eqsat
from eqsat.api.judge import foreign_cut, found_in
from eqsat.execute.compilers.ask import iree_flags, run, tool
from eqsat.export.write import export, write_files
from eqsat.extract.selected import graph_of_program, groups_of_cut, priced_selection
from eqsat.frontends.mlir.dispatches import read_flow
from eqsat.frontends.source import Source
from eqsat.model.compiled import CutProgram
from eqsat.model.leaves import Leaf
from eqsat.model.ops import SAME_BYTES
from eqsat.model.program import Builder
from eqsat.model.schedule import Dispatch, Schedule
from eqsat.model.target import Target
from eqsat.ops.contractions.roles import kind
from eqsat.ops.generics.access import widens
from eqsat.report.finished import finished_stages
from eqsat.report.names import Names
from eqsat.schedule import build, faults
from eqsat.schedule.fused import OneDispatch

LIKE, LEVEL, LIMIT = "iree-like", "O2", 300.0
RULES = ("default", "layout/regroup")  # IREE moves reshapes out of the way, too
FORMED = "iree-dispatch-creation-clone-producers-into-dispatch-regions"  # the pass behind which
PROGRAMS = (
    "transposed_pack", "three_readers", "two_packs", "residual", "folded_batch", "padded_chain",
    "permuted_consumer", "tied_table", "request", "lookup.py:lookup", "mlp.py:mlp_784",
    "encoder.py:encoder", "gates.py:gates", "train.py:step", "trainconv.py:sgd",
    "conv_qdq_residual.py:conv_qdq_residual", "quantised.py:quantised_mlp",
    "quantised.py:quantised_bottleneck", "bottlenecks.py:bottlenecks", "denoise.py:denoise",
    "sites.py:gpt2_attention", "sites.py:gpt2_layer", "sites.py:swin_2", "llama.py:llama",
    "stablelm.py:stablelm", "stablecode.py:stable_code_block", "sdxl.py:residual",
    "sdxl.py:transformer", "unet.py:unet", "minilm.py:minilm",
)  # fmt: skip
MERGED = "IREE had merged two ops to one of two results, which a reduction inside reads"
ROWS = "reductions of rows that differ in length: IREE compares the number of loops, not their ends"
EXCEPTIONS = {("trainconv.py:sgd", 5): MERGED, ("minilm.py:minilm", 69): ROWS}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", metavar="PROGRAM", default=PROGRAMS)
    parser.add_argument("--level", default=LEVEL, help="of IREE's optimizations")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each search")
    parser.add_argument("--page", action="store_true", help="the table on stderr, too")


def measured(o: argparse.Namespace) -> dict[str, Any]:
    rows: dict[str, dict[str, Any]] = {}
    for name in o.only:
        rows[name] = row(name, o.level, o.seconds)
        say(f"{name} {rows[name]}")
    if o.page:
        say(page(rows))
    return {
        "ok": all(map(is_explained, rows.values())),
        "dispatches": sum(r["iree"] for r in rows.values()),
        "illegal": sum(len(r["illegal"]) for r in rows.values()),
        "apart": Counter(why for r in rows.values() for why in r["apart"].values()),
        "programs": rows,
    }


def is_explained(row: dict[str, Any]) -> bool:
    """Whether each dispatch is legal or an exception, and each pair has a reason."""
    return all(i["exception"] for i in row["illegal"].values()) and all(row["apart"].values())


# ---- one program ---------------------------------------------------------------------------------
def row(name: str, level: str = LEVEL, seconds: float = 30.0) -> dict[str, Any]:
    """What one program shows; without searches where `seconds` is 0."""
    source = as_arguments(eqsat.read(name))
    cut = Cut(dispatches_of(source, level), eqsat.target(LIKE))
    found: dict[str, Any] = {
        "iree": len(cut.schedule.dispatches),
        "illegal": {
            i: {"says": says, "exception": EXCEPTIONS.get((name, i), "") if level == LEVEL else ""}
            for i, says in cut.illegal().items()
        },
        "apart": {f"{a}, {b}": why for a, b, why in cut.apart()},
    }
    if not seconds:
        return found
    least = searched(source, ("dispatches", "time"), seconds)
    fastest = searched(source, ("time",), seconds)
    goal = finished_stages(least)[1].goal("dispatches")
    return found | {
        "least": goal.value,
        "bound": goal.bound,
        "fastest": len(fastest.need_schedule().dispatches),
        "inside": list(inside(fastest, cut.program)),
    }


def as_arguments(source: Source) -> Source:
    """With every weight an argument, so that neither side computes ahead of the call."""
    program = source.program
    b, new, count = Builder(program.name), dict[int, int](), len(program.inputs)
    for i, n in enumerate(program.nodes):
        if n.op == "weight":
            leaf = program.leaf(i)
            new[i] = b.append("input", (), Leaf(leaf.name, leaf.type, count))
            count += 1
        else:
            new[i] = b.move(n, tuple(new[o] for o in n.operands))
    results = [new[r] for r in program.results]
    return replace(source, program=b.build(results, program.symbols), weights={}, traced=None)


def dispatches_of(source: Source, level: str = LEVEL, machine: str = "x86-64-v4") -> CutProgram:
    """How IREE's compiler for CPUs cuts a program."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "program.mlir"
        write_files(export(source.program, "mlir", {}, source.opaque, weights="arguments"), text)
        command = [
            tool(), text, *iree_flags(machine), f"--iree-opt-level={level}", "-o", "/dev/null",
            "--compile-to=dispatch-creation", f"--mlir-print-ir-after={FORMED}",
        ]  # fmt: skip
        code, _, printed = run(command, "iree-compile", LIMIT, {}, Path(folder))
    if code:
        raise RuntimeError(printed[:2000])
    return read_flow(printed, f"{source.program.name}.mlir")


def searched(source: Source, goals: Sequence[str], seconds: float) -> eqsat.Run:
    return eqsat.optimize(
        source, rules=RULES, target=LIKE, goals=goals, time_limit=seconds, cache=False
    )


def inside(run: eqsat.Run, cut: CutProgram) -> Iterator[str]:
    """Values that IREE writes for others, and a run computes and does not write in any layout."""
    egraph, selection, _ = finished_stages(run)
    foreign = foreign_cut(cut, run)
    at, names = found_in(foreign.egraph, egraph), Names(egraph, run.canonical)
    written = {names.logical[w] for g in selection.groups for w in g.writes}
    made = {names.logical[egraph.nodes[m].eclass] for g in selection.groups for m in g.members}
    for w in dict.fromkeys(w for g in foreign.groups for w in g.writes):
        if w in at and names.logical[at[w]] in made - written:
            yield f"{names.logical_name(at[w])}: {names.type_of(at[w])}"


# ---- IREE's dispatches on a target ---------------------------------------------------------------
@dataclass(frozen=True)
class Cut:
    """A program in IREE's dispatches, under test on a target."""

    program: CutProgram
    target: Target

    @cached_property
    def schedule(self) -> Schedule:
        """Its dispatches, priced, whether the target permits them or not."""
        graph, groups = graph_of_program(self.program.program), groups_of_cut(self.program)
        selection = priced_selection(graph, self.target, groups, (), ["dispatches"])
        return build(graph, selection, self.target)

    def illegal(self) -> dict[int, list[str]]:
        """Per dispatch that the checker refuses: why."""
        found: dict[int, list[str]] = {}
        for says in dict.fromkeys(faults(self.schedule, replace(self.target, budget=()))):
            first, _, number = says.partition(" ")
            at = int(number.split()[0]) if first == "dispatch" else -1
            found.setdefault(at, []).append(says)
        return found

    def apart(self) -> Iterator[tuple[int, int, str]]:
        """Pairs of dispatches, one of which reads the other, that would be legal as one; and why
        IREE keeps them apart, "" if it is not known."""
        dispatches, writer, below = self.schedule.dispatches, dict[int, int](), list[set[int]]()
        for j, d in enumerate(dispatches):
            direct = {writer[r] for r in d.reads if r in writer}
            below.append(direct.union(*[below[i] for i in direct]))
            writer |= dict.fromkeys(d.writes, j)
            for i in sorted(direct):
                between = any(i in below[k] for k in direct)
                if not between and self._is_legal(i, j):
                    yield i, j, self._why_apart(dispatches[i], d)

    def _is_legal(self, first: int, second: int) -> bool:
        """Whether two dispatches may be one."""
        dispatches, program = self.schedule.dispatches, self.schedule.program
        a, b = dispatches[first], dispatches[second]
        members = tuple(sorted({*a.members, *b.members}))
        reads = tuple(sorted({*a.reads, *b.reads} - {*members}))
        used = {program.behind_views(r) for r in program.results}
        for k, d in enumerate(dispatches):
            used |= set(d.reads) if k not in (first, second) else set()
        writes = tuple(w for w in (*a.writes, *b.writes) if w in used)
        one = replace(b, members=members, reads=reads, writes=writes, plan=None)
        return not any(OneDispatch(0, one, program, self.target).faults())

    # ---- why they are apart
    def _why_apart(self, a: Dispatch, b: Dispatch) -> str:
        program, nodes = self.schedule.program, self.schedule.program.nodes
        ops = [nodes[m] for m in b.members if nodes[m].op not in SAME_BYTES]
        seen = {(o, program.behind_views(o)) for n in ops for o in n.operands}
        shared = {(o, base) for o, base in seen if base in a.writes}
        if all(o != base for o, base in shared):
            return "a reshape stands between: IREE clones none (issue 8637)"
        if all(t.size == 1 for m in (*b.members, *b.reads) for t in nodes[m].types):
            return "an op of one element: FormScalarDispatches makes it a dispatch of its own"
        bases = {base for _, base in shared}
        pads = [m for m in b.members if nodes[m].op == "pad"]
        wide = [n for n in ops if widens(n.attr)]
        if any(bases & {*map(program.behind_views, n.operands)} for n in wide):
            return "a dequantisation: isFusableWithConsumer takes it for cloned"
        if pads and any(widens(nodes[w].attr) for w in bases):
            return "a pad of a dequantisation, which is no root"
        others = [d for d in self.schedule.dispatches if d is not b and bases & {*d.reads}]
        if pads and others:
            return "a pad of what others read: isFusableWithConsumer asks for one use"
        if not bases & self._behind_roots(a):
            return "it reads what stands in front of the root: fuseRootsWithConsumers starts there"
        return ""

    def _behind_roots(self, d: Dispatch) -> set[int]:
        """Members that are roots, or computed from one."""
        program, nodes = self.schedule.program, self.schedule.program.nodes
        behind: set[int] = set()
        for m in d.members:
            below = {program.behind_views(o) for o in nodes[m].operands}
            if kind(nodes[m].op, nodes[m].attr) in ("contraction", "reduction") or below & behind:
                behind.add(m)
        return behind


# ---- the table -----------------------------------------------------------------------------------
def page(rows: dict[str, dict[str, Any]]) -> str:
    """The table in the docs."""
    lines = ["| program | IREE | illegal | apart | least | fastest | inside |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|"]
    for name, r in rows.items():
        least = f"{r['least']}" if r["least"] == r["bound"] else f"{r['least']} ({r['bound']})"
        counts = len(r["illegal"]), len(r["apart"]), least, r["fastest"], len(r["inside"])
        cells = " | ".join(map(str, (f"`{name.partition(':')[2] or name}`", r["iree"], *counts)))
        lines.append(f"| {cells} |")
    return "\n".join(lines)
