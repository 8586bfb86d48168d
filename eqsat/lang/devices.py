"""Device map YAML → `model.devices.DeviceMap`, and the machine its targets make together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from eqsat.lang.problems import Bandwidth, Record, Time, coded, read_record
from eqsat.lang.requests import override
from eqsat.lang.source import YamlSource, load_yaml, refuse
from eqsat.lang.targets import load_target
from eqsat.model.devices import DeviceMap, Link
from eqsat.model.diag import Diagnostic, check_known, did_you_mean, fail
from eqsat.model.target import Target
from eqsat.plugins import find_names

Name = Annotated[str, Field(pattern=r"^[A-Za-z][\w.-]*$")]


def _positive(value: float) -> float:
    if value <= 0:
        raise coded("E201", "a bandwidth is more than 0")
    return value


class LinkRecord(Record):
    """A link: `between` two devices, both ways, or from `origin` to `device` alone."""

    between: Annotated[list[Name], Field(min_length=2, max_length=2)] | None = None
    origin: Name | None = None
    device: Name | None = None
    bandwidth: Annotated[Bandwidth, AfterValidator(_positive)]
    latency: Time = 0

    @model_validator(mode="after")
    def _one_form(self) -> LinkRecord:
        ends = {self.origin, self.device}
        if ends == {None} if self.between is not None else None not in ends:
            return self
        raise coded(
            "E213", "a link has two ends", "write `between: [a, b]`, or `origin: a` and `device: b`"
        )

    def ends(self) -> list[tuple[str, str]]:
        if self.between is not None:
            a, b = self.between
            return [(a, b), (b, a)]
        return [(self.origin or "", self.device or "")]


class DevicesRecord(Record):
    """Several devices: their targets, the links between them, and where values live."""

    devices: Name
    doc: str = ""
    default: Name
    targets: Annotated[dict[Name, str], Field(min_length=1, max_length=64)]
    links: list[LinkRecord] = Field(default_factory=list)
    values: dict[str, Name] = Field(default_factory=dict)


def find_devices(name: str | Path, folders: Iterable[str | Path] = ()) -> Path:
    """The file of a device map: a path, or a name on the search path (E211)."""
    if str(name).endswith((".yaml", ".yml")):
        if Path(name).is_file():
            return Path(name)
        raise fail("E211", f"no device map `{name}`")
    files = find_names("devices", ".yaml", folders)
    check_known(str(name), files, "E211", f"no device map named `{name}`")
    return files[str(name)]


def load_devices(name: str | Path, folders: Iterable[str | Path] = ()) -> DeviceMap:
    """A device map by name or path; EqsatError (E0xx, E2xx) holds all problems of its file."""
    source = load_yaml(find_devices(name, folders))
    record, problems = read_record(DevicesRecord, source)
    if record is not None:
        problems += _problems(record, source)
    refuse(problems)
    assert record is not None
    links = tuple(
        Link(a, b, link.bandwidth, link.latency) for link in record.links for a, b in link.ends()
    )
    return DeviceMap(
        record.devices, record.doc, tuple(record.targets.items()), record.default, links,
        tuple(record.values.items()), source.file,
    )  # fmt: skip


def _problems(r: DevicesRecord, source: YamlSource) -> Iterator[Diagnostic]:
    """E212 for a device without a target, E213 for a link that is there twice or leads nowhere."""
    devices = list(r.targets)
    named = [(("default",), r.default)]
    named += [(("values", v), d) for v, d in r.values.items()]
    for i, link in enumerate(r.links):
        named += [(("links", i), end) for end in link.ends()[0]]
        if len(set(link.ends()[0])) < 2:
            message = f"a link from `{link.ends()[0][0]}` to itself"
            yield Diagnostic("E213", message, source.span(("links", i)))
    for path, device in named:
        if device not in devices:
            message = f"no device `{device}`"
            yield Diagnostic("E212", message, source.span(path), help=did_you_mean(device, devices))
    count = Counter(ends for link in r.links for ends in link.ends())
    for i, link in enumerate(r.links):
        twice = next((e for e in link.ends() if e[0] != e[1] and count[e] > 1), None)
        if twice is not None:
            message = f"there are {count[twice]} links from `{twice[0]}` to `{twice[1]}`"
            yield Diagnostic("E213", message, source.span(("links", i)))


def machine(devices: DeviceMap, settings: Sequence[str] = ()) -> Target:
    """The target that the devices make together; settings (`--set`) hold for each of them.

    EqsatError (E0xx, E2xx) holds the problems of a target's file.
    """
    names = [devices.default, *(n for n in devices.names if n != devices.default)]
    specs = dict(devices.targets)
    parts = {n: _part(specs[n], devices.links, settings) for n in names}
    first = parts[devices.default]
    return replace(
        first,
        links=devices.links,
        name=devices.name,
        doc=devices.doc,
        data_tiling=any(t.data_tiling for t in parts.values()),
        devices=tuple(parts.items()),
        placed=devices.values,
    )


def _part(spec: str, links: tuple[Link, ...], settings: Sequence[str]) -> Target:
    target = load_target(spec)
    changed = override(target, list(settings)) if settings else target
    return replace(changed, links=links)
