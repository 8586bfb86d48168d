"""Target YAML → `model.target.Target`, with the place of every key.

Figures that contradict each other are refused, each in a sentence at its place in the file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from eqsat.lang.owntarget import AUTO, own_target
from eqsat.lang.problems import schema_problems
from eqsat.lang.source import KeyPath, YamlSource, load_yaml, read_yaml, refuse
from eqsat.lang.targetformat import PipelineRecord, TargetRecord
from eqsat.lang.targetvalues import fusion_of, target_of
from eqsat.model.diag import Diagnostic, Span, did_you_mean, fail
from eqsat.model.target import Fusion, Target
from eqsat.model.tensor import DTYPES
from eqsat.plugins import find_names

# ---- contradictions ------------------------------------------------------------------------------
WORD = 4  # bytes of an accumulator
Faults = Iterator[tuple[KeyPath, str, str]]  # place, sentence, fix


def contradictions(record: TargetRecord, source: YamlSource) -> Iterator[Diagnostic]:
    """E221, one per pair of figures that cannot both hold."""
    for path, message, fix in _contradictions(record):
        yield Diagnostic("E221", message, source.span(path), help=fix)


def _contradictions(r: TargetRecord) -> Faults:
    yield from _scratch(r)
    yield from _native_tiles(r)
    yield from _narrowed(r)
    yield from _fusion(r)
    for name, pipeline in r.pipelines.items():
        if pipeline is not None:
            yield from _pipeline(r, name, pipeline)


def _scratch(r: TargetRecord) -> Faults:
    scratch, largest = r.limits.scratch, r.memory[-1].size
    path = ("limits", "scratch")
    if scratch is not None and scratch > largest:
        what = f"{scratch:,} bytes of scratch in {largest:,} bytes of `{r.memory[-1].name}`"
        yield path, f"{what}: scratch is a part of memory", "lower one or raise the other"
    if scratch is not None and r.units is not None and scratch > r.units.scratch:
        what = f"{scratch:,} bytes of scratch for one workgroup, a unit has {r.units.scratch:,}"
        yield path, what, "write what a workgroup may ask for; `units.scratch` is that of all"


def _narrowed(r: TargetRecord) -> Faults:
    for reading, dtype in ({} if r.padding is None else r.padding.narrowed).items():
        path, operand = ("padding", "narrowed", reading), reading.partition("/")[0]
        if "/" not in reading:
            what = f"`{reading}` names no precision, and every contraction has one"
            yield path, what, f"write `{reading}/default: {dtype}`"
        if DTYPES[dtype][0] >= DTYPES[operand][0]:
            yield path, f"{dtype} is not narrower than {operand}", "write a type of fewer bits"


def _fusion(r: TargetRecord) -> Faults:
    """Faults of `fusion`: what a contraction has of other roots inside is said in one way."""
    f = r.fusion
    if f.staged and (f.row_reductions or 1) > 1:
        what = "`staged` computes again what `row_reductions` keeps for a row"
        yield ("fusion", "staged"), what, "take one of them out"
    if (f.output_reductions or f.staged) and f.row_block:
        key = "output_reductions" if f.output_reductions else "staged"
        what = f"`{key}` and `row_block`: rows in scratch hold the other roots already"
        yield ("fusion", key), what, "take one of them out"


def _native_tiles(r: TargetRecord) -> Faults:
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


def _pipeline(r: TargetRecord, name: str, p: PipelineRecord) -> Faults:
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


def _extents(r: TargetRecord, here: KeyPath, p: PipelineRecord) -> Faults:
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


def _workgroup(r: TargetRecord, here: KeyPath, p: PipelineRecord) -> Faults:
    """Faults of a workgroup: its unit has enough for the one with the largest result."""
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


# ---- reading -------------------------------------------------------------------------------------
Folders = Iterable[str | Path]
# keys of a file that name it and are not taken over by a target that extends it
OWN_KEYS = ("target", "extends")


def find_target(name: str | Path, folders: Folders = (), span: Span | None = None) -> Path:
    """The file of a target: a path, or a name on the search path (E200), or `auto`."""
    if str(name) == AUTO:
        name = own_target(folders, load_target)[0]
    if str(name).endswith((".yaml", ".yml")):
        if Path(name).is_file():
            return Path(name)
        raise fail("E200", f"no target file `{name}`", span, help="`eqsat list targets` has names")
    files = find_names("targets", ".yaml", folders)
    if str(name) not in files:
        hint = did_you_mean(str(name), files, "eqsat list targets")
        raise fail("E200", f"no target named `{name}`", span, help=hint)
    return files[str(name)]


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


# ---- layers: a file and what it extends ----------------------------------------------------------
@dataclass(frozen=True)
class _Layered:
    """The data of a file over that of the files it extends; per key path, the file it is from."""

    data: dict[str, Any]
    sources: dict[KeyPath, YamlSource]
    source: YamlSource


def _load(path: Path) -> YamlSource:
    here = Path.cwd()
    path = path.resolve()
    return load_yaml(path.relative_to(here) if path.is_relative_to(here) else path)


def _layers(
    source: YamlSource, folders: tuple[str | Path, ...], above: tuple[Path, ...]
) -> _Layered:
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
    inherited = {k: v for k, v in below.data.items() if k not in OWN_KEYS}
    inherited_spans = {p: s for p, s in below.sources.items() if p and p[0] not in OWN_KEYS}
    replaced = [p for p in source.values if p and not isinstance(_at(data, p), dict)]
    inherited_spans = {
        p: s for p, s in inherited_spans.items() if not any(p[: len(r)] == r for r in replaced)
    }
    return _Layered(_merge(inherited, data), inherited_spans | sources, source)


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
        problems += mesh_problems(record.mesh, record.mesh_links, record.executor, _joined(layers))
        problems += _rate_problems(record, source)
        problems += contradictions(record, _joined(layers))
        problems += join_problems(fusion_of(Fusion(), record.fusion), _joined(layers))
    refuse(problems)
    assert record is not None
    return replace(target_of(record), file=source.file, places=_places(layers))


def mesh_problems(
    sizes: Mapping[str, int], links: Collection[str], executor: str, source: YamlSource | None
) -> Iterator[Diagnostic]:
    """An axis without a link, and an executor that does not run on a mesh."""
    for axis in sizes:
        if axis not in links:
            span = None if source is None else source.span(("mesh", axis), key=True)
            link = f"mesh_links: {{{axis}: {{bandwidth: 45 GB/s, latency: 1 us}}}}"
            message = f"axis `{axis}` of the mesh has no link"
            yield Diagnostic("E230", message, span, help=f"say what joins its devices: `{link}`")
    if sizes and executor != "xla":
        span = None if source is None else source.span(("executor",))
        message = f"`executor: {executor}` does not run on a mesh"
        yield Diagnostic("E230", message, span, help="a mesh needs `executor: xla`")


def _rate_problems(record: TargetRecord, source: YamlSource) -> Iterator[Diagnostic]:
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


def join_problems(fusion: Fusion, source: YamlSource | None) -> Iterator[Diagnostic]:
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
            None if source is None else source.span(("fusion", "join", row)),
            help=f"an elementwise op between them would allow it: add {names} to the row `{row}`,"
            " or take it from the row `elementwise`",
        )


def _joined(layers: _Layered) -> YamlSource:
    """A source that finds every key in the file it came from."""
    values = {p: s.values[p] for p, s in layers.sources.items() if p in s.values}
    keys = {p: s.keys[p] for p, s in layers.sources.items() if p in s.keys}
    return replace(layers.source, data=layers.data, values=values, keys=keys)


def _places(layers: _Layered) -> tuple[tuple[str, str], ...]:
    """Where every key stands; entries of lists are found through the key of their list."""
    keys = _joined(layers).keys
    named = [p for p in keys if all(isinstance(part, str) for part in p)]
    return tuple(sorted((".".join(map(str, p)), str(keys[p])) for p in named))
