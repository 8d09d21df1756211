-- Store, version 18: what the analysis of a run's traces found, for all that read it afterwards.

CREATE TABLE _analysis (
    run_id INTEGER PRIMARY KEY REFERENCES _run ON DELETE CASCADE,
    found BLOB NOT NULL -- calls, clocks, times and steps, as collscope/ingest/stored_analysis.py has them
);

UPDATE _run SET matched = 0 WHERE run_id IN (SELECT run_id FROM _source WHERE kind = 'trace');
