"""The planner of a schedule on its target's mesh, with the spreads that the caller asked for."""

from __future__ import annotations

from eqsat.extract.mesh.plan import MeshPlanner
from eqsat.lang.meshes import FREE, read_spread
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.mesh import Mesh, Spread
from eqsat.model.program import Program
from eqsat.model.rules import RuleSet
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target

Borders = tuple[dict[int, Spread], tuple[tuple[int, int], ...]]


def mesh_planner(schedule: Schedule, target: Target, of: str, rules: RuleSet) -> MeshPlanner:
    """of: `answer` or `input`; EqsatError E232 for a spread that cannot be, E233 without rules."""
    assert target.mesh is not None
    if not rules.spreads:
        message = f"the rule set `{rules.name}` says nothing of how programs are cut over a mesh"
        raise fail("E233", message, help="add the set `spread`, or use a target without a mesh")
    wanted, chained = borders(schedule.program, target.mesh)
    return MeshPlanner(schedule, target, of, rules.spreads, wanted, chained)


def borders(program: Program, mesh: Mesh) -> Borders:
    """Spreads of arguments, weights and results that were asked for, and results like an argument.

    A result leaves as the first argument of its type came in, unless one of the two was asked for:
    layers and steps then follow each other without a conversion.
    """
    nodes = {program.leaf(i).name: i for i in (*program.inputs, *program.weights)}
    nodes |= {f"result{k}": r for k, r in enumerate(program.results)}
    wanted: dict[int, Spread] = {}
    for name, text in mesh.shards:
        if name not in nodes:
            hint = did_you_mean(name, nodes)
            raise fail("E232", f"no argument or result is named `{name}`", help=hint)
        spread = read_spread(text, name, program.nodes[nodes[name]].type.shape, mesh)
        if spread is not None:
            wanted[nodes[name]] = spread
    free = {nodes[name] for name, text in mesh.shards if text.strip() == FREE}
    asked = wanted.keys() | free
    chained: list[tuple[int, int]] = []
    for r in program.results:
        t = program.nodes[r].types[0]
        like = next((i for i in program.inputs if program.nodes[i].type == t), None)
        if like is not None and like != r and not {r, like} & asked:
            chained.append((like, r))
    return wanted, tuple(chained)
