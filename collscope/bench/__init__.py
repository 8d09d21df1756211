"""Microbenchmarks of a machine: what is run, and what came of it."""
