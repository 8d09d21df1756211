"""Step time of a traced run after a change of its collectives."""
