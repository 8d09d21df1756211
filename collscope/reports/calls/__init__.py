"""The collectives that a run calls, their sizes and their communicators."""
