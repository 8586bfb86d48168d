"""ONNX models: a graph as plain data, and the one file that turns it into protocol buffers."""
