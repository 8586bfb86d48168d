"""Programs as other tools read them: MLIR linalg text and ONNX models."""
