"""Rules that are missing: small terms with equal values that the rules do not prove equal."""
