"""The smallest function that still fails: lines, results, arguments and sizes are taken away."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from fuzz.writer import Infer
from fuzz.written import NAME, Argument, Line, Types, Written

NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
MOST_TRIES = 150  # calls of `fails`
Fails = Callable[[Written], bool]


def smallest(function: Written, infer: Infer, fails: Fails, tries: int = MOST_TRIES) -> Written:
    """What is left when nothing more can be taken away without `fails` becoming false."""
    left, best, seen = tries, function, {function}
    while left > 0:
        found = None
        for smaller in _smaller(best, infer(best)):
            if smaller in seen or not _is_valid(smaller, infer):
                continue
            seen.add(smaller)
            left -= 1
            if fails(smaller):
                found = smaller
                break
            if left <= 0:
                break
        if found is None:
            return best
        best = found
    return best


def _is_valid(function: Written, infer: Infer) -> bool:
    try:
        return all(t.size for t in infer(function).values())
    except Exception:  # whatever JAX or onnx says of a line that no longer fits
        return False


def _smaller(f: Written, types: Types) -> Iterator[Written]:
    """Functions with less in them, those with the least first."""
    for moved in _cut(f, types):
        yield moved.pruned()
    for a in f.arguments:
        if a.is_weight:
            plain = tuple(replace(b, is_weight=b.is_weight and b != a) for b in f.arguments)
            yield replace(f, arguments=plain)
    yield from _resized(f)


def _cut(f: Written, types: Types) -> Iterator[Written]:
    """Fewer results, then a line less: its values given, or the same as what it reads."""
    for r in f.results:
        yield replace(f, results=(r,))
    for i, line in reversed(list(enumerate(f.lines))):
        values = line.names if i < len(f.lines) - 1 else line.reads
        if not set(f.results).issuperset(values):
            others = [n for n in f.results if n not in line.names]
            yield replace(f, results=tuple(dict.fromkeys([*others, *values])))
    for i in reversed(range(len(f.lines))):
        yield _given(f, i, types)
    for i, line in enumerate(f.lines):
        yield from _passed(f, i, line, types)
    for r in f.results:
        if len(f.results) > 1:
            yield replace(f, results=tuple(n for n in f.results if n != r))


def _given(f: Written, at: int, types: Types) -> Written:
    """The values of a line as arguments."""
    taken = [int(a.name[1:]) for a in f.arguments]
    names = f.lines[at].names
    new = {n: f"x{max(taken, default=-1) + 1 + i}" for i, n in enumerate(names)}
    arguments = [Argument(new[n], str(types[n].dtype), types[n].shape) for n in names]
    kept = replace(f, lines=(*f.lines[:at], *f.lines[at + 1 :]))
    return _renamed(replace(kept, arguments=(*f.arguments, *arguments)), new)


def _passed(f: Written, at: int, line: Line, types: Types) -> Iterator[Written]:
    """The function without a line whose value has the type of one that it reads."""
    kept = replace(f, lines=(*f.lines[:at], *f.lines[at + 1 :]))
    for read in line.reads:
        same = [n for n in line.names if types[n] == types[read]]
        if len(same) == len(line.names):
            yield _renamed(kept, dict.fromkeys(same, read))


def _renamed(f: Written, new: Mapping[str, str]) -> Written:
    def name(match: re.Match[str]) -> str:
        return new.get(match[0], match[0])

    lines = tuple(replace(n, text=NAME.sub(name, n.text)) for n in f.lines)
    return replace(f, lines=lines, results=tuple(new.get(r, r) for r in f.results))


def _resized(f: Written) -> Iterator[Written]:
    """A number that occurs, smaller wherever it occurs."""
    numbers = {n for a in f.arguments for n in a.shape}
    numbers |= {int(n) for line in f.lines for n in NUMBER.findall(line.text)}
    for old in sorted(numbers, reverse=True):
        for new in sorted({1, 2, old // 2, old - 1} - {0}):
            if new < old:
                yield _with_number(f, old, new)


def _with_number(f: Written, old: int, new: int) -> Written:
    def number(match: re.Match[str]) -> str:
        return str(new) if int(match[0]) == old else match[0]

    arguments = tuple(
        replace(
            a,
            shape=tuple(new if n == old else n for n in a.shape),
            below=new if a.below == old else a.below,
        )
        for a in f.arguments
    )
    lines = tuple(replace(n, text=NUMBER.sub(number, n.text)) for n in f.lines)
    return replace(f, arguments=arguments, lines=lines)
