"""What carries the data of a run, and the settings in use."""
