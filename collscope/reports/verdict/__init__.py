"""Why the steps of a run are long: the first ten lines of every report."""
