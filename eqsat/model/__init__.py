"""What crosses borders: frozen records that verify, print and serialise themselves."""
