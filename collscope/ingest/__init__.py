"""Files in, store out: open, decompress, parse, one transaction per source."""
