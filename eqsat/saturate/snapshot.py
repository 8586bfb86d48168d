"""egglog's tables → EGraph: classes numbered and typed, every node with the rule that made it."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eqsat.model.attrs import ShapeError
from eqsat.model.diag import EqsatError, fail
from eqsat.model.egraph import EGraph, ENode, RuleStat
from eqsat.model.program import infer
from eqsat.model.tensor import TensorType
from eqsat.saturate.encode import SOURCE_BITS, constructor

if TYPE_CHECKING:
    from eqsat.saturate.run import Saturation

Raw = tuple[str, int, tuple[Any, ...], Any, bool]  # op, attribute id, children, class, subsumed


def snapshot(run: Saturation, rounds: int, stop: str, seconds: float) -> EGraph:
    """Everything egglog knows, as plain data; deterministic: numbered from the input program on."""
    raw, made = _tables(run)
    values = [_value(run, i) for i in range(len(run.program.nodes))]
    numbers = _number(raw, values)
    types = _types(run, raw, numbers)
    order = sorted(raw, key=lambda r: (numbers[r[3]], r[1], r[0], [numbers[c] for c in r[2]]))
    nodes = [_node(run, r, numbers, made) for r in order]
    nodes = _sources(run, nodes, order, numbers, made)
    roots = tuple(numbers[values[r]] for r in run.program.results)
    graph = EGraph(
        tuple(nodes), types, roots, tuple(numbers[v] for v in values), _stats(run, nodes),
        rounds, stop, seconds,
    )  # fmt: skip
    return graph


def _tables(run: Saturation) -> tuple[list[Raw], dict[tuple[str, int, tuple[Any, ...]], int]]:
    names = {constructor(op, n): op for op, n in run.signatures}
    frozen = run.engine.freeze()
    to_int = run.engine.value_to_i64
    raw: list[Raw] = []
    made: dict[tuple[str, int, tuple[Any, ...]], int] = {}
    for name, function in frozen.functions.items():
        op = names.get(name.removeprefix("made_"))
        if op is None:
            continue
        for row in function.rows:
            attr, children = to_int(row.inputs[0]), tuple(row.inputs[1:])
            if attr == 0:
                continue
            if name.startswith("made_"):
                made[op, attr, children] = to_int(row.output)
            else:
                raw.append((op, attr, children, row.output, row.subsumed))
    return raw, made


def _value(run: Saturation, i: int) -> Any:
    from egglog.bindings import PanicSpan, Var

    return run.engine.eval_expr(Var(PanicSpan(), f"$v{i}"))[1]


def _number(raw: list[Raw], values: list[Any]) -> dict[Any, int]:
    """Classes 0, 1, … : those of the program first, then as they are reached from known ones."""
    numbers: dict[Any, int] = {}
    for v in values:
        numbers.setdefault(v, len(numbers))
    waiting = raw
    while waiting:
        ready = [r for r in waiting if all(c in numbers for c in r[2])]
        if not ready:
            raise fail("E901", "the e-graph has a class no term can reach", exit_code=4)
        waiting = [r for r in waiting if not all(c in numbers for c in r[2])]
        for r in sorted(ready, key=lambda r: ([numbers[c] for c in r[2]], r[1], r[0])):
            numbers.setdefault(r[3], len(numbers))
    return numbers


def _types(
    run: Saturation, raw: list[Raw], numbers: dict[Any, int]
) -> tuple[tuple[TensorType, ...], ...]:
    """The type of every class; EqsatError (E110) if rules made values of two types equal."""
    types: dict[int, tuple[TensorType, ...]] = {}
    known: dict[tuple[Any, ...], tuple[TensorType, ...]] = {}
    for op, attr, children, cls, _ in _operands_first(raw, numbers):
        key = (op, attr, *(types[numbers[c]] for c in children))
        if key not in known:
            known[key] = _infer(run, op, attr, list(key[2:]))
        if types.setdefault(numbers[cls], known[key]) != known[key]:
            raise _mixed(run, types[numbers[cls]], known[key])
    return tuple(types[c] for c in range(len(numbers)))


def _operands_first(raw: list[Raw], numbers: dict[Any, int]) -> Iterator[Raw]:
    """Every node after one node of each class it reads."""
    missing = [{numbers[c] for c in r[2]} for r in raw]
    readers: dict[int, list[int]] = defaultdict(list)
    for i, classes in enumerate(missing):
        for c in classes:
            readers[c].append(i)
    ready = deque(i for i, classes in enumerate(missing) if not classes)
    done: set[int] = set()
    while ready:
        i = ready.popleft()
        yield raw[i]
        cls = numbers[raw[i][3]]
        if cls in done:
            continue
        done.add(cls)
        for j in readers[cls]:
            missing[j].discard(cls)
            if not missing[j]:
                ready.append(j)


def _infer(
    run: Saturation, op: str, attr: int, operands: list[tuple[TensorType, ...]]
) -> tuple[TensorType, ...]:
    try:
        return infer(op, run.interner[attr], operands)
    except ShapeError as e:
        raise _blamed(run, str(e)) from e


def _mixed(run: Saturation, one: tuple[TensorType, ...], two: tuple[TensorType, ...]) -> EqsatError:
    shown = " and ".join(", ".join(map(str, t)) for t in (one, two))
    return _blamed(run, f"values of the types {shown} became equal")


def _blamed(run: Saturation, what: str) -> EqsatError:
    """The rules that matched, as one of them must be unsound."""
    names = [r.name for r in run.rules.rules if run.work.matches[r.name]]
    matched = ", ".join(f"`{n}`" for n in names[:8])
    help = "run `eqsat check --test` on their files, or leave them out with `--without`"
    message = f"a rule is unsound: {what}; rules that matched: {matched}"
    return fail("E110", message, help=help, exit_code=1)


def _node(
    run: Saturation,
    r: Raw,
    numbers: dict[Any, int],
    made: dict[tuple[str, int, tuple[Any, ...]], int],
) -> ENode:
    op, attr, children, cls, subsumed = r
    by = made.get((op, attr, children), -1)
    rule = -1 if by < 0 else _rule_number(run, by >> SOURCE_BITS)
    inner = tuple(numbers[c] for c in children)
    return ENode(op, run.interner[attr], inner, numbers[cls], rule, -1, subsumed)


def _rule_number(run: Saturation, variant: int) -> int:
    return run.rules.rules.index(run.variants[variant].rule)


def _sources(
    run: Saturation,
    nodes: list[ENode],
    order: list[Raw],
    numbers: dict[Any, int],
    made: dict[tuple[str, int, tuple[Any, ...]], int],
) -> list[ENode]:
    """Name the node each rule matched: in the same class, with the remembered attribute."""
    at: dict[tuple[int, int, str], int] = {}
    for i, r in enumerate(order):
        at.setdefault((numbers[r[3]], r[1], r[0]), i)
    found = []
    for n, r in zip(nodes, order, strict=True):
        by = made.get((r[0], r[1], r[2]), -1)
        if by >= 0:
            op = run.variants[by >> SOURCE_BITS].rule.left.op
            source = at.get((n.eclass, by & ((1 << SOURCE_BITS) - 1), op), -1)
            found.append(replace(n, source=source))
        else:
            found.append(n)
    return found


def _stats(run: Saturation, nodes: list[ENode]) -> tuple[RuleStat, ...]:
    made = Counter(n.rule for n in nodes)
    return tuple(
        RuleStat(
            r.name,
            r.at,
            r.doc,
            run.work.matches[r.name],
            made[i],
            round(run.work.seconds[r.name], 6),
        )
        for i, r in enumerate(run.rules.rules)
    )
