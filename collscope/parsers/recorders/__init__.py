"""Parsers of call recorders, which have no GPU times: one module per dialect."""
