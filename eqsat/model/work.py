"""The work limit of a verification."""

# scalar operations of the float64 reference, as `execute.work` counts them: about half a minute;
# four samples of BERT-base's 12 layers at 128 tokens take half of it
WORK_LIMIT = 2 * 10**11
