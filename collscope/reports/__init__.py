"""Reports: what a run's collectives are, from the store's views to text, tables and JSON."""
