-- Store, version 1. Objects that begin with an underscore are private; the views in views/ are
-- the interface. Integers are exact: times in ns, sizes in bytes. NULL means "not in the source".
-- Pointers and 64-bit hashes are text in hexadecimal with 0x, since SQLite's integers are signed.

CREATE TABLE _run (
    run_id INTEGER PRIMARY KEY,
    label TEXT NOT NULL UNIQUE,
    matched INTEGER NOT NULL DEFAULT 1 -- 0: sources changed since the calls were last matched
);

CREATE TABLE _source (
    source_id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES _run ON DELETE CASCADE,
    path TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    kind TEXT NOT NULL, -- log, profile, trace, table, csv
    dialect TEXT NOT NULL,
    library TEXT, -- nccl or rccl
    library_version TEXT,
    lines INTEGER,
    parsed INTEGER, -- lines that gave a record
    ignored INTEGER, -- lines of the library that say nothing we keep
    foreign_lines INTEGER, -- lines of other programs
    damaged INTEGER, -- torn or cut lines
    UNIQUE (run_id, sha256)
);

CREATE TABLE _process (
    process_id INTEGER PRIMARY KEY,
    source_id INTEGER NOT NULL REFERENCES _source ON DELETE CASCADE,
    host TEXT,
    pid INTEGER,
    prefix TEXT -- what a launcher put before the line, the first seen
);

-- One row per communicator pointer and generation of a process: what one rank saw of one communicator.
CREATE TABLE _stream (
    stream_id INTEGER PRIMARY KEY,
    process_id INTEGER NOT NULL REFERENCES _process ON DELETE CASCADE,
    comm_ptr TEXT NOT NULL,
    generation INTEGER NOT NULL,
    rank INTEGER,
    nranks INTEGER,
    nnodes INTEGER,
    cuda_dev INTEGER,
    nvml_dev INTEGER,
    bus_id TEXT,
    comm_hash TEXT,
    parent_ptr TEXT,
    split_count INTEGER,
    color INTEGER,
    key INTEGER,
    function TEXT,
    global_rank INTEGER,
    first_line INTEGER
);

-- Observations of one source as columns (see collscope/segment.py): input of the matching.
CREATE TABLE _segment (
    source_id INTEGER PRIMARY KEY REFERENCES _source ON DELETE CASCADE,
    columns BLOB NOT NULL
);

CREATE TABLE _comm (
    comm_id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES _run ON DELETE CASCADE,
    nranks INTEGER,
    nnodes INTEGER,
    parent_id INTEGER,
    comm_hash TEXT,
    color INTEGER,
    matched_by TEXT NOT NULL, -- commId, parent/color, globalrank, inferred
    ranks_seen INTEGER NOT NULL
);

CREATE TABLE _member (
    comm_id INTEGER NOT NULL REFERENCES _comm ON DELETE CASCADE,
    rank INTEGER NOT NULL,
    world_rank INTEGER,
    stream_id INTEGER REFERENCES _stream ON DELETE CASCADE,
    PRIMARY KEY (comm_id, rank)
) WITHOUT ROWID;

CREATE TABLE _class (
    class_id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES _run ON DELETE CASCADE,
    op TEXT NOT NULL,
    datatype TEXT,
    redop TEXT,
    count INTEGER,
    root INTEGER, -- rank of the root or peer, NULL where the operation has none
    size_bytes INTEGER,
    in_place INTEGER, -- 1, 0, NULL when not known
    nranks INTEGER,
    nnodes INTEGER,
    shape TEXT, -- point-to-point pattern: alltoallv, gather, scatter, shift, sendrecv
    backend TEXT NOT NULL DEFAULT 'native' -- native, msccl, mscclpp
);

CREATE TABLE _tuning (
    tuning_id INTEGER PRIMARY KEY,
    algorithm TEXT,
    protocol TEXT,
    channels INTEGER,
    kernel TEXT,
    UNIQUE (algorithm, protocol, channels, kernel)
);

-- Narrow on purpose: inserting calls is the largest part of storing a big log, and costs by the
-- column. _call_total has what calls share.
CREATE TABLE _call_row (
    call_id INTEGER PRIMARY KEY,
    total_id INTEGER NOT NULL, -- of _call_total
    seq INTEGER NOT NULL, -- order on its communicator, from 0
    group_id INTEGER, -- calls launched together, unique in the run
    op_count INTEGER
);

-- Calls counted by what reports group them by: written with the calls, so that no report counts
-- millions of rows.
CREATE TABLE _call_total (
    total_id INTEGER PRIMARY KEY,
    comm_id INTEGER NOT NULL REFERENCES _comm ON DELETE CASCADE,
    class_id INTEGER NOT NULL,
    tuning_id INTEGER,
    ranks_seen INTEGER NOT NULL,
    calls INTEGER NOT NULL
);

-- Where the ranks of a call do not agree: rank absent, or another operation or count.
CREATE TABLE _deviation (
    call_id INTEGER NOT NULL REFERENCES _call_row ON DELETE CASCADE,
    rank INTEGER NOT NULL,
    what TEXT NOT NULL, -- missing, differs
    detail TEXT,
    source_id INTEGER,
    line INTEGER
);

CREATE TABLE _transfer (
    call_id INTEGER NOT NULL REFERENCES _call_row ON DELETE CASCADE,
    src_rank INTEGER NOT NULL,
    dst_rank INTEGER NOT NULL,
    count INTEGER NOT NULL,
    datatype TEXT,
    size_bytes INTEGER,
    seen TEXT NOT NULL -- both, send, recv: which halves were logged
);

CREATE TABLE _kernel_name (
    name_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    family TEXT, -- nccl, rccl, msccl, mscclpp, custom, or NULL: not a collective
    op_hint TEXT,
    algorithm_hint TEXT,
    protocol_hint TEXT,
    redop_hint TEXT,
    datatype_hint TEXT
);

CREATE TABLE _kernel (
    kernel_id INTEGER PRIMARY KEY,
    source_id INTEGER NOT NULL REFERENCES _source ON DELETE CASCADE,
    name_id INTEGER REFERENCES _kernel_name,
    kind TEXT NOT NULL, -- kernel or copy
    device TEXT,
    stream TEXT,
    process_id INTEGER,
    rank INTEGER,
    nranks INTEGER,
    bus_id TEXT,
    op_count INTEGER,
    blocks INTEGER, -- distinct blocks (channels) seen
    start_ns INTEGER, -- clock of the source; GPU clock for RCCL kernel trace
    end_ns INTEGER, -- NULL: the end was never printed
    line INTEGER
);

CREATE TABLE _kernel_call (
    kernel_id INTEGER PRIMARY KEY REFERENCES _kernel ON DELETE CASCADE,
    call_id INTEGER NOT NULL REFERENCES _call_row ON DELETE CASCADE,
    transfer_ns INTEGER, -- shortest duration of the call's kernels over ranks
    wait_ns INTEGER -- this kernel's duration minus transfer_ns
);

CREATE TABLE _kernel_total (
    source_id INTEGER NOT NULL REFERENCES _source ON DELETE CASCADE,
    name_id INTEGER NOT NULL REFERENCES _kernel_name,
    kind TEXT NOT NULL,
    device TEXT,
    calls INTEGER NOT NULL,
    total_ns INTEGER NOT NULL,
    min_ns INTEGER,
    max_ns INTEGER,
    reported_percentage REAL
);

CREATE TABLE _link (
    source_id INTEGER NOT NULL REFERENCES _source ON DELETE CASCADE,
    process_id INTEGER,
    stream_id INTEGER,
    src_rank INTEGER NOT NULL,
    dst_rank INTEGER NOT NULL,
    direction TEXT,
    transport TEXT NOT NULL,
    net TEXT,
    net_dev INTEGER,
    gdr INTEGER,
    channels INTEGER NOT NULL, -- channels that use it
    line INTEGER NOT NULL, -- first of its lines
    excerpt TEXT -- that line's message
);

CREATE TABLE _setting (
    source_id INTEGER NOT NULL REFERENCES _source ON DELETE CASCADE,
    process_id INTEGER,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    origin TEXT NOT NULL,
    line INTEGER NOT NULL,
    excerpt TEXT -- that line's message
);

CREATE TABLE _fact (
    source_id INTEGER NOT NULL REFERENCES _source ON DELETE CASCADE,
    process_id INTEGER,
    kind TEXT NOT NULL,
    value TEXT NOT NULL,
    line INTEGER NOT NULL,
    count INTEGER NOT NULL,
    excerpt TEXT -- that line's message
);

CREATE TABLE _measurement (
    measurement_id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES _run ON DELETE CASCADE,
    source_id INTEGER REFERENCES _source ON DELETE CASCADE,
    label TEXT NOT NULL,
    op TEXT NOT NULL,
    datatype TEXT,
    redop TEXT,
    root INTEGER,
    count INTEGER,
    size_bytes INTEGER,
    in_place INTEGER,
    nranks INTEGER,
    nnodes INTEGER,
    calls INTEGER,
    time_us_median REAL,
    time_us_min REAL,
    time_us_max REAL,
    time_us_mad REAL,
    iterations INTEGER,
    algbw_gbps REAL,
    busbw_gbps REAL,
    reported_busbw_gbps REAL,
    n_wrong INTEGER,
    method TEXT,
    backend TEXT,
    library TEXT,
    device TEXT,
    host TEXT,
    status TEXT
);

CREATE TABLE _sample (
    measurement_id INTEGER NOT NULL REFERENCES _measurement ON DELETE CASCADE,
    ordinal INTEGER NOT NULL,
    time_us REAL NOT NULL,
    PRIMARY KEY (measurement_id, ordinal)
) WITHOUT ROWID;

CREATE TABLE _diagnostic (
    run_id INTEGER NOT NULL REFERENCES _run ON DELETE CASCADE,
    source_id INTEGER REFERENCES _source ON DELETE CASCADE, -- NULL: found while matching
    severity TEXT NOT NULL,
    code TEXT NOT NULL,
    message TEXT NOT NULL,
    line INTEGER,
    excerpt TEXT,
    count INTEGER NOT NULL
);

CREATE INDEX _process_by_source ON _process (source_id);
CREATE INDEX _stream_by_process ON _stream (process_id);
CREATE INDEX _kernel_by_source ON _kernel (source_id);
CREATE INDEX _kernel_call_by_call ON _kernel_call (call_id);
