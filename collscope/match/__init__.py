"""Observations of many ranks joined into communicators, calls, transfers and kernels (pure)."""
