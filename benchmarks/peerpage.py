"""The tables of benchmarks/peers.md from what `peers.py` wrote, and that of README.md from these.

python benchmarks/peerpage.py [results/peers.json …]
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from peermodels import ALL, FURTHER, HELD

PAGE = Path(__file__).resolve().with_name("peers.md")
README = PAGE.parent.parent / "README.md"
# columns of the first page
SHOWN = ("model", "eqsat", "`jax.jit`", "onnxruntime", "OpenVINO", "IREE", "torch", "of the best")
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"
OTHERS = "<!-- figures of others -->\n", "<!-- end of figures of others -->\n"
MORE = "<!-- figures of further models -->\n", "<!-- end of figures of further models -->\n"
FIRST = "<!-- peers -->\n", "<!-- end of peers -->\n"
NOT_TIMED = "not timed yet"
AHEAD, LEVEL, BEHIND, WRONG = "ahead", "within the noise", "behind", "wrong numbers"
RATIO = re.compile(r"([\d.]+) \([\d.]+–([\d.]+)\)")
COLUMNS = {
    "eqsat": "eqsat", "jax": "`jax.jit`", "jax_closed": "closed", "jax_nhwc": "NHWC",
    "onnxruntime": "onnxruntime", "openvino": "OpenVINO", "iree": "IREE", "torch": "torch",
}  # fmt: skip
Row = Mapping[str, Any]


def page(text: str, found: Mapping[str, Any]) -> str:
    """The page with the tables of these models as they are now."""
    first, more = (
        {**found, "models": {m: r for m, r in found["models"].items() if (m in FURTHER) == is_more}}
        for is_more in (False, True)
    )
    if first["models"]:
        counts = sorted({int(t) for rows in first["models"].values() for t in rows})
        parts = [about(first), *(table(first, threads) for threads in counts)]
        text = _with(text, (BEGIN, END), "\n" + "\n".join(parts))
    return _with(text, MORE, further(more)) if more["models"] else text


def _with(text: str, marks: tuple[str, str], inside: str) -> str:
    begin, end = marks
    return text[: text.index(begin) + len(begin)] + inside + text[text.index(end) :]


def about(found: Mapping[str, Any]) -> str:
    """Machine, date and versions in a sentence."""
    versions: dict[str, str] = {}
    for rows in found["models"].values():
        for row in rows.values():
            versions |= {k: side["version"] for k, side in row["sides"].items()}
    told = ", ".join(
        f"{name.strip('`')} {versions[k]}"
        for k, name in COLUMNS.items()
        if k in versions and k not in ("jax_closed", "jax_nhwc")
    )
    return f"{found['machine']}, {found['date']}, target `{found['target']}`; {told}.\n"


def table(found: Mapping[str, Any], threads: int) -> str:
    """One table: a row per model, milliseconds per call and side."""
    rows = {m: r[str(threads)] for m, r in found["models"].items() if str(threads) in r}
    used = [k for k in COLUMNS if any(k in r["sides"] for r in rows.values())]
    heads = ["model", *(COLUMNS[k] for k in used), "of `jax.jit`", "of the best", "memory"]
    lines = [_line(heads), _line(["---"] * len(heads))]
    lines += [_line([m, *cells(r, used)]) for m, r in rows.items()]
    title = "One thread" if threads == 1 else f"{threads} threads"
    return f"### {title}\n\n" + "\n".join(lines) + "\n"


# ---- further models -----------------------------------------------------------------------------
def further(found: Mapping[str, Any]) -> str:
    """All further models on one thread, losses first, those that were not timed last."""
    rows = {m: r["1"] for m, r in found["models"].items() if "1" in r}
    used = [k for k in COLUMNS if any(k in r["sides"] for r in rows.values())]
    heads = ["model", *(COLUMNS[k] for k in used), "of `jax.jit`", "of the best", "half", "timed"]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for m in sorted(rows, key=lambda m: _standing(rows[m])):
        shown = [m, *_times(rows[m], used), *_of_others(rows[m])]
        lines.append(_line([*shown, _half(m), f"{rows[m]['date']}, {rows[m]['commit']}"]))
    for m in (m for m in FURTHER if m not in rows):
        lines.append(_line([m, *["–"] * (len(used) + 2), _half(m), NOT_TIMED]))
    return "\n" + (about(found) + "\n" if rows else "") + "\n".join(lines) + "\n"


def _half(model: str) -> str:
    return "held" if model in HELD else "open"


def _standing(row: Row) -> float:
    """The ratio to the best other side; 0 where eqsat has no figure."""
    return row["ratios"].get(best_peer(row), [0.0])[0]


def _times(row: Row, used: Sequence[str]) -> list[str]:
    """Milliseconds, the best other side's in bold; ʰ is a file that was written by hand."""
    sides, best = row["sides"], best_peer(row)
    found = []
    for k in used:
        mark = " ʰ" if k in sides and sides[k]["setting"].endswith("_natural") else ""
        text = f"{sides[k]['ms']:.3g}" if k in sides else "–"
        found.append((f"**{text}**" if k == best else text) + mark)
    return found


def _of_others(row: Row) -> list[str]:
    """Ratios to the better of both `jax.jit` and to the best other side."""
    jax = min((k for k in ("jax", "jax_closed") if k in row["sides"]),
              key=lambda k: row["sides"][k]["ms"], default="")  # fmt: skip
    ratios = [_ratio(row["ratios"].get(k)) for k in (jax, best_peer(row))]
    return ratios if "eqsat" in row["sides"] else [ratios[0], WRONG]


# ---- what tables share --------------------------------------------------------------------------
def cells(row: Row, used: Sequence[str]) -> list[str]:
    """A row's milliseconds, ratios with their intervals, and MiB beside the best peer's."""
    sides, best = row["sides"], best_peer(row)
    times = [f"{sides[k]['ms']:.3g}" if k in sides else "–" for k in used]
    times = [f"**{t}**" if k == best else t for k, t in zip(used, times, strict=True)]
    ratios = [_ratio(row["ratios"].get(k)) for k in ("jax", best)]
    mib = [f"{model_mib(sides[k]):.0f}" if k in sides else "–" for k in ("eqsat", best)]
    return [*times, *ratios, ", ".join(mib)]


def best_peer(row: Row) -> str:
    """The side with the least time that is not eqsat; `eqsat` if there is no other."""
    peers = {k: side["ms"] for k, side in row["sides"].items() if k != "eqsat"}
    return min(peers, key=lambda k: peers[k], default="eqsat")


def model_mib(side: Mapping[str, Any]) -> float:
    """What a model adds to a process that has loaded the library."""
    return side["resident_mib"] - side["base_mib"]


def _ratio(interval: Sequence[float] | None) -> str:
    if interval is None:
        return "–"
    middle, low, high = interval
    return f"{middle:.2f} ({low:.2f}–{high:.2f}){' ✓' if low > 1 else ' ✗' if high < 1 else ''}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


# ---- README.md ----------------------------------------------------------------------------------
def first_page(text: str) -> str:
    """One thread in milliseconds beside the sides of SHOWN; of each other table who is behind."""
    tables = _between(text, (BEGIN, END)).split("### ")[1:]
    rows = [[c.strip() for c in r.split("|")[1:-1]] for r in tables[0].splitlines() if r[:1] == "|"]
    shown = [rows[0].index(name) for name in SHOWN]
    lines = [_line([row[i].strip("*").rstrip(" ¹²") for i in shown]) for row in rows]
    lines[0] = lines[0].replace("of the best", "the best other side over eqsat")
    others = [(t.split("\n", 1)[0], standing(t)) for t in tables[1:]]
    unseen, more = standing(_between(text, OTHERS)), standing(_between(text, MORE))
    others += [("models nobody tuned to", unseen), ("further models", more)]
    said = [_summary(name, models) for name, models in others if any(models.values())]
    return "\n".join((*lines, "", *said)) + "\n"


def _summary(name: str, models: Mapping[str, Sequence[tuple[str, float]]]) -> str:
    """`* 2 threads: ahead on 11 of 14; behind: resnet50 0.93, …`"""
    count = sum(map(len, models.values()))
    lost = [f"{w}: {_listed(models[w])}" for w in (BEHIND, WRONG) if models[w]]
    return "; ".join((f"* {name}: ahead on {len(models[AHEAD])} of {count}", *lost))


def standing(table: str) -> dict[str, list[tuple[str, float]]]:
    """Models of one table with the ratio to the best other side, by what its interval says."""
    found: dict[str, list[tuple[str, float]]] = {w: [] for w in (AHEAD, LEVEL, BEHIND, WRONG)}
    rows = [[c.strip() for c in r.split("|")[1:-1]] for r in table.splitlines() if r[:1] == "|"]
    at = rows[0].index("of the best")
    for row in rows[2:]:
        if row[-1] == NOT_TIMED:
            continue
        ratio = RATIO.match(row[at])
        middle, high = (float(ratio[1]), float(ratio[2])) if ratio else (0.0, 0.0)
        word = AHEAD if "✓" in row[at] else BEHIND if high < 1 else LEVEL
        found[word if ratio else WRONG].append((row[0].rstrip(" ¹²"), middle))
    return {w: sorted(models, key=lambda m: -m[1]) for w, models in found.items()}


def _listed(models: Sequence[tuple[str, float]]) -> str:
    """`minilm 1.09, bert 1.04`; of wrong ones only the names."""
    return ", ".join(f"{name} {ratio:.2f}" if ratio else name for name, ratio in models)


def _between(text: str, marks: tuple[str, str]) -> str:
    begin, end = marks
    return text[text.index(begin) + len(begin) : text.index(end)]


def write(found: Mapping[str, Any] | None) -> None:
    """The page of the repository, if something was measured, and the table of its README."""
    text = PAGE.read_text(encoding="utf-8")
    text = text if found is None else page(text, found)
    PAGE.write_text(text, encoding="utf-8")
    readme = README.read_text(encoding="utf-8")
    old = _between(readme, FIRST)
    README.write_text(readme.replace(FIRST[0] + old, FIRST[0] + first_page(text)), encoding="utf-8")


def merged(files: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What several runs on one machine found, in the order of the models."""
    rows: dict[str, dict[str, Any]] = {}
    for found in files:
        for model, threads in found["models"].items():
            rows.setdefault(model, {}).update(threads)
    order = [m for m in ALL if m in rows]
    return dict(files[-1]) | {"models": {m: rows[m] for m in order}}


if __name__ == "__main__":
    files = [json.loads(Path(p).read_text(encoding="utf-8")) for p in sys.argv[1:]]
    write(merged(files) if files else None)
