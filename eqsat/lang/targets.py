"""Target YAML → `model.target.Target`, with the place of every key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from eqsat.lang.owntarget import AUTO, own_target
from eqsat.lang.problems import schema_problems
from eqsat.lang.source import KeyPath, Lines, Source, load_yaml, read_yaml, refuse
from eqsat.lang.targetformat import (
    FusionRecord,
    KernelsRecord,
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
from eqsat.model.diag import Diagnostic, EqsatError, Span, did_you_mean, fail
from eqsat.model.pipelines import Intrinsic, Pipeline
from eqsat.model.plan import Constants, Kernels
from eqsat.model.target import Fusion, Kernel, Limits, MeasuredOn, Memory, Target, Tile
from eqsat.plugins import find_names

Folders = Iterable[str | Path]
_KEY = re.compile(r"[a-z_0-9]+(\.[a-z_0-9/-]+)*")
# keys of a file that name it and are not taken over by a target that extends it
_OWN = ("target", "extends")


def find_target(name: str | Path, folders: Folders = (), span: Span | None = None) -> Path:
    """The file of a target: a path, or a name on the search path (E200), or `auto`."""
    if str(name) == AUTO:
        name = own_target(folders, load_target)[0]
    if str(name).endswith((".yaml", ".yml")):
        if Path(name).is_file():
            return Path(name)
        raise fail("E200", f"no target file `{name}`", span)
    known = find_names("targets", ".yaml", folders)
    if str(name) not in known:
        raise fail("E200", f"no target named `{name}`", span, help=did_you_mean(str(name), known))
    return known[str(name)]


def load_target(name: str | Path, folders: Folders = ()) -> Target:
    """A target by name or path; EqsatError (E0xx, E2xx) holds all problems of its file.

    `auto` is this machine's, and says in `chosen` which it is and why.
    """
    folders = tuple(folders)
    if str(name) == AUTO:
        name, chosen = own_target(folders, load_target)
        return replace(load_target(name, folders), chosen=chosen)
    path = find_target(name, folders)
    return _target(_layers(_load(path), folders, (path.resolve(),)))


def read_target(text: str, file: str = "<text>", folders: Folders = ()) -> Target:
    """Target YAML text → Target."""
    return _target(_layers(read_yaml(text, file), tuple(folders), ()))


def override(target: Target, settings: Sequence[str]) -> Target:
    """The target with `--set key=value` applied in order; a value is YAML.

    >>> override(target, ["fusion.multi_result=true", "limits.vector=8 KiB"])

    E208 if a setting is not `key=value` of a target; other codes as in files, naming the setting.
    """
    problems: list[Diagnostic] = []
    for setting in settings:
        try:
            target = _override(target, setting)
        except EqsatError as error:
            problems += [
                replace(d, message=f"`--set {setting}`: {d.message}", span=None, notes=())
                for d in error.diagnostics
            ]
    refuse(problems)
    return target


# ---- layers: a file and what it extends ----------------------------------------------------------
@dataclass(frozen=True)
class _Layered:
    """The data of a file over that of the files it extends; per key path, the file it is from."""

    data: dict[str, Any]
    sources: dict[KeyPath, Source]
    source: Source


def _load(path: Path) -> Source:
    here = Path.cwd()
    path = path.resolve()
    return load_yaml(path.relative_to(here) if path.is_relative_to(here) else path)


def _layers(source: Source, folders: tuple[str | Path, ...], above: tuple[Path, ...]) -> _Layered:
    data = source.data if isinstance(source.data, dict) else {}
    sources = dict.fromkeys(source.values, source)
    name = data.get("extends")
    if not isinstance(source.data, dict) or not isinstance(name, str):
        return _Layered(source.data, sources, source)
    span = source.span(("extends",))
    path = find_target(name, folders, span)
    if path.resolve() in above:
        raise fail("E207", f"target `{name}` extends itself", span)
    below = _layers(_load(path), folders, (*above, path.resolve()))
    inherited = {k: v for k, v in below.data.items() if k not in _OWN}
    kept = {p: s for p, s in below.sources.items() if p and p[0] not in _OWN}
    replaced = [p for p in source.values if p and not isinstance(_at(data, p), dict)]
    kept = {p: s for p, s in kept.items() if not any(p[: len(r)] == r for r in replaced)}
    return _Layered(_merge(inherited, data), kept | sources, source)


def _at(data: Any, path: KeyPath) -> Any:
    for part in path:
        data = data[part]
    return data


def _merge(below: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Mappings are merged key by key, lists and values replaced."""
    out = dict(below)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = _merge(out[key], value) if both else value
    return out


def _target(layers: _Layered) -> Target:
    source = layers.source
    problems = list(source.problems)
    record = None
    try:
        record = TargetRecord.model_validate(layers.data)
    except ValidationError as error:
        problems += schema_problems(error, _joined(layers), TargetRecord)
    if record is not None and record.rates and not record.source:
        problems.append(
            Diagnostic(
                "E209", "rates need a `source`", source.span(("rates",), key=True),
                help="say where the figures come from: `source: datasheet …` or `measured with …`",
            )
        )  # fmt: skip
    if record is not None and record.executor == "kernels" and record.kernels is None:
        problems.append(
            Diagnostic(
                "E219", "`executor: kernels` needs `kernels`", source.span(("executor",)),
                help="say what a kernel's work takes, or write `extends: avx512`;"
                " `eqsat calibrate` measures it",
            )
        )  # fmt: skip
    if record is not None:
        problems += _rate_problems(record, source)
        problems += _join_problems(_fusion(Fusion(), record.fusion), _joined(layers))
    refuse(problems)
    assert record is not None
    return replace(_convert(record), file=source.file, places=_places(layers))


def _rate_problems(record: TargetRecord, source: Source) -> Iterator[Diagnostic]:
    """Rates of a precision that the target does not know, or beside no rate of their type.

    Those of the file itself: one that is taken over may be of a precision that is not.
    """
    for key in (k for k in record.rates if ("rates", k) in source.values):
        dtype, slash, precision = key.partition("/")
        span = source.span(("rates", key), key=True)
        if slash and dtype not in record.rates:
            message = f"`{key}` stands beside no rate of {dtype}, which other ops have"
            yield Diagnostic("E215", message, span, help=f"write `{dtype}: …` as well")
        if slash and record.precisions and precision not in record.precisions:
            message = f"a rate of `{precision}`, which `precisions` does not list"
            yield Diagnostic("E215", message, span, help="list it, or leave the rate out")
    for name, key in ((n, k) for n, p in record.pipelines.items() if p for k in p.rates):
        dtype = key.partition("/")[0]
        if dtype not in record.rates:
            message = f"`{key}` of pipeline `{name}` stands beside no rate of {dtype} of the target"
            span = source.span(("pipelines", name, "rates"), key=True)
            yield Diagnostic("E215", message, span, help=f"write `{dtype}: …` in `rates` as well")


def _join_problems(fusion: Fusion, source: Source | None) -> Iterator[Diagnostic]:
    """Rows that were written and are not closed: an elementwise op would allow what they do not."""
    missing: dict[str, list[str]] = {}
    for producer, consumer in fusion.missing_joins:
        missing.setdefault(producer, []).append(consumer)
    for row, consumers in missing.items():
        names = " and ".join(f"`{c}`" for c in consumers)
        yield Diagnostic(
            "E216",
            f"`fusion.join` is not closed: `{row}` joins `elementwise`, that joins {names},"
            f" and `{row}` does not",
            source and source.span(("fusion", "join", row)),
            help=f"an elementwise op between them would allow it: add {names} to the row `{row}`,"
            " or take it from the row `elementwise`",
        )


def _joined(layers: _Layered) -> Source:
    """A source that finds every key in the file it came from."""
    values = {p: s.values[p] for p, s in layers.sources.items() if p in s.values}
    keys = {p: s.keys[p] for p, s in layers.sources.items() if p in s.keys}
    return replace(layers.source, data=layers.data, values=values, keys=keys)


def _places(layers: _Layered) -> tuple[tuple[str, str], ...]:
    """Where every key stands; entries of lists are found through the key of their list."""
    keys = _joined(layers).keys
    return tuple(sorted((".".join(map(str, p)), str(s)) for p, s in keys.items() if _named(p)))


def _named(path: KeyPath) -> bool:
    return all(isinstance(part, str) for part in path)


# ---- record → model ------------------------------------------------------------------------------
def _convert(r: TargetRecord) -> Target:
    return Target(
        r.target, r.doc, r.executor, r.data_tiling,
        tuple(Memory(m.name, m.size, m.bandwidth) for m in r.memory),
        r.launch, tuple(r.rates.items()), r.untiled_rate, r.elementwise_rate,
        _vocabularies(r), r.tiles_forced, _fusion(Fusion(), r.fusion),
        Limits(r.limits.scratch, r.limits.vector), r.budget.bounds(),
        source=r.source, strategies=_strategies(r), pipelines=_pipelines(r),
        untiled=_kernels(r), relayout=r.relayout, trips=r.trips,
        precisions=tuple(r.precisions), originals=r.originals,
        kernels=None if r.kernels is None else _planned(r.kernels),
        measured_on=_measured_on(r.measured_on),
    )  # fmt: skip


def _measured_on(r: MeasuredOnRecord | None) -> MeasuredOn | None:
    if r is None:
        return None
    features, caches = tuple(sorted(r.features)), tuple(r.caches)
    return MeasuredOn(r.processor, features, caches, r.cores, tuple(r.versions.items()))


def _vocabularies(r: TargetRecord) -> tuple[tuple[str, tuple[Tile, ...]], ...]:
    """Op kind and tiles of every vocabulary that is not empty."""
    lists = {k: v for k, v in r.tiles if not isinstance(v, StrategyRecord)}
    found = {kind: tuple(_tile(t) for t in tiles) for kind, tiles in lists.items()}
    return tuple((kind, tiles) for kind, tiles in found.items() if tiles)


def _kernels(r: TargetRecord) -> tuple[tuple[str, tuple[Kernel, ...]], ...]:
    """Op kind and kernels for unpacked contractions, where there are any."""
    matmul = tuple(
        Kernel(k.rate, tuple(map(condition, k.when)), lhs=k.lhs, rhs=k.rhs)
        for k in r.untiled.matmul
    )
    found = {"matmul": matmul}
    for kind, records in (("conv1d", r.untiled.conv1d), ("conv2d", r.untiled.conv2d)):
        found[kind] = tuple(
            Kernel(k.rate, tuple(condition(c, KERNEL_ROLES) for c in k.when), k.image, k.filters)
            for k in records
        )
    return tuple((kind, kernels) for kind, kernels in found.items() if kernels)


def _planned(r: KernelsRecord) -> Kernels:
    constants = Constants(
        r.fma, r.load, r.scalar, r.strided, r.page, r.tile, r.copy_rate, r.overlap
    )
    return Kernels(r.vector, r.registers, tuple(r.features), constants, r.cores, r.source)


def _written(k: Kernels) -> dict[str, Any]:
    """`kernels:` as a file would have it."""
    c = k.constants
    times = {
        "fma": c.fma_ps, "load": c.load_ps, "scalar": c.scalar_ps, "strided": c.strided_ps,
        "page": c.page_ps, "tile": c.tile_ps,
    }  # fmt: skip
    return {
        "vector": f"{k.vector_bytes} B", "registers": k.registers, "features": list(k.features),
        "cores": k.cores, **{name: f"{ps:.9f} ps" for name, ps in times.items()},
        "copy": f"{c.copy_rate:.3f} B/s", "overlap": c.overlap, "source": k.source,
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
        return Tile(tuple(t.panel.model_dump().items()), t.rate, when, panel=True)
    sizes = tuple(zip(("m", "n", "k"), t.mnk or (), strict=True))
    return Tile(
        sizes, t.rate, when, tuple(t.order), t.vnni, lhs=t.lhs, rhs=t.rhs, swapped=t.swapped
    )


def _pipelines(r: TargetRecord) -> tuple[Pipeline, ...]:
    """Those that are not taken away, in the order of the file."""
    found = {k: p for k, p in r.pipelines.items() if p is not None}
    return tuple(_pipeline(Pipeline(k), p) for k, p in found.items())


def _pipeline(base: Pipeline, r: PipelineRecord) -> Pipeline:
    """The base with what is written."""
    changes: dict[str, Any] = {k: getattr(r, k) for k in r.model_fields_set}
    changes = {k: tuple(v) if isinstance(v, list) else v for k, v in changes.items()}
    if "rates" in changes:
        changes["rates"] = tuple(r.rates.items())
    if "when" in changes:
        changes["when"] = tuple(map(condition, r.when))
    if "intrinsics" in changes:
        made = (((i.mnk[0], i.mnk[1], i.mnk[2]), tuple(i.types)) for i in r.intrinsics)
        changes["intrinsics"] = tuple(Intrinsic(*i) for i in made)
    return replace(base, **changes)


def _fusion(base: Fusion, r: FusionRecord) -> Fusion:
    """The base with what is written; `join` replaces the rows it names, and the others are closed.

    A row that was written stays as it is: `_join_problems` says what it lacks.
    """
    changes: dict[str, Any] = r.model_dump(exclude_none=True)
    if r.join is not None:
        rows = dict(base.join) | {k: tuple(v) for k, v in r.join.items()}
        changes["join"] = tuple((str(k), tuple(map(str, v))) for k, v in rows.items())
    if r.clone is not None:
        changes["clone"] = tuple(map(str, r.clone))
    found = replace(base, **changes)
    added = [(row, kind) for row, kind in found.missing_joins if row not in (r.join or {})]
    more = {row: tuple(kind for r, kind in added if r == row) for row, _ in found.join}
    return replace(found, join=tuple((row, kinds + more[row]) for row, kinds in found.join))


# ---- --set ---------------------------------------------------------------------------------------
def _override(target: Target, setting: str) -> Target:
    key, equals, value = setting.partition("=")
    key = key.strip()
    if not equals or not _KEY.fullmatch(key):
        raise fail("E208", "a setting is `key=value`", help="`--set fusion.multi_result=true`")
    path = key.split(".")
    if path[0] in ("target", "extends") or path[0] not in TargetRecord.model_fields:
        known = [k for k in TargetRecord.model_fields if k not in _OWN]
        raise fail("E208", f"a target has no key `{path[0]}`", help=did_you_mean(path[0], known))
    data = read_yaml(value or '""', "--set").data
    for part in reversed(path):
        data = {part: data}
    return _apply(target, path, data)


def _apply(target: Target, path: list[str], data: dict[str, Any]) -> Target:
    """The target with one key changed; the rest of a record is filled up to check it."""
    base = {"target": "x", "doc": "x", "executor": "xla", "data_tiling": True}
    base["memory"] = [{"name": "x", "size": "1 B", "bandwidth": "1 B/s"}]
    if path[0] == "kernels" and len(path) > 1 and target.kernels is not None:
        data = {"kernels": _written(target.kernels) | data["kernels"]}
    whole = base | data
    lines = Lines("--set", "")
    try:
        record = TargetRecord.model_validate(whole)
    except ValidationError as error:
        source = Source(lines, whole, {}, {}, {}, frozenset(), ())
        raise EqsatError(*schema_problems(error, source, TargetRecord)) from None
    new = _convert(record)
    changed = replace(target, **_changes(target, new, record, path))
    if path[0] == "fusion":
        refuse([*_join_problems(changed.fusion, None)])
    places = dict(target.places) | {".".join(path): f"--set {'.'.join(path)}"}
    return replace(changed, places=tuple(sorted(places.items())))


def _piped(target: Target, record: TargetRecord, path: list[str]) -> tuple[Pipeline, ...]:
    """All of them anew, one of them (`null`: without it), or one key of one."""
    made = {p.name: p for p in _pipelines(record)}
    if len(path) == 1:
        return tuple(made.values())
    name, known = path[1], {p.name: p for p in target.pipelines}
    written = record.pipelines[name]
    if written is None:
        if known and name not in known:  # where there are none, the answer is what was asked for
            raise fail("E208", f"no pipeline named `{name}`", help=did_you_mean(name, known))
        return tuple(p for p in target.pipelines if p.name != name)
    base = known.get(name, Pipeline(name)) if len(path) > 2 else Pipeline(name)
    return tuple((known | {name: _pipeline(base, written)}).values())


def _changes(target: Target, new: Target, record: TargetRecord, path: list[str]) -> dict[str, Any]:
    """The fields of a Target that a setting changes."""
    head = path[0]
    if head == "fusion":
        return {"fusion": _fusion(target.fusion, record.fusion)}
    if head == "limits":
        written = record.limits.model_fields_set
        return {
            "limits": replace(
                target.limits, **{f"{k}_bytes": getattr(record.limits, k) for k in written}
            )
        }
    if head in ("rates", "budget") and len(path) > 1:
        return {head: tuple((dict(getattr(target, head)) | dict(getattr(new, head))).items())}
    if head == "tiles":
        written = record.tiles.model_fields_set
        if len(path) == 1:
            return {"tiles": new.tiles, "strategies": new.strategies}
        merged = dict(target.tiles) | {kind: dict(new.tiles).get(kind, ()) for kind in written}
        computed = {k: v for k, v in target.strategies if k not in written} | dict(new.strategies)
        return {
            "tiles": tuple((k, v) for k, v in merged.items() if v),
            "strategies": tuple(computed.items()),
        }
    if head == "pipelines":
        return {"pipelines": _piped(target, record, path)}
    if head == "untiled" and len(path) > 1:
        written = record.untiled.model_fields_set
        merged = dict(target.untiled) | {kind: new.untiled_kernels(kind) for kind in written}
        return {"untiled": tuple((k, v) for k, v in merged.items() if v)}
    field = {"launch": "launch_ps"}.get(head, head)
    return {field: getattr(new, field)}
