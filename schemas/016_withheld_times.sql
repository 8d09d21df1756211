-- Store, version 16: figures of traces whose times contradict each other are not known.

DROP TABLE _trace_rank; -- written again by the matching
CREATE TABLE _trace_rank (
    trace_id INTEGER PRIMARY KEY REFERENCES _trace ON DELETE CASCADE,
    rank INTEGER NOT NULL, -- of the source, else the smallest free number
    clock_offset_ns INTEGER NOT NULL,
    clock_error_ns REAL NOT NULL,
    clock_drift REAL NOT NULL,
    clock_component INTEGER NOT NULL,
    clock_calls INTEGER NOT NULL,
    -- From here on NULL where the run's traces contradict themselves.
    span_ns INTEGER,
    compute_ns INTEGER,
    copy_ns INTEGER,
    collective_ns INTEGER,
    exposed_ns INTEGER,
    hidden_ns INTEGER,
    copy_only_ns INTEGER,
    idle_ns INTEGER,
    calls INTEGER,
    duration_ns INTEGER,
    transfer_ns INTEGER,
    wait_ns INTEGER,
    unknown_ns INTEGER,
    late_of INTEGER,
    late_last INTEGER,
    late_behind INTEGER,
    late_typical_ns REAL,
    late_max_ns INTEGER,
    late_total_ns INTEGER,
    caused_wait_ns INTEGER,
    late_share REAL,
    straggler INTEGER
);

UPDATE _run SET matched = 0 WHERE run_id IN (SELECT run_id FROM _source WHERE kind = 'trace');
