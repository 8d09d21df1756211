"""What the traces of all ranks show together: waiting, overlap, and what a change would give."""
