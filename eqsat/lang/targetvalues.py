"""Values of a target file as a `model.target.Target`: a key of one name is taken as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from eqsat.lang.targetformat import (
    FusionRecord,
    KernelsRecord,
    LimitsRecord,
    MeasuredOnRecord,
    PipelineRecord,
    TargetRecord,
)
from eqsat.lang.tileformat import (
    CONVOLUTION_ROLES,
    KERNEL_ROLES,
    ConvolutionTileRecord,
    StrategyRecord,
    TileRecord,
    condition,
)
from eqsat.model.dispatch import Constants, Kernels
from eqsat.model.mesh import AxisLink, Mesh
from eqsat.model.pipelines import Intrinsic, Padding, Pipeline, RowPadding, Units
from eqsat.model.target import (
    CompilerPlacing,
    CompilerRefusal,
    DispatchLimits,
    Fusion,
    MeasuredOn,
    Memory,
    Target,
    Tile,
    UntiledKernel,
)

AS_WRITTEN = tuple(f.name for f in fields(Target) if f.name in TargetRecord.model_fields)


def target_of(r: TargetRecord) -> Target:
    """The target that a record describes."""
    values: dict[str, Any] = {
        "name": r.target, "launch_ps": r.launch,
        "memory": tuple(Memory(m.name, m.size, m.bandwidth, m.temporaries) for m in r.memory),
        "tiles": _vocabularies(r), "strategies": _strategies(r), "untiled": _kernels(r),
        "fusion": fusion_of(Fusion(), r.fusion),
        "limits": dispatch_limits_of(DispatchLimits(), r.limits),
        "budget": r.budget.bounds(), "pipelines": pipelines_of(r),
        "kernels": None if r.kernels is None else _planned(r.kernels),
        "measured_on": _measured_on(r.measured_on), "padding": _padding(r), "units": _units(r),
        "row_padding": _row_padding(r),
        "placing": CompilerPlacing(r.placing.scratchpad, r.placing.in_place),
        "refused": tuple(
            CompilerRefusal(tuple(sorted(f.ops)), f.says, f.source) for f in r.refused
        ),
        "native_tiles": tuple((d, (t[0], t[1])) for d, t in r.native_tiles.items()),
        "mesh_links": links_of(r), "mesh": mesh_of(links_of(r), r.mesh, r.memory[-1].size),
    }  # fmt: skip
    return Target(**{k: _plain(getattr(r, k)) for k in AS_WRITTEN if k not in values} | values)


def mesh_of(links: Sequence[AxisLink], sizes: Mapping[str, int], memory_bytes: int) -> Mesh | None:
    """The mesh; None where there is none, and where an axis has no link (`mesh_problems`)."""
    by_name = {link.name: link for link in links}
    if not sizes or not sizes.keys() <= by_name.keys():
        return None
    return Mesh(tuple(by_name[name].axis(n) for name, n in sizes.items()), memory_bytes)


def links_of(r: TargetRecord) -> tuple[AxisLink, ...]:
    """The links of axes, whether or not the mesh has them."""
    return tuple(AxisLink(k, v.bandwidth, v.latency) for k, v in r.mesh_links.items())


def _plain(value: Any) -> Any:
    """Lists as tuples, mappings as tuples of pairs."""
    return (
        tuple(value.items() if isinstance(value, dict) else value)
        if isinstance(value, dict | list)
        else value
    )


def _measured_on(r: MeasuredOnRecord | None) -> MeasuredOn | None:
    if r is None:
        return None
    features, caches = tuple(sorted(r.features)), tuple(r.caches)
    return MeasuredOn(r.processor, features, caches, r.cores, tuple(r.versions.items()), r.figures)


def _padding(r: TargetRecord) -> Padding | None:
    p = r.padding
    if p is None:
        return None
    return Padding(p.rows, p.lanes, p.granule, tuple(p.narrowed.items()))


def _row_padding(r: TargetRecord) -> RowPadding | None:
    p = r.row_padding
    return None if p is None else RowPadding(p.line, p.sets, tuple(dict.fromkeys(p.operands)))


def _units(r: TargetRecord) -> Units | None:
    u = r.units
    if u is None:
        return None
    return Units(u.count, u.scratch, u.subgroups, u.lanes, u.registers, u.lane)


def _vocabularies(r: TargetRecord) -> tuple[tuple[str, tuple[Tile, ...]], ...]:
    """Op kind and tiles of every vocabulary that is not empty."""
    lists = {k: v for k, v in r.tiles if not isinstance(v, StrategyRecord)}
    vocabularies = {kind: tuple(_tile(t) for t in tiles) for kind, tiles in lists.items()}
    return tuple((kind, tiles) for kind, tiles in vocabularies.items() if tiles)


def _kernels(r: TargetRecord) -> tuple[tuple[str, tuple[UntiledKernel, ...]], ...]:
    """Op kind and kernels for unpacked contractions, where there are any."""
    matmul = tuple(
        UntiledKernel(k.rate, tuple(map(condition, k.when)), lhs=k.lhs, rhs=k.rhs)
        for k in r.untiled.matmul
    )
    kernels_of = {"matmul": matmul}
    u = r.untiled
    for kind, records in (("conv1d", u.conv1d), ("conv2d", u.conv2d), ("conv3d", u.conv3d)):
        kernels_of[kind] = tuple(
            UntiledKernel(
                k.rate, tuple(condition(c, KERNEL_ROLES) for c in k.when), k.image, k.filters
            )
            for k in records
        )
    kernels_of["pool"] = tuple(UntiledKernel(1.0, image=k.image) for k in u.pool)
    return tuple((kind, kernels) for kind, kernels in kernels_of.items() if kernels)


def _planned(r: KernelsRecord) -> Kernels:
    constants = Constants(
        r.fma, r.load, r.scalar, r.strided, r.page, r.tile, r.copy_rate, r.overlap, r.loop
    )
    return Kernels(r.vector, r.registers, tuple(r.features), constants, r.cores, r.source, r.xla_op)


def kernels_text(k: Kernels) -> dict[str, Any]:
    """`kernels:` as a file would have it."""
    c = k.constants
    times = {
        "fma": c.fma_ps, "load": c.load_ps, "scalar": c.scalar_ps, "strided": c.strided_ps,
        "page": c.page_ps, "tile": c.tile_ps, "loop": c.loop_ps,
    }  # fmt: skip
    return {
        "vector": f"{k.vector_bytes} B", "registers": k.registers, "features": list(k.features),
        "cores": k.cores, **{name: f"{ps:.9f} ps" for name, ps in times.items()},
        "copy": f"{c.copy_rate:.3f} B/s", "overlap": c.overlap,
        "xla_op": f"{k.xla_op_ps} ps", "source": k.source,
    }  # fmt: skip


def _strategies(r: TargetRecord) -> tuple[tuple[str, str], ...]:
    """Op kind and plug-in of every vocabulary that is computed."""
    return tuple((k, v.strategy) for k, v in r.tiles if isinstance(v, StrategyRecord))


def _tile(t: TileRecord | ConvolutionTileRecord) -> Tile:
    if isinstance(t, ConvolutionTileRecord):
        when = tuple(condition(c, CONVOLUTION_ROLES) for c in t.when)
        cut = t.panel or t
        sizes = (("c", cut.c or 1), ("k", cut.k or 1))
        return Tile(sizes, t.rate, when, panel=t.panel is not None)
    when = tuple(condition(c) for c in t.when)
    if t.panel is not None:
        inside = tuple(t.inside or ())
        return Tile(tuple(t.panel.model_dump().items()), t.rate, when, panel=True, inside=inside)
    sizes = tuple(zip(("m", "n", "k"), t.mnk or (), strict=True))
    return Tile(
        sizes, t.rate, when, tuple(t.order), t.vnni, lhs=t.lhs, rhs=t.rhs, swapped=t.swapped
    )


def pipelines_of(r: TargetRecord) -> tuple[Pipeline, ...]:
    """Pipelines that are not taken away, in the order of the file."""
    records = {k: p for k, p in r.pipelines.items() if p is not None}
    return tuple(pipeline_of(Pipeline(k), p) for k, p in records.items())


def pipeline_of(base: Pipeline, r: PipelineRecord) -> Pipeline:
    """The base with what is written."""
    changes: dict[str, Any] = {k: getattr(r, k) for k in r.model_fields_set}
    changes = {k: tuple(v) if isinstance(v, list) else v for k, v in changes.items()}
    if "subgroups" in changes:
        changes["subgroups"] = r.subgroups or 0
    if "rates" in changes:
        changes["rates"] = tuple(r.rates.items())
    if "when" in changes:
        changes["when"] = tuple(map(condition, r.when))
    if "intrinsics" in changes:
        shapes = (((i.mnk[0], i.mnk[1], i.mnk[2]), tuple(i.types)) for i in r.intrinsics)
        changes["intrinsics"] = tuple(Intrinsic(*i) for i in shapes)
    return replace(base, **changes)


def dispatch_limits_of(base: DispatchLimits, r: LimitsRecord) -> DispatchLimits:
    """The base with what is written."""
    return replace(base, **{f"{k}_bytes": getattr(r, k) for k in r.model_fields_set})


def fusion_of(base: Fusion, r: FusionRecord) -> Fusion:
    """The base with what is written; `join` replaces the rows it names, and the others are closed.

    A row that was written stays as it is: `join_problems` says what it lacks.
    """
    changes: dict[str, Any] = r.model_dump(exclude_none=True)
    if r.join is not None:
        rows = dict(base.join) | {k: tuple(v) for k, v in r.join.items()}
        changes["join"] = tuple((str(k), tuple(map(str, v))) for k, v in rows.items())
    for key in ("clone", "calls", "around"):
        if key in changes:
            changes[key] = tuple(map(str, changes[key]))
    fusion = replace(base, **changes)
    added = [(row, kind) for row, kind in fusion.missing_joins if row not in (r.join or {})]
    more = {row: tuple(kind for r, kind in added if r == row) for row, _ in fusion.join}
    return replace(fusion, join=tuple((row, kinds + more[row]) for row, kinds in fusion.join))
