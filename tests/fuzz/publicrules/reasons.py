"""Why a public rule is missing here: what would have to be there, or why it is not wanted."""

LOOKUP = "lookups at places known at run time do not compose yet"
LINE = "a lookup in 0, 1, 2, … is its index, which no rule says; it costs a thousandth of a launch"
REDUCED = "two sums of parts are two dispatches, and no rule puts their operands together for one"

REASONS = {
    "DynamicSlice(DynamicSlice(A)) ⇒ DynamicSlice(A)": LOOKUP,
    "DynamicSlice(Iota) ⇒ index": LINE,
    "DynamicUpdateSlice(A, DynamicUpdateSlice(DynamicSlice(A), B)) ⇒ DynamicUpdateSlice(A, B)":
        LOOKUP,
    "Reduce(Concat(Reduce(X), Reduce(Y))) ⇒ Reduce(Concat(X, Y))": REDUCED,
}  # fmt: skip
