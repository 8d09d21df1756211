"""What the traces of all ranks tell together: waiting, overlap, and what a change would give."""
