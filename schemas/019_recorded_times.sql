-- Store, version 19: GPU times of recorded calls become kernels of the recording; when it was made, and where.

ALTER TABLE _recording ADD COLUMN host TEXT;
ALTER TABLE _recording ADD COLUMN begin_ns INTEGER; -- first call, on the host's clock; NULL: no call has a time
ALTER TABLE _recording ADD COLUMN end_ns INTEGER; -- last call
ALTER TABLE _recording ADD COLUMN callback_ns INTEGER; -- what the recorder took of the job's threads
ALTER TABLE _recording ADD COLUMN process TEXT; -- names the process; its recording may be in parts
ALTER TABLE _recording ADD COLUMN part INTEGER NOT NULL DEFAULT 0;

UPDATE _run SET matched = 0 WHERE run_id IN (SELECT run_id FROM _recording JOIN _source USING (source_id));
