-- Store, version 2: measurements as `collscope.model.Measurement` has them. Version 1 had the tables
-- but nothing that filled them.

DROP TABLE _sample;
DROP TABLE _measurement;

CREATE TABLE _measurement (
    measurement_id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES _run ON DELETE CASCADE,
    source_id INTEGER NOT NULL REFERENCES _source ON DELETE CASCADE,
    label TEXT NOT NULL, -- setting, library or machine measured
    round INTEGER,
    op TEXT NOT NULL,
    datatype TEXT,
    redop TEXT,
    root INTEGER,
    count INTEGER,
    size_bytes INTEGER,
    in_place INTEGER,
    nranks INTEGER,
    nnodes INTEGER,
    shape TEXT,
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
    checked TEXT,
    method TEXT,
    backend TEXT,
    library TEXT,
    device TEXT,
    host TEXT,
    status TEXT NOT NULL,
    message TEXT,
    scaled_from INTEGER,
    line INTEGER
);

CREATE TABLE _sample (
    measurement_id INTEGER NOT NULL REFERENCES _measurement ON DELETE CASCADE,
    ordinal INTEGER NOT NULL,
    time_us REAL NOT NULL,
    PRIMARY KEY (measurement_id, ordinal)
) WITHOUT ROWID;

CREATE INDEX _measurement_by_source ON _measurement (source_id);
