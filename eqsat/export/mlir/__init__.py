"""MLIR text: a function of linalg, tensor, arith and math ops, written without MLIR's library."""
