"""Step time after a change: what is played, and how far it may be wrong."""
