-- Store, version 10: the ranks that should take part in a call are those of its group, traced or not;
-- NULL where they are unknown. Stores of before counted the ranks with a trace: they are matched
-- again.

DROP TABLE _call_time;

-- Times of a call, over the ranks that have a trace.
CREATE TABLE _call_time (
    call_id INTEGER PRIMARY KEY REFERENCES _call_row ON DELETE CASCADE,
    ranks_traced INTEGER NOT NULL,
    ranks_expected INTEGER, -- of its group
    transfer_ns INTEGER,
    start_skew_ns INTEGER,
    end_skew_ns INTEGER,
    last_rank INTEGER, -- world rank; NULL: within the clocks' error
    lateness_ns INTEGER,
    warm_up INTEGER NOT NULL,
    suspect INTEGER NOT NULL,
    mismatched INTEGER NOT NULL
);

UPDATE _run SET matched = 0 WHERE run_id IN (SELECT run_id FROM _source WHERE kind = 'trace');
