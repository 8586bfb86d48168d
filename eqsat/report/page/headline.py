"""The headline of a run's page: how much quicker than the input it is, and what changed."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from eqsat.model.compiled import INPUT, INPUT_BY_XLA, Timed
from eqsat.report.facts import GoalFact, RunFacts
from eqsat.report.finished import Finished, finished_stages
from eqsat.report.formatting import bytes_text, count_text, goal_text, time_text, us_text

MOST_RULES = 4  # that the headline names
EQUAL = 0.005  # of a time, below which two are told as equal


def headline(facts: RunFacts) -> str:
    """The ratio in large, the figures beside the input's, and what changed, as HTML."""
    ratio, what = speed(facts.run)
    items = [f"<li><b>{escape(ratio)}</b> {escape(what)}</li>"]
    items += [
        f"<li><b>{escape(goal_text(g.kind, g.chosen))}</b> {escape(g.name)}"
        f' <span class="soft">{escape(_before(g))}</span></li>'
        for g in facts.table
    ]
    changes = "".join(f"<li>{escape(text)}</li>" for text in _changes(facts))
    what_changed = f'<ul class="changes">{changes}</ul>' if changes else ""
    return f'<ul class="figures">{"".join(items)}</ul>{what_changed}'


def speed(run: Finished) -> tuple[str, str]:
    """(`1.25x`, `faster than the input, measured: 5.37 ms → 4.33 ms`); by the clock if it ran."""
    timed = _timed(run)
    if timed is not None:
        kept, start = timed
        by = "the input by XLA" if start.origin == INPUT_BY_XLA else "the input"
        texts = us_text(start.wall_us), us_text(kept.wall_us)
        return _compared(start.wall_us, kept.wall_us, f"{by}, measured", texts)
    _, _, schedule = finished_stages(run)
    if run.baseline_schedule is None:
        return time_text(schedule.time_ps), "predicted; the target cannot run the input as it is"
    before, after = run.baseline_schedule.time_ps, schedule.time_ps
    texts = time_text(before), time_text(after)
    return _compared(before, after, "the input, predicted", texts)


def _timed(run: Finished) -> tuple[Timed, Timed] | None:
    """What runs and the input on the clock, by XLA's compiler if that was timed."""
    if run.measured is None:
        return None
    by_origin = {p.origin: p for p in run.measured.programs}
    start = by_origin.get(INPUT_BY_XLA) or by_origin.get(INPUT)
    return None if start is None else (run.measured.programs[run.measured.kept], start)


def _compared(before: float, after: float, than: str, texts: tuple[str, str]) -> tuple[str, str]:
    if not after or not before or abs(before - after) <= EQUAL * before:
        return "1.00x", f"as fast as {than}: {texts[1]}"
    word, ratio = ("faster", before / after) if before > after else ("slower", after / before)
    return f"{ratio:.2f}x", f"{word} than {than}: {texts[0]} → {texts[1]}"


def _before(g: GoalFact) -> str:
    if g.baseline is None:
        return ""
    return "as before" if g.baseline == g.chosen else f"was {goal_text(g.kind, g.baseline)}"


# ---- what changed --------------------------------------------------------------------------------
_WORDS = {
    "fused_conversions": ("layout conversion inside other dispatches",
                          "layout conversions inside other dispatches"),
    "weight_packs": ("weight packed ahead of time", "weights packed ahead of time"),
}  # fmt: skip
_ALONE = ("packs", "unpacks", "transposes")


def _changes(facts: RunFacts) -> Iterator[str]:
    run = facts.run
    _, _, schedule = finished_stages(run)
    before = run.baseline_schedule
    counts = schedule.counts()
    was = {} if before is None else before.counts()
    alone, alone_before = (sum(c.get(k, 0) for k in _ALONE) for c in (counts, was))
    if before is not None and alone != alone_before:
        yield f"{alone_before} → {alone} dispatches that only move data"
    for key, (one, many) in _WORDS.items():
        if counts[key] > was.get(key, 0):
            yield count_text(counts[key] - was.get(key, 0), f"more {one}", f"more {many}")
    if before is not None and before.resident_bytes != schedule.resident_bytes:
        texts = map(bytes_text, (before.resident_bytes, schedule.resident_bytes))
        yield f"weights in memory {' → '.join(texts)}"
    rules = [f for f in facts.rules_by("result") if f["in_result"]]
    if rules:
        names = [f"{f['rule']} ×{f['in_result']}" for f in rules[:MOST_RULES]]
        more = len(rules) - len(names)
        yield f"by the rules {', '.join(names)}{f' and {more} more' if more > 0 else ''}"
