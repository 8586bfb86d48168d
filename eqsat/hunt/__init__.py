"""Hunting counterexamples to rules: instances, both sides by the ops' meaning, mutants, chains."""
