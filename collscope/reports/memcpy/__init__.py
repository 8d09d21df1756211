"""What copies reach."""
