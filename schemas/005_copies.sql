-- Store, version 5: plain copies, as `collscope.parsers.memcpy_csv.CopyTime` has them.

CREATE TABLE _copy (
    copy_id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES _run ON DELETE CASCADE,
    source_id INTEGER NOT NULL REFERENCES _source ON DELETE CASCADE,
    label TEXT NOT NULL,
    round INTEGER,
    kind TEXT NOT NULL,
    src_device INTEGER, -- NULL: memory of the host
    dst_device INTEGER,
    direction TEXT NOT NULL,
    access TEXT,
    size_bytes INTEGER NOT NULL,
    time_us_median REAL,
    time_us_min REAL,
    time_us_max REAL,
    time_us_mad REAL,
    iterations INTEGER,
    bandwidth_gbps REAL,
    n_wrong INTEGER,
    checked TEXT,
    status TEXT NOT NULL,
    message TEXT,
    device TEXT,
    runtime TEXT,
    hostname TEXT,
    started TEXT,
    line INTEGER
);

CREATE TABLE _copy_sample (
    copy_id INTEGER NOT NULL REFERENCES _copy ON DELETE CASCADE,
    ordinal INTEGER NOT NULL,
    time_us REAL NOT NULL,
    PRIMARY KEY (copy_id, ordinal)
) WITHOUT ROWID;

CREATE INDEX _copy_by_source ON _copy (source_id);
