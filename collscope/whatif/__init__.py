"""Other gradient buckets for a job: what they are, what they would cost, which to take."""
