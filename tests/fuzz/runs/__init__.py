"""What the rows of benchmarks/gates.py run that are hunts: seeds in, verdicts out."""
