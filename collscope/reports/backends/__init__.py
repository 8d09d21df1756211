"""The fastest backend of AllReduce at each size, and what a step wins by it."""
