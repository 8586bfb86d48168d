"""MLIR text → Program: linalg, tensor, arith and encodings; StableHLO, TOSA and torch by IREE."""
