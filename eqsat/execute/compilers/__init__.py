"""Compilers of devices that are not here, each in a process of its own."""
