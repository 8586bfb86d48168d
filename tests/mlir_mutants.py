"""Read seeded mutants of MLIR text; run as a process of its own, prints what became of each.

`python mlir_mutants.py FIRST COUNT` prints `SEED OUTCOME` lines; a crash of the parser leaves the
last one without an outcome.
"""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import mlir_programs

from eqsat.frontends.mlir import parser
from eqsat.frontends.mlir.reader import read_module
from eqsat.frontends.mlir.source import ModuleText, check_nesting, modernised
from eqsat.model.diag import EqsatError

PROGRAMS = Path(__file__).parent.parent / "experiments" / "programs"
# what a file says in many places: changed in all of them, it may still be a program
TYPES = (("f32", "f64", "f16", "bf16", "f8E4M3FN"), ("i32", "i64", "i8", "i1", "i4", "index"))
SIZES = ("0", "1", "2", "5", "100000", "1000000000", "4611686018427387904", "?")
NUMBERS = ("0", "1", "-1", "3", "7", "?", "9223372036854775807", "99999999999999999999")
_TOKEN = re.compile(r"\s+|[%@#!]?[\w.$]+|[^\s\w]")


def texts() -> list[str]:
    own = [mlir_programs.module([name]) for name in mlir_programs.FUNCTIONS]
    whole = [
        (PROGRAMS / f"{n}.mlir").read_text() for n in ("quantized_matmul", "permuted_consumer")
    ]
    return own + whole


def mutant(rng: random.Random, text: str) -> str:
    """One to three tokens changed, dropped, repeated, moved, or the rest cut off."""
    for _ in range(rng.randint(1, 3)):
        tokens = _TOKEN.findall(text)
        at = rng.randrange(len(tokens))
        numbers = [i for i, t in enumerate(tokens) if re.fullmatch(r"\d+|\d+x.*|tensor", t)]
        kind = rng.randrange(7)
        if kind < 3 and numbers:
            at = rng.choice(numbers)
            tokens[at] = re.sub(r"\d+", lambda _: rng.choice(NUMBERS), tokens[at], count=1)
        elif kind == 3:
            del tokens[at]
        elif kind == 4:
            tokens.insert(at, rng.choice(tokens))
        elif kind == 5:
            tokens[at] = rng.choice(tokens)
        else:
            tokens = tokens[: max(at, len(tokens) // 2)]
        text = "".join(tokens) or "x"
    return text


def shifted(rng: random.Random, text: str) -> str:
    """A size, an element type or a constant changed wherever it stands; or an op's name once."""
    kind = rng.randrange(4)
    if kind == 0 and (sizes := sorted(set(re.findall(r"(?<=[<x])(\d+)(?=x)", text)))):
        old, new = rng.choice(sizes), rng.choice(SIZES)
        return re.sub(rf"(?<=[<x]){old}(?=x)", new, text)
    if kind == 1:
        known = [(t, like) for like in TYPES for t in like if re.search(rf"\b(\d+x)*{t}\b", text)]
        if known:
            old, like = rng.choice(known)
            new = rng.choice(like)
            return re.sub(rf"(?:(?<=x)|(?<!\w)){old}\b", new, text)
    if kind == 2 and (numbers := sorted(set(re.findall(r"constant (-?\d+)", text)))):
        new = rng.choice(("0", "-1", "1000000", "4611686018427387904"))
        return re.sub(rf"constant {rng.choice(numbers)}\b", f"constant {new}", text)
    names = sorted(set(re.findall(r"\b(?:arith|math|linalg|tensor|scf)\.\w+", text)))
    return text.replace(rng.choice(names), rng.choice(names), 1) if names else text


def whole_mutant_of(seed: int, originals: list[str]) -> str:
    """A mutant that is more often a program still: for what comes after reading."""
    rng = random.Random(seed)
    text = rng.choice(originals)
    for _ in range(rng.choice((1, 1, 2))):
        text = shifted(rng, text) if rng.random() < 0.85 else mutant(rng, text)
    return text


def outcome(text: str) -> str:
    """A code, "read", or the traceback's last line; a place outside the text is a failure too."""
    source = modernised(ModuleText("x.mlir", text))
    try:
        check_nesting(source)
        read_module(parser.parse_module(source), source, "", None).program.verify()
    except EqsatError as error:
        (found, *_) = error.diagnostics
        if found.span and found.span.text not in text:
            return f"misplaced {found.span}"
        return found.code if error.exit_code == 2 else f"exit {error.exit_code}"
    return "read"


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    parser._guard = lambda source: None  # this process is the guard
    originals = texts()
    for seed in range(first, first + count):
        print(f"{seed} ", end="", flush=True)
        print(outcome(mutant_of(seed, originals)), flush=True)


def mutant_of(seed: int, originals: list[str]) -> str:
    rng = random.Random(seed)
    return mutant(rng, rng.choice(originals))


if __name__ == "__main__":
    main()
