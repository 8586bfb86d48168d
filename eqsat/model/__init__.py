"""Border values: frozen records that verify, print and serialise themselves."""
