"""Questions beyond the best answer: the front of trade-offs, and what other choices would cost."""
