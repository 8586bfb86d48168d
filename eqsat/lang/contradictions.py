"""Figures of a target that contradict each other: each is a sentence at its place in the file."""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.lang.source import KeyPath, YamlSource
from eqsat.lang.targetformat import PipelineRecord, TargetRecord
from eqsat.model.diag import Diagnostic
from eqsat.model.tensor import DTYPES

WORD = 4  # bytes of an accumulator
Found = Iterator[tuple[KeyPath, str, str]]  # place, sentence, fix


def contradictions(record: TargetRecord, source: YamlSource) -> Iterator[Diagnostic]:
    """E221, one per pair of figures that cannot both hold."""
    for path, message, fix in _found(record):
        yield Diagnostic("E221", message, source.span(path), help=fix)


def _found(r: TargetRecord) -> Found:
    yield from _scratch(r)
    yield from _native_tiles(r)
    yield from _narrowed(r)
    yield from _fusion(r)
    for name, pipeline in r.pipelines.items():
        if pipeline is not None:
            yield from _pipeline(r, name, pipeline)


def _scratch(r: TargetRecord) -> Found:
    scratch, largest = r.limits.scratch, r.memory[-1].size
    path = ("limits", "scratch")
    if scratch is not None and scratch > largest:
        what = f"{scratch:,} bytes of scratch in {largest:,} bytes of `{r.memory[-1].name}`"
        yield path, f"{what}: scratch is a part of memory", "lower one or raise the other"
    if scratch is not None and r.units is not None and scratch > r.units.scratch:
        what = f"{scratch:,} bytes of scratch for one workgroup, a unit has {r.units.scratch:,}"
        yield path, what, "write what a workgroup may ask for; `units.scratch` is that of all"


def _narrowed(r: TargetRecord) -> Found:
    for reading, dtype in ({} if r.padding is None else r.padding.narrowed).items():
        path, own = ("padding", "narrowed", reading), reading.partition("/")[0]
        if "/" not in reading:
            what = f"`{reading}` names no precision, and every contraction has one"
            yield path, what, f"write `{reading}/default: {dtype}`"
        if DTYPES[dtype][0] >= DTYPES[own][0]:
            yield path, f"{dtype} is not narrower than {own}", "write a type of fewer bits"


def _fusion(r: TargetRecord) -> Found:
    """What a contraction has of other roots inside is said in one way."""
    f = r.fusion
    if f.staged and (f.row_reductions or 1) > 1:
        what = "`staged` computes again what `row_reductions` keeps for a row"
        yield ("fusion", "staged"), what, "take one of them out"
    if (f.output_reductions or f.staged) and f.row_block:
        key = "output_reductions" if f.output_reductions else "staged"
        what = f"`{key}` and `row_block`: rows in scratch hold the other roots already"
        yield ("fusion", key), what, "take one of them out"


def _native_tiles(r: TargetRecord) -> Found:
    nbytes = {d: a * b * DTYPES[d][0] // 8 for d, (a, b) in r.native_tiles.items()}
    for dtype, (rows, lanes) in r.native_tiles.items():
        path: KeyPath = ("native_tiles", dtype)
        first = next(iter(nbytes))
        if nbytes[dtype] != nbytes[first]:
            what = f"a native tile of {dtype} has {nbytes[dtype]:,} bytes, one of {first}"
            yield (
                path,
                f"{what} {nbytes[first]:,}: registers are equally large",
                (f"write `[{nbytes[first] * 8 // DTYPES[dtype][0] // lanes}, {lanes}]`"),
            )
        p = r.padding
        if p is not None and (rows % p.rows or lanes % p.lanes):
            what = f"a native tile of {rows}x{lanes} is no multiple of {p.rows} rows"
            yield (
                path,
                f"{what} and {p.lanes} lanes of `padding`",
                (f"write `[{p.rows * -(-rows // p.rows)}, {p.lanes}]`, or correct `padding`"),
            )


def _pipeline(r: TargetRecord, name: str, p: PipelineRecord) -> Found:
    here: KeyPath = ("pipelines", name)
    for side in p.from_scratch:
        if side not in p.promote:
            what = f"`{side}` is read from scratch, and `promote` does not keep it there"
            yield (*here, "from_scratch"), what, f"write `promote: [{side}, …]`, or take it out"
    if p.walk == "grid" and (p.collapse or p.from_scratch):
        key = "collapse" if p.collapse else "from_scratch"
        what = f"`walk: grid` and `{key}`: a grid holds all its blocks, of loops as they are"
        yield (*here, key), what, f"take `{key}` out, or `walk`"
    yield from _extents(r, here, p)
    yield from _workgroup(r, here, p)


def _extents(r: TargetRecord, here: KeyPath, p: PipelineRecord) -> Found:
    """Blocks of a grid are tiles of memory; the least workgroup fits in scratch."""
    if p.walk == "grid" and r.padding is not None:
        units = {"m": r.padding.rows, "n": r.padding.lanes, "k": r.padding.lanes}
        for role, unit in units.items():
            wrong = next((e for e in getattr(p, role) if e % unit), None)
            if wrong is not None and role in p.model_fields_set:
                what = f"blocks of {wrong} along {role} are not divisible by {unit} (`padding`)"
                yield (*here, role), what, f"write {unit * -(-wrong // unit)}"
    scratch = r.limits.scratch
    if scratch is not None and p.promote:
        m, n, k = (min(e) for e in (p.m, p.n, p.k))
        bits = min(
            (DTYPES[t.partition("/")[0]][0] for i in p.intrinsics for t in i.types), default=8
        )
        least = (m * k + k * n) * bits // 8 * max(1, p.stages - 1)
        if least > scratch:
            what = (
                f"{p.stages} stages of the least tiles, {m}x{k} and {k}x{n}, take {least:,} bytes"
            )
            yield (
                (*here, "stages"),
                f"{what} of {scratch:,}: no workgroup fits",
                ("list smaller extents, or fewer stages"),
            )


def _workgroup(r: TargetRecord, here: KeyPath, p: PipelineRecord) -> Found:
    """What a unit has is enough for the workgroup with the largest result."""
    u = r.units
    if u is None or not p.subgroups:
        return
    path: KeyPath = (*here, "subgroups")
    if p.subgroups > u.subgroups:
        what = f"a workgroup of {p.subgroups} subgroups, a unit holds {u.subgroups}"
        yield path, what, f"write at most {u.subgroups}"
    m, n = max(p.m), max(p.n)
    needed = -(-m * n * WORD // (p.subgroups * u.lanes))
    if needed > u.lane:
        what = f"a {m}x{n} result of {p.subgroups} subgroups takes {needed:,} bytes of registers"
        yield (
            path,
            f"{what} of every lane, which has {u.lane:,}",
            (f"write {-(-m * n * WORD // (u.lane * u.lanes))} or more, or list smaller extents"),
        )
