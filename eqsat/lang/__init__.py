"""Text → model, with a place for everything: YAML rules, targets, experiments; `.eqs` programs."""
