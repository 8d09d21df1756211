"""What collectives and computation cost each other."""
