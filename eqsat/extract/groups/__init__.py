"""Groups of e-nodes that may be one dispatch, grown backwards from what they write."""
