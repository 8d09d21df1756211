"""Tables of benchmark results: what their dialects have in common, and the dialects."""
