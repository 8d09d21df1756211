"""Who holds up a job that hangs: evidence of each rank, and one verdict."""
