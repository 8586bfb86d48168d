"""What a caller asks, read: a program with its layouts and orders, rules, a target and goals."""
