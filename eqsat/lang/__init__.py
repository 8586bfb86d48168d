"""Text → model, with a place for everything: YAML files, `.eqs` programs, HLO modules."""
