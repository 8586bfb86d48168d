"""Hunts that benchmarks and tests run: random programs and searches, respellings, broken rules."""
