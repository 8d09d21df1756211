-- Store, version 7: no times that cannot be true, by the rules of collscope/stamps.py that need one
-- row alone. Ingest leaves such rows out since this version; stores of before may hold them.

UPDATE _kernel SET end_ns = NULL
WHERE end_ns IS NOT NULL
  AND (start_ns < 0 OR end_ns < start_ns OR end_ns > 4000000000000000000
       OR end_ns - start_ns > 604800000000000);

-- Profiles alone list no kernel without an end: those that now do were mended.
INSERT INTO _diagnostic
SELECT run_id, source_id, 'data_loss', 'untimed_row',
       'Rows whose start or end is no time (never taken, or a sentinel) are left out of all numbers.',
       NULL, NULL, COUNT(*)
FROM _kernel JOIN _source USING (source_id)
WHERE end_ns IS NULL AND _source.kind = 'profile' GROUP BY source_id;

DELETE FROM _kernel_total WHERE source_id IN (
    SELECT source_id FROM _kernel JOIN _source USING (source_id)
    WHERE end_ns IS NULL AND _source.kind = 'profile');

INSERT INTO _kernel_total
SELECT source_id, name_id, k.kind, device, COUNT(*), CAST(TOTAL(end_ns - start_ns) AS INTEGER),
       MIN(end_ns - start_ns), MAX(end_ns - start_ns), NULL
FROM _kernel k
WHERE end_ns IS NOT NULL AND source_id IN (
    SELECT source_id FROM _kernel JOIN _source USING (source_id)
    WHERE end_ns IS NULL AND _source.kind = 'profile')
GROUP BY source_id, name_id, k.kind, device;

-- What was matched with kernels of traces and of kernel traces in logs is found again.
UPDATE _run SET matched = 0 WHERE run_id IN (
    SELECT run_id FROM _kernel k JOIN _source s USING (source_id)
    WHERE k.end_ns IS NULL AND (s.kind = 'trace' OR k.process_id IS NOT NULL));
