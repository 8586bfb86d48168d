"""Target files and quantities with units."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.lang.requests import override
from eqsat.lang.targets import load_target, read_target
from eqsat.lang.units import DIMENSIONS, QuantityError, quantity, read_budget, read_quantity
from eqsat.model.diag import EqsatError
from eqsat.model.target import Condition, Target
from eqsat.plugins import find_names

TEXT = """target: toy
doc: d
executor: xla
data_tiling: true
memory:
  - {name: ram, size: 1 GiB, bandwidth: 2 GB/s}
"""


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("32 KiB", "size", 32768),
        ("64MiB", "size", 64 << 20),
        ("24 GB", "size", 24 * 10**9),
        ("0.5 KiB", "size", 512),
        ("25 GB/s", "bandwidth", 25e9),
        ("1 us", "time", 10**6),
        ("3 ns", "time", 3000),
        ("0 ns", "time", 0),
        ("0.1 ns", "time", 100),
        ("60s", "duration", 60.0),
        ("2 min", "duration", 120.0),
        ("250 GFLOP/s", "rate", 250e9),
        ("1 TOP/s", "rate", 1e12),
        ("1_000 B", "size", 1000),
        ("1e3 B", "size", 1000),
    ],
)
def test_quantities(text: str, dimension: str, value: float) -> None:
    found = quantity(text, dimension)
    assert found == value
    assert isinstance(found, int) is DIMENSIONS[dimension].whole


@pytest.mark.parametrize(
    ("value", "dimension", "code", "help"),
    [
        (400, "bandwidth", "E203", "write `400 GB/s`"),
        ("400", "time", "E203", "write `400 us`"),
        ("1 MiBs", "size", "E204", "did you mean `MiB`?"),
        ("1 mib", "size", "E204", "did you mean `MiB`?"),
        ("fast", "rate", "E201", "write for example `1 GFLOP/s`"),
        ("-1 KiB", "size", "E201", "write for example `1 KiB`"),
        (True, "size", "E201", "write for example `1 KiB`"),
    ],
)
def test_quantities_that_cannot_be_read(
    value: object, dimension: str, code: str, help: str
) -> None:
    with pytest.raises(QuantityError) as caught:
        quantity(value, dimension)
    assert (caught.value.code, caught.value.help) == (code, help)


@given(st.integers(0, 10**12), st.sampled_from(sorted(DIMENSIONS["size"].units)))
def test_sizes_are_exact(number: int, unit: str) -> None:
    assert quantity(f"{number} {unit}", "size") == number * int(DIMENSIONS["size"].units[unit])


def test_budgets_of_the_command_line() -> None:
    assert read_budget("memory=64MiB") == ("memory", 64 << 20)
    assert read_budget("time=2 ms") == ("time", 2 * 10**9)
    assert read_budget("dispatches=3") == ("dispatches", 3)
    for wrong, code in (("memory=64", "E203"), ("size=3 B", "E205"), ("dispatches=x", "E201")):
        with pytest.raises(EqsatError, match=code):
            read_budget(wrong)
    with pytest.raises(EqsatError, match="--time-limit"):
        read_quantity("soon", "duration", "--time-limit")


@pytest.mark.parametrize("name", sorted(find_names("targets", ".yaml")))
def test_shipped_targets(name: str) -> None:
    target = load_target(name)
    target.verify()
    assert target.name == name
    assert Target.from_json(target.to_json()) == target
    assert target.place("target").endswith(f"targets/{name}.yaml:2:1")


def test_reference_is_one_nanosecond_per_byte() -> None:
    target = load_target("reference")
    assert [m.bandwidth for m in target.memory] == [1e9]
    assert (target.launch_ps, target.rate("f32")) == (0, None)
    assert not target.fusion.multi_result


def test_avx512_has_narrow_tiles() -> None:
    target = load_target("avx512-xla")
    narrow = [t for t in target.vocabulary("matmul") if Condition("lhs", "==", "f32") in t.when]
    assert [t["m"] for t in narrow] == [16, 8, 4, 2, 1]
    assert (target.limits.vector_bytes, target.fusion.siblings) == (None, True)
    assert target.source


def test_extending_target_keeps_keys_and_their_places() -> None:
    below, target = load_target("avx512-xla"), load_target("no-data-tiling")
    assert (target.data_tiling, target.vocabulary("matmul")) == (False, ())
    assert target.memory == below.memory
    assert target.place("limits.scratch") == below.place("limits.scratch")
    assert "no-data-tiling" in target.place("data_tiling")


def test_extending_replaces_lists_and_merges_mappings(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(TEXT + "limits: {vector: 8 KiB, scratch: 1 KiB}\n")
    text = (
        "target: new\ndoc: d\nextends: base\nlimits: {vector: 4 KiB}\n"
        "memory:\n  - {name: fast, size: 1 MiB, bandwidth: 1 GB/s}\n"
    )
    target = read_target(text, "new.yaml", [tmp_path])
    assert (target.limits.vector_bytes, target.limits.scratch_bytes) == (4096, 1024)
    assert [m.name for m in target.memory] == ["fast"]
    assert target.place("limits.vector") == "new.yaml:4:10"
    assert target.place("limits.scratch").endswith("base.yaml:7:25")


def test_an_error_below_is_reported_in_the_file_below(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(TEXT + "limits: {vector: 8}\n")
    with pytest.raises(EqsatError) as caught:
        read_target("target: new\ndoc: d\nextends: base\n", "new.yaml", [tmp_path])
    (d,) = caught.value.diagnostics
    assert (d.code, str(d.span).rpartition("/")[2]) == ("E203", "base.yaml:7:18")


def test_settings() -> None:
    target = override(
        read_target(TEXT, "toy.yaml"),
        [
            "fusion.multi_result=true",
            "limits.vector=8 KiB",
            "tiles.matmul=[{mnk: [16,16,16], rate: 0.9, when: m <= 8}]",
            "tiles_forced=true",
            "launch=3 us",
            "budget.memory=1 MiB",
            "fusion.join.move=[conversion]",
        ],
    )
    assert target.fusion.multi_result
    assert target.fusion.roots == 1
    assert target.limits.vector_bytes == 8192
    (tile,) = target.vocabulary("matmul")
    assert (tile["k"], tile.when) == (16, (Condition("m", "<=", 8),))
    assert (target.tiles_forced, target.launch_ps) == (True, 3 * 10**6)
    assert target.budget == (("memory", 1 << 20),)
    assert target.fusion.joins("move", "conversion")
    assert not target.fusion.joins("move", "elementwise")
    assert target.fusion.joins("elementwise", "contraction")
    assert target.place("limits.vector") == "--set limits.vector"


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ("fusion.multi_resul=true", "E003"),
        ("speed=1", "E208"),
        ("fusion", "E208"),
        ("target=x", "E208"),
        ("launch=3", "E203"),
        ("launch=[", "E001"),
        ("fusion.index_relation=some", "E005"),
        ("fusion.result_relation=some", "E005"),
    ],
)
def test_wrong_settings_name_themselves(setting: str, code: str) -> None:
    with pytest.raises(EqsatError) as caught:
        override(read_target(TEXT, "toy.yaml"), ["tiles_forced=true", setting])
    (d,) = caught.value.diagnostics
    assert d.code == code
    assert f"--set {setting}" in d.message


def test_unknown_target_names_the_nearest() -> None:
    with pytest.raises(EqsatError) as caught:
        load_target("avx521")
    assert caught.value.diagnostics[0].help == "did you mean `avx512`?"


VOCABULARIES = (
    TEXT
    + """tiles:
  matmul:
    - {mnk: [16, 16, 32], rate: 0.9, order: [m, k, n], vnni: 2}
  conv1d: [{c: 8, k: 8, rate: 0.5}]
  conv2d: [{c: 16, k: 32, rate: 0.7, when: [c >= 16, lhs == f32]}]
"""
)


def test_vocabularies_of_every_kind() -> None:
    target = read_target(VOCABULARIES)
    (matmul,), (conv,) = target.vocabulary("matmul"), target.vocabulary("conv2d")
    assert (matmul.order, matmul.vnni, matmul.extents) == (("m", "k", "n"), 2, (16, 16, 32))
    assert (conv.extents, conv.when[0]) == ((1, 32, 16), Condition("c", ">=", 16))
    assert len(target.vocabulary("conv1d")) == 1
    assert Target.from_json(target.to_json()) == target
    changed = override(target, ["tiles.conv2d=[{c: 4, k: 4, rate: 1}]"])
    assert changed.vocabulary("conv2d")[0].extents == (1, 4, 4)
    assert changed.vocabulary("matmul") == target.vocabulary("matmul")


@pytest.mark.parametrize(
    ("tile", "code", "says"),
    [
        ("matmul: [{mnk: [8, 8, 4], rate: 1, order: [m, n]}]", "E206", "names m, n and k once"),
        ("matmul: [{mnk: [8, 8, 4], rate: 1, order: [m, m, k]}]", "E206", "names m, n and k once"),
        ("matmul: [{mnk: [8, 8, 3], rate: 1, vnni: 2}]", "E206", "does not divide k = 3"),
        ("matmul: [{mnk: [8, 8, 4], rate: 1, vnni: 0}]", "E206", "at least 1"),
        ("conv2d: [{c: 0, k: 8, rate: 1}]", "E206", "at least 1"),
        ("conv2d: [{c: 8, rate: 1}]", "E206", "`k`"),
        ("conv2d: [{mnk: [8, 8, 1], rate: 1}]", "E003", "mnk"),
        ("conv2d: [{c: 8, k: 8, rate: 1, when: m > 4}]", "E205", "cannot speak of `m`"),
        ("matmul: [{mnk: [8, 8, 1], rate: 1, when: c > 4}]", "E205", "cannot speak of `c`"),
        ("conv3d: [{c: 8, k: 8, rate: 1}]", "E003", "conv3d"),
    ],
)
def test_bad_tiles_are_refused(tile: str, code: str, says: str) -> None:
    with pytest.raises(EqsatError) as caught:
        read_target(f"{TEXT}tiles:\n  {tile}\n")
    assert code in {d.code for d in caught.value.diagnostics}
    assert says in " ".join(d.message for d in caught.value.diagnostics)
