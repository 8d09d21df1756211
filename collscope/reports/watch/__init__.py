"""What a job does while it is recorded."""
