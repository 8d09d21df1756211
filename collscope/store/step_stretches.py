"""Stretches of steps without a gap: what ran in a run's steps is found without asking each step."""

from __future__ import annotations

STRETCHES = """
bounds AS (
    SELECT rank, begin_ns, end_ns,
        begin_ns IS NOT LAG(end_ns) OVER (PARTITION BY rank ORDER BY begin_ns) AS opens
    FROM steps WHERE run = :run),
numbered AS (
    SELECT rank, begin_ns, end_ns,
        SUM(opens) OVER (PARTITION BY rank ORDER BY begin_ns) AS number
    FROM bounds),
stretches AS MATERIALIZED (
    SELECT rank, MIN(begin_ns) AS begin_ns, MAX(end_ns) AS end_ns
    FROM numbered GROUP BY rank, number)
"""
"""For WITH: `stretches` has rank, begin_ns and end_ns, on the clock of the rank's trace."""
