-- Store, version 17: how much of its lateness a rank inherits, and from which rank.

ALTER TABLE _trace_rank ADD COLUMN late_inherited_ns INTEGER;
ALTER TABLE _trace_rank ADD COLUMN late_first_rank INTEGER;

UPDATE _run SET matched = 0 WHERE run_id IN (SELECT run_id FROM _source WHERE kind = 'trace');
