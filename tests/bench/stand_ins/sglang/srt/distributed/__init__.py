"""A stand-in for the library of this name, for tests of the worker."""
