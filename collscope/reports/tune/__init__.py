"""Which settings are better, and what they save."""
