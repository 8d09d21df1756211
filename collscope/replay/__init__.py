"""Replay of the recorded collectives: the plan, and what reads and writes it."""
