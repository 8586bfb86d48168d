"""The checker of selections is not fooled."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from graphs import ALL, diamond, reference

from eqsat.extract import check, extract
from eqsat.model.selection import CAP, Cut, GoalResult, Removed, Selection
from eqsat.model.target import Fusion


def broken(s: Selection) -> dict[str, Selection]:
    """Selections with one field wrong."""
    at = max(range(len(s.groups)), key=lambda i: len(s.groups[i].members))
    first = s.groups[at]
    time = s.goal("time")
    wrong = {
        "no_member": replace(first, members=first.members[1:]),
        "unknown_member": replace(first, members=(*first.members, 99)),
        "twice": replace(first, members=(*first.members, first.members[-1])),
        "reversed": replace(first, members=first.members[::-1]),
        "input_member": replace(first, members=(0, *first.members)),
        "no_read": replace(first, reads=()),
        "other_read": replace(first, reads=(first.writes[-1],)),
        "unknown_read": replace(first, reads=(*first.reads, 99)),
        "no_write": replace(first, writes=()),
        "other_write": replace(first, writes=(*first.reads,)),
        "write_order": replace(first, writes=(first.writes[-1], *first.reads)),
        "price": replace(first, time_ps=first.time_ps + 1),
        "step": replace(first, step=5),
    }
    found = {
        k: replace(s, groups=(*s.groups[:at], g, *s.groups[at + 1 :])) for k, g in wrong.items()
    }
    found |= {
        "missing_group": replace(s, groups=s.groups[:-1]),
        "doubled_group": replace(s, groups=(*s.groups, s.groups[-1])),
        "no_groups": replace(s, groups=()),
        "ahead_input": replace(s, ahead=(0,)),
        "ahead_unknown": replace(s, ahead=(99,)),
        "stop": replace(s, stop="bored"),
        "removed": replace(s, removed=(Removed("x", 1, 2, "vector", ""),)),
        "uncut": replace(s, stop="time", cuts=(Cut("groups", 0, CAP),)),
        "cut": replace(s, stop="optimal", cuts=(Cut("groups", 3, CAP),)),
        "candidates": replace(s, candidates=1),
        "bound": replace(s, goals=(("time", replace(time, bound=time.value + 1)), *s.goals[1:])),
        "no_goal": replace(s, goals=s.goals[1:]),
    }
    for name, result in s.goals:
        others = tuple((n, r) for n, r in s.goals if n != name)
        value = GoalResult(result.value + 1, result.bound)
        found[f"goal_{name}"] = replace(s, goals=((name, value), *others))
    return found


TWO = reference(Fusion(members=2))
FOUND, _ = extract(diamond(), TWO, ALL)
WRONG = broken(FOUND)


@pytest.mark.parametrize("what", sorted(WRONG))
def test_the_checker_is_not_fooled(what: str):
    assert check(diamond(), TWO, FOUND) == []
    assert check(diamond(), TWO, WRONG[what])


def test_every_field_of_a_selection_is_tampered_with_above():
    covered = {"groups", "ahead", "goals", "stop", "removed", "cuts", "candidates"}
    assert {f.name for f in fields(Selection)} - covered == {"seconds"}


@pytest.mark.parametrize(
    ("strict", "fault"),
    [
        (Fusion(members=2), "members, the target allows 2"),
        (Fusion(members=4), "the target allows one"),
        (Fusion(members=4, multi_result=True, operands=2), "more operands"),
        (Fusion(members=4, multi_result=True, join=()), "may not be computed inside"),
    ],
)
def test_the_checker_knows_what_may_fuse(strict: Fusion, fault: str):
    found, _ = extract(diamond(), reference(Fusion(members=4, multi_result=True)), ALL)
    assert len(found.groups) == 1
    faults = check(diamond(), reference(strict), found)
    assert any(fault in f for f in faults)
