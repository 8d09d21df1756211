-- Store, version 13: profiled periods of the same ranks, and other jobs, are runs of their own.

-- The run that the traces were read into, where they are of another period or job than its own.
ALTER TABLE _run ADD COLUMN period_of INTEGER REFERENCES _run ON DELETE SET NULL;
