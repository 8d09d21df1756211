"""Answers for assistants, over the Model Context Protocol (docs/assistants.md)."""
