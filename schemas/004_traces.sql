-- Store, version 4: traces of kernels, recordings of calls, and what both show once they are joined.

ALTER TABLE _kernel ADD COLUMN launch_ns INTEGER; -- start of the host call that launched it
-- Part of the kernel's time not hidden by compute.
ALTER TABLE _kernel_call ADD COLUMN exposed_ns INTEGER;

-- One row per rank or device of a trace. Its kernels are consecutive rows of _kernel.
CREATE TABLE _trace (
    trace_id INTEGER PRIMARY KEY,
    source_id INTEGER NOT NULL REFERENCES _source ON DELETE CASCADE,
    rank INTEGER, -- world rank in the trace
    world_size INTEGER,
    host TEXT,
    device TEXT,
    first_kernel INTEGER NOT NULL,
    kernels INTEGER NOT NULL,
    columns BLOB NOT NULL -- see collscope/store/trace_columns.py: input of the matching
);

-- One row per rank of a recording of calls without GPU times.
CREATE TABLE _recording (
    recording_id INTEGER PRIMARY KEY,
    source_id INTEGER NOT NULL REFERENCES _source ON DELETE CASCADE,
    rank INTEGER,
    calls BLOB NOT NULL -- see collscope/store/trace_columns.py: input of the matching
);

-- Found by matching: one row per trace that counts (of two with one rank the first does).
CREATE TABLE _trace_rank (
    trace_id INTEGER PRIMARY KEY REFERENCES _trace ON DELETE CASCADE,
    rank INTEGER NOT NULL, -- of the source, else the smallest free number
    clock_offset_ns INTEGER NOT NULL,
    clock_error_ns REAL NOT NULL,
    clock_drift REAL NOT NULL,
    clock_component INTEGER NOT NULL,
    clock_calls INTEGER NOT NULL,
    span_ns INTEGER NOT NULL,
    compute_ns INTEGER NOT NULL,
    copy_ns INTEGER NOT NULL,
    collective_ns INTEGER NOT NULL,
    exposed_ns INTEGER NOT NULL,
    hidden_ns INTEGER NOT NULL,
    copy_only_ns INTEGER NOT NULL,
    idle_ns INTEGER NOT NULL,
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

CREATE TABLE _trace_stream (
    trace_id INTEGER NOT NULL REFERENCES _trace ON DELETE CASCADE,
    stream TEXT NOT NULL,
    total_ns INTEGER NOT NULL,
    exposed_ns INTEGER NOT NULL,
    hidden_ns INTEGER NOT NULL
);

-- Times of a call over the ranks that have a trace.
CREATE TABLE _call_time (
    call_id INTEGER PRIMARY KEY REFERENCES _call_row ON DELETE CASCADE,
    ranks_traced INTEGER NOT NULL,
    ranks_expected INTEGER NOT NULL, -- with a trace
    transfer_ns INTEGER,
    start_skew_ns INTEGER,
    end_skew_ns INTEGER,
    last_rank INTEGER, -- world rank; NULL: within the clocks' error
    lateness_ns INTEGER,
    warm_up INTEGER NOT NULL,
    suspect INTEGER NOT NULL,
    mismatched INTEGER NOT NULL
);

-- How far a rank got in a group, by its recording.
CREATE TABLE _progress (
    run_id INTEGER NOT NULL REFERENCES _run ON DELETE CASCADE,
    group_name TEXT NOT NULL,
    rank INTEGER NOT NULL,
    last_called INTEGER,
    last_completed INTEGER,
    first_missing INTEGER,
    first_open INTEGER
);

-- What ranks disagree on, by recordings and traces.
CREATE TABLE _disagreement (
    run_id INTEGER NOT NULL REFERENCES _run ON DELETE CASCADE,
    origin TEXT NOT NULL, -- recording, trace
    kind TEXT NOT NULL,
    group_name TEXT,
    ranks TEXT NOT NULL, -- JSON
    world_ranks INTEGER NOT NULL,
    seq INTEGER,
    message TEXT NOT NULL,
    count INTEGER NOT NULL
);

CREATE INDEX _trace_by_source ON _trace (source_id);
CREATE INDEX _recording_by_source ON _recording (source_id);

-- Messages or copies of a size range that a function made, as Cray perftools counts them.
CREATE TABLE _message_bin (
    source_id INTEGER NOT NULL REFERENCES _source ON DELETE CASCADE,
    function TEXT NOT NULL,
    what TEXT NOT NULL,
    low_bytes INTEGER NOT NULL,
    high_bytes INTEGER,
    count REAL NOT NULL
);

CREATE INDEX _message_bin_by_source ON _message_bin (source_id);
