"""Measurements of two or more labels side by side: speed-ups, and a verdict for CI."""
