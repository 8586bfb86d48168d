"""Meshes and spreads as command lines write them: `data=4,model=2`, `x=[data, -]`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from eqsat.lang.source import refuse
from eqsat.lang.targets import mesh_problems
from eqsat.lang.targetvalues import mesh_of
from eqsat.model.attr import Shape
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.mesh import REPLICATED, Mesh, Spread
from eqsat.model.target import Target

FREE = "free"  # of an argument or result: the search decides
_AXIS = re.compile(r"\s*([a-z][a-z0-9_]*)\s*=\s*([0-9]+)\s*")


def with_mesh(target: Target, text: str) -> Target:
    """The target with devices along these axes (`data=4,model=2`), whose links it knows.

    EqsatError: E232 if the text says no mesh, E230 if an axis has no link or another executor runs
    the target.
    """
    sizes: dict[str, int] = {}
    for part in text.split(","):
        match = _AXIS.fullmatch(part)
        if match is None or not int(match[2]) or match[1] in sizes:
            help = "write each axis once, with its devices: `--mesh data=4,model=2`"
            raise fail("E232", f"`--mesh {text}`: `{part.strip()}` is no axis", help=help)
        sizes[match[1]] = int(match[2])
    known = {k.name for k in target.mesh_links}
    for name in sizes.keys() - known:
        help = did_you_mean(name, known) if known else "use a target that has `mesh_links`"
        help += f"; or add `--set 'mesh_links.{name}={{bandwidth: 45 GB/s, latency: 1 us}}'`"
        raise fail("E230", f"`{target.name}` knows no link of axis `{name}`", help=help)
    refuse([*mesh_problems(sizes, known, target.executor, None)])
    limit = target.memory[-1].size_bytes
    if target.mesh is not None and target.mesh.memory_bytes is not None:
        limit = target.mesh.memory_bytes
    return replace(target, mesh=mesh_of(target.mesh_links, sizes, limit))


def with_shards(target: Target, shards: Mapping[str, str]) -> Target:
    """The target's mesh with these spreads asked for; EqsatError E232 where there is no mesh."""
    if not shards:
        return target
    if target.mesh is None:
        help = "use a target with a `mesh`, or `--mesh data=4`"
        raise fail("E232", f"`{target.name}` is one device, so nothing is sharded", help=help)
    return replace(target, mesh=replace(target.mesh, shards=tuple(shards.items())))


def read_shards(texts: Sequence[str]) -> dict[str, str]:
    """What `--shard` says, by name; E232 if it is not NAME=SPREAD."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, spread = text.partition("=")
        if not name.strip() or not equals:
            help = "e.g. `--shard 'x=[data, -]'`"
            raise fail("E232", f"`--shard {text}` is not NAME=SPREAD", help=help)
        found[name.strip()] = spread.strip()
    return found


def read_spread(text: str, name: str, shape: Shape, mesh: Mesh) -> Spread | None:
    """`[data, -, model]` for a tensor of this shape; None for `free`.

    EqsatError (E232) if it has another number of dims, names an axis that is not there or twice,
    or cuts a dim that does not divide.
    """
    if text.strip() == FREE:
        return None
    dims = [d.strip() for d in text.strip().removeprefix("[").removesuffix("]").split(",")]
    dims = [] if dims == [""] and not shape else dims
    if len(dims) != len(shape):
        help = f"write one axis or `-` per dim: `[{', '.join('-' * len(shape))}]`"
        raise fail("E232", f"`{name}={text}` has {len(dims)} dims, not {len(shape)}", help=help)
    spread: list[int | str] = [REPLICATED] * len(mesh.axes)
    for dim, axes in enumerate(dims):
        for axis in (a.strip() for a in axes.split("+")):
            if axis in ("-", ""):
                continue
            if axis not in mesh.names:
                help = did_you_mean(axis, mesh.names)
                raise fail("E232", f"`{name}={text}`: the mesh has no axis `{axis}`", help=help)
            at = mesh.names.index(axis)
            if spread[at] != REPLICATED:
                raise fail("E232", f"`{name}={text}` cuts two dims over `{axis}`")
            spread[at] = dim
    if not mesh.fits(tuple(spread), shape):
        help = f"the mesh is {mesh.to_text()}: use an axis that divides the dim, or another mesh"
        message = f"`{name}={text}`: the blocks of {list(shape)} are not of one size"
        raise fail("E232", message, help=help)
    return tuple(spread)
