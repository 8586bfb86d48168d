"""What CP-SAT's presolve must not do: leave no answer of a problem that has some."""

from __future__ import annotations

from eqsat.extract import sat
from eqsat.model.deadline import limited, set_workers

# of a UNet block, memory under a cap of time; a literal -1 - v is the negation of v
AT_MOST_ONE = [
    [17], [18], [1, -1], [3, -2], [3, -3], [6, -4], [6, -5], [6, -6], [7, -7], [9, -8], [10,
    -9], [10, -10], [11, -11], [27, -12], [14, -13], [14, -14], [15, -15], [25, -23], [25, -24],
    [25, -25], [26, -56], [26, -26], [27, -27], [40, 41, -28], [32, 33, -31], [32, -30], [33,
    -29], [35, -57], [36, 37, 38, 39, -32], [36, 38, -36], [37, 39, -58], [40, -59], [41, -60],
    [53, -61], [45, 47, -43], [47, 48, -43], [46, 49, -44], [49, 50, -44], [47, 49, -62], [48,
    50, -63], [51, -64], [52, -52], [53, -53], [54, -54],
]  # fmt: skip
CLAUSES = [
    [15], [16, 17, 18], [54], [19, 20, 21, -56], [32, 33, -57], [34, -58], [36, 37, -59], [38,
    39, -60], [40, 41, -61], [44, -62], [45, 46, -63], [47, 48, 49, 50, -64],
]  # fmt: skip
TIMES = [
    53431360, 112644160, 66612800, 8295284944, 53430080, 53431360, 112644160, 8295284944,
    53430080, 53431360, 105885760, 926569439, 53469760, 53510720, 105965120, 921449439,
    921449439, 921449439, 921449439, 921449439, 921449439, 921449439, 2946438203, 1343504960,
    1836008000, 2686009920, 2946438203, 931689439, 921449439, 921449439, 167112360, 167112360,
    222483147, 222483147, 203506240, 203506240, 222483147, 222483147, 222483147, 222483147,
    931689439, 931689439, 53469760, 53469760, 53510720, 53510720, 53510720, 105965120,
    105965120, 105965120, 105965120, 7364595506, 630248000, 3693037753, 931689439,
]  # fmt: skip
CAP = 50026688319


def test_a_problem_with_answers_has_one() -> None:
    """CP-SAT 9.15 called it infeasible: google/or-tools#5293."""
    model = sat.CpModel()
    count = 1 + max(v if v >= 0 else -1 - v for row in (*AT_MOST_ONE, *CLAUSES) for v in row)
    options = [model.new_bool_var("") for _ in range(max(count, len(TIMES)))]
    peak = model.new_int_var(22368, 2655634, "")

    def literals(row: list[int]) -> list[object]:
        return [options[v] if v >= 0 else options[-1 - v].negated() for v in row]

    for row in AT_MOST_ONE:
        model.add_at_most_one(literals(row))
    for row in CLAUSES:
        model.add_bool_or(literals(row))
    model.add(sum(t * v for t, v in zip(TIMES, options, strict=False)) <= CAP)
    model.minimize(peak + 0)
    solver = sat.CpSolver()
    set_workers(solver.parameters)
    with limited(solver, 60.0, 0):
        assert solver.solve(model) == sat.OPTIMAL
    assert solver.objective_value == 22368
