"""Why a public rule is missing here: what would have to be there, or why it is not wanted."""

SIGN = "-0.0 + 0.0 is 0.0, and the sign of zero is kept; whole zeros and -0.0 are dropped"
LOOKUP = "lookups at places known at run time do not compose yet"
ORDER = "products are put into another order by `algebra/reassociate`, which is not in `full` yet"
SHARED = "products that share an operand are not joined yet"
REDUCED = "a reduction of results that were put together does not reach into them yet"
NESTED = "a sum of a product over one of its free loops is not a longer product yet"
SPREAD = "a pad between elements is read as reshape, pad and slice, and no rule undoes that yet"
UNIT = "a sum over one element starts at 0.0, and loses the sign of zero"

REASONS = {
    "Add(A, 0) ⇒ A": SIGN,
    "Add(0, A) ⇒ A": SIGN,
    "DynamicSlice(DynamicSlice(A)) ⇒ DynamicSlice(A)": LOOKUP,
    "DynamicSlice(Iota) ⇒ index": LOOKUP,
    "DynamicUpdateSlice(A, DynamicUpdateSlice(DynamicSlice(A), B)) ⇒ DynamicUpdateSlice(A, B)":
        LOOKUP,
    "Conv(A, Pad(W, interior)) ⇒ Conv(A, W, rhs_dilation)": SPREAD,
    "Slice(Pad(A)) ⇒ A": SPREAD,
    "Dot(A, Dot(B, C)) ⇒ Dot(Dot(A, B), C)": ORDER,
    "Dot(Dot(X, Y), Z) ⇒ Dot(X, Dot(Y, Z))": ORDER,
    "Reduce(Concat(Reduce(X), Reduce(Y))) ⇒ Reduce(Concat(X, Y))": REDUCED,
    "Reduce(Dot(X, Y)) ⇒ Dot(X, Y)": NESTED,
    "Reduce(X) of dims of 1 ⇒ Reshape(X)": UNIT,
    "Reduce(Transpose(X)) of dims of 1 ⇒ Reshape(X)": UNIT,
    "Add(Dot(X, Y), Dot(X, Z)) ⇒ Dot(X, Add(Y, Z))": SHARED,
    "Subtract(Dot(X, Y), Dot(X, Z)) ⇒ Dot(X, Subtract(Y, Z))": SHARED,
    "Dot(X, Y), Dot(X, Z) ⇒ Split(Dot(X, Concat(Y, Z)))": SHARED,
    "Dot(X, Z), Dot(Y, Z) ⇒ Split(Dot(Concat(X, Y), Z))": SHARED,
}  # fmt: skip
