"""File formats of tuning: the CSV that the tuner plugin applies, and measurements for optimisers.

Pure: text in, records and diagnostics out, and back. The plugin itself is native/tuner.
"""
