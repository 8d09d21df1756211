-- Store, version 14: the steps of traced runs.

ALTER TABLE _run ADD COLUMN steps INTEGER; -- that each trace holds, as given; NULL: they are found

-- Steps that recur in a trace, or are marked; the last ones, as many of every rank.
CREATE TABLE _trace_step (
    trace_id INTEGER NOT NULL REFERENCES _trace ON DELETE CASCADE,
    ordinal INTEGER NOT NULL, -- from 0
    begin_ns INTEGER NOT NULL, -- clock of the trace
    end_ns INTEGER NOT NULL,
    told_by TEXT NOT NULL, -- marks, kernels, period, given: `collscope.timeline.steps.Steps`
    PRIMARY KEY (trace_id, ordinal)
) WITHOUT ROWID;

UPDATE _run SET matched = 0 WHERE run_id IN (SELECT run_id FROM _source WHERE kind = 'trace');
