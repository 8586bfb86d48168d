"""How much house there is: lines, names, cycles, repetition; and whether it works as quickly.

    python benchmarks/house.py count [--at REV] [--names] [--out FILE]
    python benchmarks/house.py times --against REV [--rounds N] [--only NAME …] [--out FILE]

`count` reads eqsat/ of the working tree, or of a revision, and prints one JSON object: files, lines
and lines of code (neither blank, comment nor docstring) per folder; functions over 60 and files
over 400 lines; attribute functions, rules and lines of rules; names of module-level classes and
public functions that stand in two modules or more; modules in import cycles, imports inside
functions counted; pairs of places of SHARED_RUN lines of code that are alike but for names and
values, fields and arguments with their types apart;
per op of the language the files its name stands in as a string. `--names` lists names,
cycles and pairs.

`times` checks REV out beside the working tree and runs both, a process per checkout, program and
round, interleaved: processor seconds of saturation, in attribute functions and of the whole search,
medians and the median of paired ratios with its 95 % interval, nodes and classes of the e-graph
and the values of the goals. Exit code 1 if an e-graph has grown or a proven value differs.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SHARED_RUN = 6  # lines
TOO_COMMON = 8  # places: what stands in more is an idiom
# a field or an argument with its type, a decorator, the head of a class
DECLARES = re.compile(r"\w+: [\w\[\], .|]+( = [^()]+?)?,?|@dataclass\(.*\)|class \w+(\(.*\))?:")
LONG_FUNCTION, LONG_FILE = 60, 400
OPS = (
    "transpose", "reshape", "slice", "pad", "pack", "unpack", "concat", "gather", "relax", "retype",
    "generic", "fill", "set_encoding", "unset_encoding", "transfer", "opaque", "result",
)  # fmt: skip
# names of one interface that sibling modules offer each
INTERFACES = frozenset({"emit", "plan"})
# where functions are named after what they read or write, in the words of another language
FOREIGN = ("eqsat/frontends/", "eqsat/export/", "eqsat/cli/")
PROGRAMS = (
    ("encoder", "avx512-xla"), ("encoder", "reference"), ("resnet50", "avx512-xla"),
    ("llama", "avx512-xla"), ("unet", "avx512-xla"), ("bottlenecks", "avx512"),
    ("stablelm", "reference"), ("conv_qdq_residual", "avx512"), ("mlp.py:mlp_784", "gfx942"),
    ("transposed_pack", "iree-like"), ("minilm", "avx512-xla"),
)  # fmt: skip
CHILD = """
import json, sys, time
import eqsat
try:
    from eqsat.ops.attrs import FUNCTIONS
except ImportError:
    from eqsat.ops import FUNCTIONS
from dataclasses import replace
spent, depth = 0.0, 0
def timed(f):
    def call(*args):
        global spent, depth
        if depth:
            return f(*args)
        depth, begin = 1, time.process_time()
        try:
            return f(*args)
        finally:
            depth, spent = 0, spent + time.process_time() - begin
    return call
for name, f in list(FUNCTIONS.items()):
    FUNCTIONS[name] = replace(f, meaning=timed(f.meaning))
source = eqsat.read(sys.argv[1])
begin = time.process_time()
graph = eqsat.optimize(source, target=sys.argv[2], stop_after="egraph").egraph
saturation, functions = time.process_time() - begin, spent
begin = time.process_time()
run = eqsat.optimize(source, target=sys.argv[2], time_limit=120)
whole = time.process_time() - begin
goals = {k: [v.value, v.bound] for k, v in run.selection.goals}
print(json.dumps({
    "saturation_s": saturation, "functions_s": functions, "search_s": whole,
    "nodes": len(graph.nodes), "classes": len({n.eclass for n in graph.nodes}),
    "goals": goals, "stop": run.selection.stop,
}))
"""
TIMED = ("saturation_s", "functions_s", "search_s")

Json = dict[str, Any]


# ---- reading -------------------------------------------------------------------------------------
def sources(root: Path) -> dict[str, str]:
    """Path below the root → text, of every file of the package."""
    return {
        str(p.relative_to(root)): p.read_text(encoding="utf-8")
        for p in sorted((root / "eqsat").rglob("*.py"))
    }


def code_lines(text: str) -> list[int]:
    """Numbers of the lines that hold code: no blank ones, comments and docstrings."""
    skipped = (
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
        tokenize.ENDMARKER,
    )  # fmt: skip
    found: set[int] = set()
    for t in tokenize.generate_tokens(io.StringIO(text).readline):
        if t.type not in skipped:
            found.update(range(t.start[0], t.end[0] + 1))
    return sorted(found - set(_docstrings(ast.parse(text))))


def _docstrings(tree: ast.Module) -> Iterator[int]:
    for n in ast.walk(tree):
        if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(n):
            yield from range(n.body[0].lineno, (n.body[0].end_lineno or 0) + 1)


# ---- counting ------------------------------------------------------------------------------------
def count(root: Path, with_names: bool) -> Json:
    """The figures of one tree."""
    texts = sources(root)
    trees = {p: ast.parse(t) for p, t in texts.items()}
    names = list(shared_names(texts))
    return {
        "sizes": sizes(texts),
        "long_functions": long_functions(trees),
        "long_files": [p for p, t in texts.items() if t.count("\n") > LONG_FILE],
        "attribute_functions": attribute_functions(root),
        "rules": rules(root),
        "names_twice": len(names),
        "modules_in_cycles": sum(map(len, cycles(trees))),
        "alike_pairs": len(alike(texts)),
        "files_per_op": files_per_op(texts),
    } | ({"names": names, "cycles": cycles(trees), "alike": alike(texts)} if with_names else {})


def sizes(texts: Mapping[str, str]) -> Json:
    """Per folder of the package, and in all: files, lines, lines of code."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for path, text in texts.items():
        folder = path.split("/")[1] if path.count("/") > 1 else "."
        for key in ("all", folder):
            found[key].update(files=1, lines=text.count("\n"), code=len(code_lines(text)))
    return {k: dict(v) for k, v in sorted(found.items())}


def long_functions(trees: Mapping[str, ast.Module]) -> list[str]:
    return [
        f"{p}:{n.lineno} {n.name}"
        for p, t in trees.items()
        for n in ast.walk(t)
        if isinstance(n, ast.FunctionDef) and (n.end_lineno or 0) - n.lineno >= LONG_FUNCTION
    ]


def attribute_functions(root: Path) -> int:
    """How many functions rules may name; the tree is asked, as it puts its tables together."""
    code = "from eqsat.ops.attrs import FUNCTIONS; print(len(FUNCTIONS))"
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, check=True
    )
    return int(done.stdout)


def rules(root: Path) -> Json:
    files = [p.read_text(encoding="utf-8") for p in sorted((root / "rules").rglob("*.yaml"))]
    text = "\n".join(files)
    return {"rules": len(re.findall(r"^ +rewrite: ", text, re.M)), "lines": text.count("\n")}


_DEFINED = re.compile(r"^(class|def) (\w+)", re.MULTILINE)  # at the top of a module


def shared_names(texts: Mapping[str, str]) -> Iterator[str]:
    """`name: modules` for what several modules define and no interface explains.

    texts: path below the root → text, from which lines are read, as parsing them all takes seconds.
    """
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for path, text in texts.items():
        for kind, name in _DEFINED.findall(text):
            if kind == "class" or not name.startswith("_"):
                found[name][path] = None
    for name, paths in sorted(found.items()):
        if len(paths) > 1 and not _is_shared(name, paths):
            yield f"{name}: {' '.join(paths)}"


def _is_shared(name: str, paths: Iterable[str]) -> bool:
    """One interface, or all but one of them in the words of other languages."""
    return name in INTERFACES or sum(not p.startswith(FOREIGN) for p in paths) <= 1


def imports(path: str, tree: ast.Module, modules: Mapping[str, str]) -> set[str]:
    """Modules of the package that a module imports, wherever in it; not for types only."""
    typing = [
        n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)
    ]
    unseen = {id(m) for n in typing for s in n.body for m in ast.walk(s)}
    found: set[str] = set()
    for n in ast.walk(tree):
        if isinstance(n, ast.ImportFrom) and n.module and id(n) not in unseen:
            for a in n.names:
                found |= {modules.get(f"{n.module}.{a.name}") or modules.get(n.module) or ""}
        elif isinstance(n, ast.Import) and id(n) not in unseen:
            found |= {modules.get(a.name) or "" for a in n.names}
    return found - {"", path}


def cycles(trees: Mapping[str, ast.Module]) -> list[list[str]]:
    """Sets of modules that import each other, in circles (strongly connected components)."""
    modules = {p[:-3].replace("/", ".").removesuffix(".__init__"): p for p in trees}
    edges = {p: imports(p, t, modules) for p, t in trees.items()}
    reach = {p: _reached(p, edges) for p in edges}
    found = {frozenset(q for q in reach[p] if p in reach[q]) | {p} for p in edges if p in reach[p]}
    return sorted(sorted(c) for c in found)


def _reached(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    left = [*edges[start]]
    while left:
        p = left.pop()
        if p not in found:
            found.add(p)
            left += edges[p]
    return found


def alike(texts: Mapping[str, str]) -> list[tuple[str, str]]:
    """Pairs of files, or a file with itself, that share a run of lines of one shape."""
    places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for path, text in texts.items():
        lines = text.splitlines()
        shapes = [s for i in code_lines(text) if (s := shape(lines[i - 1]))]
        for at in range(len(shapes) - SHARED_RUN + 1):
            places[tuple(shapes[at : at + SHARED_RUN])].append((path, at))
    found: set[tuple[str, str]] = set()
    for where in places.values():
        if 1 < len(where) <= TOO_COMMON:
            found |= {
                (p, q) for (p, i), (q, j) in combinations(where, 2) if p != q or j - i >= SHARED_RUN
            }
    return sorted(found)


def shape(line: str) -> str:
    """A line without its names and values; "" for one that says next to nothing, or declares."""
    if DECLARES.fullmatch(line.partition("  #")[0].strip()):
        return ""  # fields of records and arguments: what is alike about them is the syntax
    bare = re.sub(r"\"[^\"]*\"|'[^']*'", "S", line.strip())
    bare = re.sub(
        r"\b(?!(?:if|for|in|return|def|class|not|and|or|else|yield|lambda)\b)\w+", "n", bare
    )
    return "" if line.lstrip().startswith(("import ", "from ")) or len(bare) < 4 else bare


def files_per_op(texts: Mapping[str, str]) -> dict[str, int]:
    return {op: sum(f'"{op}"' in t for t in texts.values()) for op in OPS}


# ---- timing --------------------------------------------------------------------------------------
def times(against: Path, rounds: int, only: list[str]) -> list[Json]:
    """One row per program and target; both checkouts in turn, the first one by lot."""
    rng = random.Random(0)
    found: list[Json] = []
    for program, target in (p for p in PROGRAMS if not only or p[0] in only):
        runs: dict[Path, list[Json]] = {against: [], ROOT: []}
        for _ in range(rounds):
            for root in rng.sample([*runs], 2):
                runs[root].append(_run(root, program, target))
        found.append(_row(program, target, runs[against], runs[ROOT]))
        print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    return found


def _run(root: Path, program: str, target: str) -> Json:
    environment = {**os.environ, "PYTHONPATH": str(root), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", CHILD, program, target]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, check=True)
    return json.loads(done.stdout)


def _row(program: str, target: str, before: list[Json], after: list[Json]) -> Json:
    row: Json = {"program": program, "target": target}
    for key in TIMED:
        old, new = [r[key] for r in before], [r[key] for r in after]
        row[key] = {
            "before": round(statistics.median(old), 3),
            "after": round(statistics.median(new), 3),
            "ratio": _interval([n / max(o, 1e-9) for o, n in zip(old, new, strict=True)]),
        }
    for key in ("nodes", "classes", "goals", "stop"):
        row[key] = {"before": before[0][key], "after": after[0][key]}
    return row


def _interval(ratios: list[float]) -> list[float]:
    """Median, and its 95 % interval by resampling."""
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(2000))
    return [round(x, 4) for x in (statistics.median(ratios), medians[50], medians[1949])]


def worse(row: Json) -> bool:
    """An e-graph that has grown, or another value where both sides are proven."""
    grown = any(row[k]["after"] > row[k]["before"] for k in ("nodes", "classes"))
    goals = row["goals"]
    pairs = ((goals["before"].get(k), v) for k, v in goals["after"].items())
    return grown or any(old and old[0] == old[1] and new[0] > old[0] for old, new in pairs)


def checkout(rev: str, folder: str) -> Path:
    """A revision in a folder of its own, without touching the repository's worktrees."""
    archive = subprocess.run(
        ["git", "archive", rev], cwd=ROOT, stdout=subprocess.PIPE, check=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    return Path(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    counting = commands.add_parser("count", help="what can be counted in the text")
    counting.add_argument("--at", help="a revision instead of the working tree")
    counting.add_argument("--names", action="store_true", help="list names and cycles")
    timing = commands.add_parser(
        "times", help="processor seconds, e-graphs and answers of two trees"
    )
    timing.add_argument("--against", required=True, help="a revision")
    timing.add_argument("--rounds", type=int, default=5)
    timing.add_argument("--only", nargs="*", default=[], help="programs")
    for p in (counting, timing):
        p.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    options = parser.parse_args()
    rev = options.at if options.command == "count" else options.against
    with tempfile.TemporaryDirectory() as folder:
        root = checkout(rev, folder) if rev else ROOT
        if options.command == "count":
            found: Json = {"at": rev or "working tree"} | count(root, options.names)
            bad = False
        else:
            rows = times(root, options.rounds, options.only)
            found = {"against": rev, "machine": platform.machine(), "rows": rows}
            bad = any(map(worse, rows))
    text = json.dumps(found, indent=1) + "\n"
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
