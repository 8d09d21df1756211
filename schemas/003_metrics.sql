-- Store, version 3: figures of an application, such as step times and throughput.

CREATE TABLE _metric (
    metric_id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES _run ON DELETE CASCADE,
    source_id INTEGER NOT NULL REFERENCES _source ON DELETE CASCADE,
    name TEXT NOT NULL,
    value REAL NOT NULL,
    unit TEXT, -- s, ms, samples/s, …
    higher_is_better INTEGER, -- 1, 0, NULL when the unit does not show it
    label TEXT NOT NULL, -- setting, library or machine
    line INTEGER
);

CREATE INDEX _metric_by_source ON _metric (source_id);
