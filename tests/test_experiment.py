"""Experiments: rows, expectations, files written, and what the policies must show."""

from __future__ import annotations

import json

import pytest

import eqsat
from eqsat.cli import run
from eqsat.model.diag import EqsatError

SMALL = """experiment: small
doc: Two rows and one that cannot be.
{extra}
rows:
  - {{name: memory-first, program: two_packs, target: reference, goals: memory}}
  - {{name: packed, program: two_packs, target: avx512-xla, set: [tiles_forced=true]}}
  - {{name: never, program: two_packs, target: reference, budget: {{memory: 1 KiB}}{expect}}}
"""
EXPECT = ", expect: no_program"


def written(tmp_path, extra="", expect=EXPECT):
    path = tmp_path / "small.yaml"
    path.write_text(SMALL.format(extra=extra, expect=expect))
    return path


def test_rows_hold_the_figures_of_their_runs(tmp_path):
    experiment = eqsat.Experiment.read(written(tmp_path))
    results = experiment.run()
    first, packed, never = experiment.rows()
    assert first["goals"] == ["memory"]
    assert first["dispatches"] == len(results.outcomes[0].run.schedule.dispatches)
    assert first["peak_bytes"] == results.outcomes[0].run.schedule.peak_bytes
    assert first["gap"] == 0.0
    assert first["verify"] is None
    assert first["measured"] is None
    assert packed["fused_conversions"] + packed["packs"] > 0
    assert packed["baseline"]["admissible"] is False
    assert never["status"] == "no program"
    assert never["as_expected"] is True
    assert "1,024 bytes" in never["message"]
    assert results.problems() == ()
    assert "same program" not in results.to_text()


def test_the_table_shows_rows_and_messages(tmp_path):
    experiment = eqsat.Experiment.read(
        written(tmp_path, "measure: {runs: 2, warmup: 1, processes: 1}")
    )
    with pytest.raises(EqsatError, match="E405"):
        experiment.table()
    experiment.run()
    lines = experiment.table().splitlines()
    assert lines[0].split()[0] == "row"
    assert lines[0].split()[-2:] == ["measured", "CPU"]
    assert [line.split()[0] for line in lines[1:4]] == ["memory-first", "packed", "never"]
    assert "ok" in lines[1]
    assert any("no program (as expected)" in line for line in lines)
    assert any("error[E410]" in line for line in lines)
    assert experiment.rows()[0]["measured"]["runs"] == 2


def test_files_are_written_whole(tmp_path, capsys):
    out = tmp_path / "results"
    assert run(["experiment", str(written(tmp_path)), "-o", str(out)]) == 0
    table, talk = capsys.readouterr()
    assert sorted(p.name for p in out.iterdir()) == [
        "eqsat.sqlite", "runs", "small.html", "small.json",
    ]  # fmt: skip
    data = json.loads((out / "small.json").read_text())
    assert [r["name"] for r in data["rows"]] == ["memory-first", "packed", "never"]
    assert data["versions"]["eqsat"] == eqsat.__version__
    page = (out / "small.html").read_text()
    assert "memory-first" in page
    assert page.count("<script") == page.count("</script")
    assert "memory-first" in table
    assert str(out / "small.html") in talk


def test_a_name_with_slashes_stays_in_the_folder(tmp_path, capsys):
    file = written(tmp_path)
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("experiment: small", "experiment: ../a/small"), encoding="utf-8")
    out = tmp_path / "deep" / "results"
    assert run(["experiment", str(file), "-o", str(out), "-q", "--row", "never"]) == 0
    assert sorted(p.name for p in out.iterdir()) == [
        "..-a-small.html", "..-a-small.json", "eqsat.sqlite", "runs",
    ]  # fmt: skip


def test_results_that_cannot_be_written_are_a_sentence(tmp_path, capsys):
    file = written(tmp_path)
    assert run(["experiment", str(file), "-o", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error[E407]")


def test_json_on_stdout(tmp_path, capsys):
    args = ["experiment", str(written(tmp_path)), "-o", str(tmp_path / "r"), "-q"]
    assert run([*args, "--row", "never", "--output-format", "json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert [r["name"] for r in json.loads(out)["rows"]] == ["never"]


def test_an_unexpected_failure_exits_1(tmp_path, capsys):
    path = written(tmp_path, expect="")
    rows = ["--row", "memory-first", "--row", "never"]
    assert run(["experiment", str(path), "-o", str(tmp_path / "r"), *rows]) == 1
    out, err = capsys.readouterr()
    assert "error[E410]" in err
    assert "memory-first" in out  # the other rows ran all the same
    assert (tmp_path / "r" / "small.json").exists()


def test_an_unexpected_program_exits_1(tmp_path, capsys):
    path = tmp_path / "x.yaml"
    path.write_text(
        "experiment: x\ndoc: d\nrows:\n  - {name: a, program: two_packs, target: reference,"
        " expect: no_program}\n"
    )
    assert run(["experiment", str(path), "-o", str(tmp_path / "r"), "-q"]) == 1
    assert "error[E411]" in capsys.readouterr().err


def test_what_cannot_be_read_is_told_before_the_first_row(tmp_path, capsys):
    (tmp_path / "bad.eqs").write_text("program bad\nreturn y\n")
    path = tmp_path / "x.yaml"
    path.write_text(
        "experiment: x\ndoc: d\ntargets: reference\nrows:\n"
        f"  - {{name: a, program: {tmp_path / 'bad.eqs'}}}\n"
        "  - {name: b, program: two_packs}\n"
    )
    assert run(["experiment", str(path), "-o", str(tmp_path / "r"), "-q"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "error[E303]" in err
    assert "bad.eqs:2:" in err


def test_repeats_give_the_same_answer(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(
        "experiment: x\ndoc: d\nrepeat: 2\nprograms: two_packs\ntargets: reference\n"
        "vary: {goals: [time, memory]}\n"
    )
    experiment = eqsat.Experiment.read(path)
    experiment.run()
    first = experiment.rows()
    experiment.run()
    for a, b in zip(first, experiment.rows(), strict=True):
        assert len(a["totals_s"]) == 2
        timed = ("seconds", "totals_s")
        assert {k: v for k, v in a.items() if k not in timed} == {
            k: v for k, v in b.items() if k not in timed
        }


@pytest.mark.slow
def test_the_whole_models():
    experiment = eqsat.Experiment.read("policies")
    experiment.run(rows=["mlp_784-forced", "mlp_784-free", "encoder"])
    forced, free, encoder = experiment.rows()
    # every matmul's weight is packed: two ahead of time, the third where it is read, as its 10
    # columns padded to 16 would take memory, and no time is saved by holding them
    assert forced["weight_packs"] == 2
    assert forced["fused_conversions"] == 3  # packs of x and that weight, an unpack at the end
    assert free["weight_packs"] == 2  # in panels, as kernels stream them, and not by force
    assert free["time_us"] < free["baseline"]["time_us"]
    for row in (free, encoder):
        assert row["baseline"]["admissible"]
        assert row["time_us"] <= row["baseline"]["time_us"]
    assert all(r["verify"]["ok"] for r in (forced, free, encoder))


OPEN = """program open
symbol m divisor=16 size=128
input x: f32[m, 64]
weight w: f32[64, 32]
h = matmul(x, w)
y = relu(h)
return y
"""
PLACED = """devices: pair
doc: Two equal machines.
default: here
targets: {here: reference, there: reference}
links: [{between: [here, there], bandwidth: 1 GB/s, latency: 1 us}]
values: {"%3": there}
"""


def test_sizes_of_symbols_are_priced_per_row(tmp_path):
    (tmp_path / "open.eqs").write_text(OPEN)
    path = tmp_path / "sized.yaml"
    path.write_text(
        f"experiment: sized\ndoc: d\nprograms: {tmp_path}/open.eqs\ntargets: reference\n"
        "sizes: {m: 256}\n"
        "rows:\n  - {name: as-the-file-says}\n  - {name: smaller, sizes: {m: 32}}\n"
        '  - {name: promised, sizes: {m: "512:64"}}\n'
    )
    rows = eqsat.Experiment.read(path).run().rows()
    # one byte takes 1 ns: x, w and y once each
    assert [r["time_us"] for r in rows] == [(4 * (96 * m + 2048)) / 1000 for m in (256, 32, 512)]


def test_a_grid_varies_sizes(tmp_path):
    (tmp_path / "open.eqs").write_text(OPEN)
    path = tmp_path / "grid.yaml"
    path.write_text(
        f"experiment: grid\ndoc: d\nprograms: {tmp_path}/open.eqs\ntargets: reference\n"
        "vary: {sizes: [{m: 16}, {m: 64}]}\n"
    )
    rows = eqsat.Experiment.read(path).run().rows()
    assert [r["time_us"] for r in rows] == [(4 * (96 * m + 2048)) / 1000 for m in (16, 64)]


def test_a_row_may_run_on_a_map_of_devices(tmp_path):
    (tmp_path / "open.eqs").write_text(OPEN)
    (tmp_path / "pair.yaml").write_text(PLACED)
    path = tmp_path / "placed.yaml"
    path.write_text(
        f"experiment: placed\ndoc: d\nprograms: {tmp_path}/open.eqs\n"
        f"devices: {tmp_path}/pair.yaml\n"
        "rows:\n  - {name: both}\n  - {name: one, target: reference}\n"
    )
    both, one = eqsat.Experiment.read(path).run().rows()
    assert both["time_us"] > one["time_us"]
    assert both["dispatches"] > one["dispatches"]


def test_another_target_takes_the_place_of_the_only_one(tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text("experiment: one\ndoc: d\nprograms: two_packs\ntargets: reference\n")
    found = eqsat.Experiment.read(path).on("no-data-tiling").plan.cells
    assert [(c.name, c.target) for c in found] == [("two_packs@no-data-tiling", "no-data-tiling")]
    with pytest.raises(EqsatError, match="E200"):
        eqsat.Experiment.read(path).on("no-data-tilin")
    with pytest.raises(EqsatError, match=r"E263.*rows of 2 targets"):
        eqsat.Experiment.read(written(tmp_path)).on("reference")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("sizes: {m: big}", "E385"),
        ('sizes: {m: "128:0"}', "E386"),
        ("devices: nowhere.yaml", "E211"),
    ],
)
def test_sizes_and_devices_that_make_no_sense_name_their_place(tmp_path, line, code):
    path = tmp_path / "bad.yaml"
    path.write_text(f"experiment: bad\ndoc: d\nprograms: two_packs\ntargets: reference\n{line}\n")
    with pytest.raises(EqsatError) as caught:
        eqsat.Experiment.read(path)
    assert {d.code for d in caught.value.diagnostics} == {code}
    assert all(d.span is not None and d.span.line == 5 for d in caught.value.diagnostics)


# ---- ablation and pivots -------------------------------------------------------------------------
ABLATED = """experiment: ablated
doc: What is each rule worth?
programs: transposed_pack
targets: reference
rules: layout/pack
ablate: {what}
"""


def ablation(tmp_path, what, **options):
    path = tmp_path / "ablated.yaml"
    path.write_text(ABLATED.format(what=what), encoding="utf-8")
    experiment = eqsat.Experiment.read(path)
    return experiment, experiment.run(**options)


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    return ablation(tmp_path_factory.mktemp("every"), "rules")


def test_every_rule_is_left_out_once(every):
    experiment, results = every
    known = [r.name for r in eqsat.rules("layout/pack").rules]
    whole, *others = experiment.plan.cells
    assert [c.left_out for c in others] == [(name,) for name in known]
    assert [c.whole for c in others] == [whole.name] * len(known)
    for o in results.outcomes[1:]:
        used = [r.name for r in o.run.rules.rules]
        assert used == [name for name in known if name not in o.cell.left_out]


def test_only_rules_that_matched_are_screened_in_and_the_others_change_nothing(tmp_path, every):
    _, results = every
    _, some = ablation(tmp_path, "rules", screen=True)
    whole = results.outcomes[0].record
    status = [o.record.status for o in some.outcomes]
    assert {"found", "not run"} == set(status)
    for o, told in zip(results.outcomes[1:], status[1:], strict=True):
        assert (told == "found") == bool({*o.cell.left_out} & {*whole.fired})
        if told == "not run":
            assert o.record.program_hash == whole.program_hash
    text = some.to_text()
    silent = status.count("not run")
    said = f"{silent} of {len(status)} rows not run, as nothing that they leave out matched: "
    assert text.count("not run") == text.count(said) == 1
    assert max(map(len, text.splitlines())) < 400


def test_sets_and_tags_are_left_out_as_a_whole(tmp_path):
    experiment, _ = ablation(tmp_path, "sets", screen=True)
    sets = dict.fromkeys(r.ruleset for r in eqsat.rules("layout/pack").rules)
    assert [c.varied[-1] for c in experiment.plan.cells[1:]] == [("without", s) for s in sets]


def test_a_pivot_marks_the_best_and_what_is_not_proven(tmp_path, capsys):
    path = tmp_path / "two.yaml"
    path.write_text(
        "experiment: two\ndoc: d\nprograms: [two_packs, three_readers]\ntargets: avx512\n"
        "vary: {rules: [policy/keep, default]}\n",
        encoding="utf-8",
    )
    args = ["experiment", str(path), "-o", str(tmp_path / "r"), "--pivot", "program,rules"]
    assert run(args) == 0
    head, first, second, *rest = capsys.readouterr().out.splitlines()
    assert head.split() == ["program", "policy/keep", "default"]
    assert first.count("*") == 2  # the same time
    assert second.count("*") == 1
    assert second.rstrip().endswith("*")
    assert "* best of its line" in rest[-2]
    for wrong, said in (("program,rule", "did you mean `rules`"), ("program,rules,time", "E438")):
        assert run([*args[:-1], wrong]) == 2
        assert said in capsys.readouterr().err


def test_rows_with_the_same_program_are_told(tmp_path):
    path = tmp_path / "same.yaml"
    path.write_text(
        "experiment: s\ndoc: d\nprograms: two_packs\ntargets: reference\nvary: {seed: [0, 1]}\n",
        encoding="utf-8",
    )
    text = eqsat.Experiment.read(path).run().to_text()
    assert "same program of two_packs: all alike (2 rows)" in text
