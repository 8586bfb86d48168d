"""After a search: the clock or a compiler chooses among programs that are nearly as good."""
