-- Store, version 12: waits of kernels whose call no log line has, and waits and lateness of each rank
-- by the kernel trace in RCCL's logs. Runs that hold such a trace are matched again.

CREATE TABLE _kernel_call_new (
    kernel_id INTEGER PRIMARY KEY REFERENCES _kernel ON DELETE CASCADE,
    call_id INTEGER REFERENCES _call_row ON DELETE CASCADE, -- NULL: of no line of a log
    transfer_ns INTEGER, -- after the last rank came
    wait_ns INTEGER, -- this kernel's duration minus transfer_ns
    exposed_ns INTEGER -- part not hidden by compute
);
INSERT INTO _kernel_call_new SELECT kernel_id, call_id, transfer_ns, wait_ns, exposed_ns FROM _kernel_call;
DROP TABLE _kernel_call;
ALTER TABLE _kernel_call_new RENAME TO _kernel_call;
CREATE INDEX _kernel_call_by_call ON _kernel_call (call_id);

-- By kernel traces in logs; of traces see _trace_rank.
CREATE TABLE _rank_wait (
    kernel_id INTEGER PRIMARY KEY REFERENCES _kernel ON DELETE CASCADE, -- one of the rank's
    rank INTEGER NOT NULL, -- world rank
    calls INTEGER NOT NULL,
    duration_ns INTEGER NOT NULL,
    transfer_ns INTEGER NOT NULL,
    wait_ns INTEGER NOT NULL,
    unknown_ns INTEGER NOT NULL,
    late_of INTEGER NOT NULL,
    late_last INTEGER NOT NULL,
    late_behind INTEGER NOT NULL,
    late_typical_ns REAL NOT NULL,
    late_max_ns INTEGER NOT NULL,
    late_total_ns INTEGER NOT NULL,
    caused_wait_ns INTEGER NOT NULL,
    late_share REAL NOT NULL,
    straggler INTEGER NOT NULL
);

UPDATE _run SET matched = 0 WHERE run_id IN (
    SELECT run_id FROM _kernel k JOIN _source s USING (source_id) WHERE k.process_id IS NOT NULL);
