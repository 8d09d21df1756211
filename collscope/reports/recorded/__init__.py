"""What the recorder wrote of each process, for other tools."""
