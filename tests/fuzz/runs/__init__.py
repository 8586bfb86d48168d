"""What the rows of benchmarks/run.py run that are hunts: seeds in, verdicts out."""
