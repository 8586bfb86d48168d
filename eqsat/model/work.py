"""The work limit of a verification."""

# scalar operations of the float64 reference, as `execute.reference` counts them: about ten seconds;
# two samples of BERT-base's 12 layers at 128 tokens and its schedule on one arena
WORK_LIMIT = 10**11
