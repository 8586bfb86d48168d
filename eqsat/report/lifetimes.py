"""Lifetimes of a schedule's buffers as one hand-written SVG."""

from __future__ import annotations

from html import escape

from eqsat.model.leaves import Leaf
from eqsat.model.schedule import Buffer, Schedule
from eqsat.report.units import bytes_text

ROLES = ("weight", "argument", "result", "temporary")
_LABEL, _WIDTH, _ROW, _MOST = 190, 720, 22, 60


def lifetime_chart(schedule: Schedule) -> str:
    """One bar per buffer over the steps of the schedule, coloured by role, labelled with bytes.

    The largest 60 buffers are drawn; a last line says how many were left out.
    """
    steps = 1 + max((d.step for d in schedule.dispatches), default=0)
    shown = sorted(schedule.buffers, key=lambda b: (-b.nbytes, b.node))[:_MOST]
    shown.sort(key=lambda b: (ROLES.index(b.role), b.first, b.node))
    height = _ROW * (len(shown) + 2)
    rows = [_bar(schedule, b, i, steps) for i, b in enumerate(shown)]
    left_out = len(schedule.buffers) - len(shown)
    note = f"<p>{left_out} smaller buffers are not drawn</p>" if left_out else ""
    return (
        f'<div class="wide"><svg viewBox="0 0 {_LABEL + _WIDTH} {height}" role="img" '
        f'aria-label="buffer lifetimes over {steps} steps">\n'
        + "\n".join([_axis(steps, height), *rows, _legend(height)])
        + f"\n</svg></div>{note}"
    )


def _x(step: int, steps: int) -> float:
    return _LABEL + (_WIDTH - 90) * step / steps


def _axis(steps: int, height: int) -> str:
    every = max(1, steps // 20)
    marks = []
    for s in range(0, steps, every):
        x = _x(s, steps)
        marks.append(
            f'<line class="axis" x1="{x:.1f}" y1="16" x2="{x:.1f}" y2="{height - _ROW}"/>'
            f'<text x="{x + 2:.1f}" y="12">{s}</text>'
        )
    return "\n".join(marks)


def _bar(schedule: Schedule, b: Buffer, row: int, steps: int) -> str:
    node = schedule.program.nodes[b.node]
    name = node.attr.name if isinstance(node.attr, Leaf) else f"%{b.node}"
    whole = b.role != "temporary"  # the caller owns them, so they are live all the time
    first, last = (0, steps - 1) if whole else (b.first, b.last)
    x, end, y = _x(first, steps), _x(last + 1, steps), _ROW * (row + 1)
    label = escape(f"{name} {node.types[0]}")
    size = bytes_text(b.nbytes)
    return (
        f"<g><title>{label}: {size}, {b.role}, steps {first} to {last}</title>"
        f'<text x="0" y="{y + 12}">{escape(f"{name}  {node.types[0]}"[:30])}</text>'
        f'<rect class="{b.role}" x="{x:.1f}" y="{y}" width="{end - x - 1:.1f}" '
        f'height="{_ROW - 6}" rx="2"/><text x="{end + 3:.1f}" y="{y + 12}">{size}</text></g>'
    )


def _legend(height: int) -> str:
    y = height - 14
    return "".join(
        f'<rect class="{role}" x="{_LABEL + 130 * i}" y="{y}" width="12" height="12"/>'
        f'<text x="{_LABEL + 130 * i + 17}" y="{y + 11}">{role}</text>'
        for i, role in enumerate(ROLES)
    )
