"""Parsers of traces with GPU times: one module per dialect."""
