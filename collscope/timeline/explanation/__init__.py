"""Why the steps of two recorded jobs differ: which part adds how much."""
