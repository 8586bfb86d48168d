"""Models for CP-SAT are those of `ortools.sat.python.cp_model`, which loads too much."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from ortools.sat.python import cp_model

from eqsat.extract import sat


def build(m: Any) -> Any:
    """Everything a model of ours may hold, empty constraints too."""
    x = [m.new_bool_var(f"x{i}") for i in range(6)]
    h = m.new_int_var(3, 2**40, "h")
    m.add_bool_or([x[0], x[1].negated()])
    m.add_bool_or([])
    m.add_at_most_one(x)
    m.add_exactly_one(x[2:])
    m.add_exactly_one([])
    m.add_implication(x[0], x[1].negated())
    m.add(sum(3 * v for v in x) <= 5)
    m.add(h >= x[0] + sum(x[1:3]) - 1)
    m.add(h + 4 * x[0] <= h * 2 + 7)
    m.add(h >= 7 + sum(5 * v for v in x[:2]))
    m.add(h <= 9)
    m.add(sum([]) > 2)  # False: nothing can be chosen
    m.add_hint(x[0], True)
    m.add_hint(h, 5)
    m.minimize(sum(4 * v for v in x) + 3 * h + 2)
    return m


def test_a_model_is_the_one_that_or_tools_would_have_made() -> None:
    assert str(build(cp_model.CpModel()).proto) == str(build(sat.CpModel()).proto)


def test_a_solve_tells_status_values_and_bound() -> None:
    m, solver = sat.CpModel(), sat.CpSolver()
    x, y = m.new_bool_var("x"), m.new_int_var(0, 9, "y")
    m.add(y >= 3 + 2 * x.negated())
    m.minimize(2 * y + x)
    assert solver.solve(m) == sat.OPTIMAL
    assert solver.boolean_value(x)
    assert solver.objective_value == solver.best_objective_bound == 7
    m.add(y <= 2)
    assert solver.solve(m) == sat.INFEASIBLE
    solver.stop_search()  # nothing is under way


def test_what_a_search_needs_not_is_not_loaded_and_egglog_stays_whole() -> None:
    """A first search takes as long as what it loads."""
    script = (
        "import sys; import eqsat\n"
        "eqsat.optimize(eqsat.read('transposed_pack'), target='reference')\n"
        "heavy = {'pandas', 'egglog', 'egglog.bindings', 'black', 'numba', 'jax'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
        "import egglog\n"
        "from eqsat.saturate.search import _engine\n"
        "assert egglog.bindings.EGraph is _engine()"
    )
    command = [sys.executable, "-c", script]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    assert not found.returncode, found.stderr
