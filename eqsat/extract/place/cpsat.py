"""A placement problem as a CP-SAT model: one `no_overlap` per maximal clique.

Offsets are intervals of fixed size; there is no second dimension and no cumulative constraint, as
these only slow the search down on placements that are hard.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.extract.place.problem import PlacementProblem


@dataclass(frozen=True)
class BoundedOffsets:
    """`offsets` are empty if none were found; no placement is lower than `bound`, in units."""

    offsets: list[int]
    bound: int


class Solver:
    """Minimises the height; `stop` ends it from another thread."""

    def __init__(self, problem: PlacementProblem, *, seed: int, work: float, seconds: float):
        from eqsat.extract import sat  # loads OR-Tools

        self.problem = problem
        self.codes = (sat.OPTIMAL, sat.FEASIBLE)
        self.impossible = sat.INFEASIBLE
        self.model = sat.CpModel()
        self.solver = sat.CpSolver()
        parameters = self.solver.parameters
        parameters.num_workers = 1
        parameters.linearization_level = 0
        parameters.random_seed = seed
        parameters.max_deterministic_time = work
        parameters.max_time_in_seconds = max(seconds, 0.05)
        parameters.catch_sigint_signal = False  # Ctrl-C is Python's

    def stop(self) -> None:
        self.solver.stop_search()

    def minimise(
        self, bound: int, most: int, hint: list[int], *, first: bool = False
    ) -> BoundedOffsets:
        """The lowest placement with bound <= height <= most.

        hint: a placement, of any height. first: the first one will do.

        The bound is `most` + 1 if there is none.
        """
        self.solver.parameters.stop_after_first_solution = first
        sizes = self.problem.sizes
        height = self.model.new_int_var(bound, most, "height")
        offsets = [self.model.new_int_var(0, most - s, "") for s in sizes]
        intervals = [
            self.model.new_fixed_size_interval(o, s) for o, s in zip(offsets, sizes, strict=True)
        ]
        # (P1) buffers that are live at once do not overlap: no_overlap(clique)
        for clique in self.problem.cliques:
            if len(clique) > 1:
                self.model.add_no_overlap([intervals[i] for i in clique])
        # (P2) nothing lies above the height: offset + size ≤ height
        for o, s in zip(offsets, sizes, strict=True):
            self.model.add(o + s <= height)
        for o, value in zip(offsets, hint, strict=True):
            self.model.add_hint(o, value)
        if not first:
            self.model.minimize(height)
        status = self.solver.solve(self.model)
        if status == self.impossible:
            return BoundedOffsets([], most + 1)
        found = bound if first else round(self.solver.best_objective_bound)
        if status not in self.codes:
            return BoundedOffsets([], max(bound, found))
        return BoundedOffsets([self.solver.value(o) for o in offsets], max(bound, found))
