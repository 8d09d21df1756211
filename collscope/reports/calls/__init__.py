"""Which collectives a run calls, of which sizes, and on which communicators."""
