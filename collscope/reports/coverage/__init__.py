"""What a run consists of, and how much of the job its sources show."""
