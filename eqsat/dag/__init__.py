"""DAG extraction from any e-graph: SerializedEGraph → Extraction, proven or with its gap."""
