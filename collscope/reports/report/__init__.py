"""All questions of one run, each in a section."""
