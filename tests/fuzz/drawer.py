"""Where instances come from: drawn at random, or varied from those on which the rule applied."""

from __future__ import annotations

from random import Random

from eqsat.hunt.instances import Instance, draw, seeds
from eqsat.hunt.nests import Scale
from eqsat.hunt.search import rows_at
from eqsat.hunt.vary import vary
from eqsat.model.rules import Rule

POOL = 300  # instances kept to be varied
RARE = 0.25  # below this share of matches with a right side, instances are varied as well
TRIAL = 40  # draws before the share means anything


class Drawer:
    """Draws instances of one rule's left side; those that apply feed later ones."""

    def __init__(self, rule: Rule, rng: Random):
        self.rule, self.rng = rule, rng
        self.pool: list[Instance] | None = None  # None: the examples were not read yet
        self.draws = self.applied = 0

    def __call__(self) -> Instance | None:
        """A match, or None if this attempt did not fit together."""
        if self._is_rare() and self.rng.random() < 0.8:
            return self._varied()
        self.draws += 1
        found = draw(self.rule, self.rng)
        if found is not None and self._keep(found):
            self.applied += 1
        return found

    def smaller(self, scale: Scale) -> Instance | None:
        """A match of at most this scale, to shrink a counterexample."""
        if self._is_rare() and self.rng.random() < 0.8:
            return self._varied()
        return draw(self.rule, self.rng, scale)

    def _is_rare(self) -> bool:
        return self.draws >= TRIAL and self.applied < RARE * self.draws

    def _varied(self) -> Instance | None:
        if self.pool is None:
            self.pool = []
            for s in seeds(self.rule, self.rng):
                self._keep(s)
        if not self.pool:
            self.draws += 1
            found = draw(self.rule, self.rng)
            if found is not None:
                self.applied += self._keep(found)
            return found
        return vary(self.rng.choice(self.pool), self.rng)

    def _keep(self, found: Instance) -> bool:
        applies = rows_at(found, self.rule) != []
        if applies and self.pool is not None:
            self.pool = [*self.pool[-POOL:], found]
        return applies
