-- What ran on the GPUs.

-- Single executions of kernels and copies with times.
CREATE VIEW kernels AS SELECT
    r.label AS run,            -- run
    e.kernel_id,               -- key
    e.source_id,               -- source, see sources
    n.name,                    -- as the source spells it
    n.family,                  -- nccl, rccl, msccl, mscclpp, custom; NULL: no collective
    e.kind,                    -- kernel or copy
    e.device,                  -- device as the source names it
    e.stream,                  -- CUDA or HIP stream, or the hardware queue where only that is known
    e.rank,                    -- rank in its communicator; of a trace the world rank
    e.nranks,                  -- ranks of the communicator
    e.comm_ptr,                -- its communicator's pointer in an RCCL kernel trace, see members
    e.bus_id,                  -- PCI bus id, packed hexadecimal
    e.op_count,                -- opCount of an RCCL kernel trace (may be truncated)
    e.blocks,                  -- thread blocks of a collective: its grid in a trace; distinct ones in RCCL's kernel trace
    e.start_ns,                -- start on the source's clock; of a recorder that times calls without it, since the first
    e.end_ns,                  -- end on the same clock, NULL when never printed, or no true time
    e.end_ns - e.start_ns AS duration_ns, -- duration
    e.launch_ns,               -- start of the host call that launched it, on the same clock
    j.call_id,                 -- call it executed, NULL where no log line or trace has it
    j.transfer_ns,             -- part after the call's last rank came; NULL: not known, or warm-up
    j.wait_ns,                 -- duration minus transfer_ns
    j.exposed_ns               -- part not hidden by compute
FROM _kernel e JOIN _source s USING (source_id) JOIN _run r USING (run_id)
LEFT JOIN _kernel_name n USING (name_id) LEFT JOIN _kernel_call j USING (kernel_id);

-- Traces: one row per rank or device, with its clock.
CREATE VIEW traces AS SELECT
    r.label AS run,            -- run
    t.trace_id,                -- key
    t.source_id,               -- source, see sources
    COALESCE(k.rank, t.rank) AS rank, -- world rank; where the trace has none, by its file's name (rank3), else the smallest free
    t.world_size,              -- ranks of the job, where known
    t.host,                    -- host, where known
    t.device,                  -- device as the source names it
    t.gpu,                     -- what the GPU is, where known
    t.kernels,                 -- kernels, copies and memsets
    k.trace_id IS NOT NULL AS used, -- 0: left out, another trace of the run has its rank
    k.clock_offset_ns,         -- clock ahead of the first comparable trace's; removed before waits
    k.clock_error_ns,          -- one standard deviation of that
    k.clock_drift,             -- ns per ns, 0 where not significant
    k.clock_component,         -- traces of different ones have no common call: not comparable
    k.clock_calls              -- calls behind the estimate
FROM _trace t JOIN _source s USING (source_id) JOIN _run r USING (run_id)
LEFT JOIN _trace_rank k USING (trace_id);

-- Steps of traced runs: those that recur or that the profiler marked, as many of every rank.
CREATE VIEW steps AS SELECT
    r.label AS run,            -- run
    k.rank,                    -- world rank
    p.ordinal AS step,         -- from 0
    p.begin_ns,                -- clock of the trace, as in kernels
    p.end_ns,                  -- the same
    p.end_ns - p.begin_ns AS duration_ns, -- with the profiler
    p.told_by AS step_from     -- marks: the profiler's; graphs: launches of graphs; kernels, period: recurring kernels or collectives; given: --steps
FROM _trace_step p JOIN _trace_rank k USING (trace_id) JOIN _trace t USING (trace_id)
JOIN _source s USING (source_id) JOIN _run r USING (run_id);

-- What each rank's GPU did after the warm-up, and how late the rank came to its collectives. All figures are NULL
-- where the run's traces contradict themselves.
CREATE VIEW rank_times AS SELECT
    r.label AS run,            -- run
    k.rank,                    -- world rank
    k.span_ns,                 -- from the end of the warm-up to the last kernel's end
    k.compute_ns,              -- a kernel ran that is no collective
    k.copy_ns,                 -- a copy or memset ran
    k.collective_ns,           -- a collective ran
    k.exposed_ns,              -- collective time not hidden by compute
    k.hidden_ns,               -- collective time hidden by compute
    k.copy_only_ns,            -- part of exposed_ns during a copy or memset
    k.idle_ns,                 -- nothing ran
    k.calls,                   -- collectives of the rank, warm-up left out
    k.duration_ns,             -- summed time of these calls: transfer, wait and unknown
    k.transfer_ns,             -- of duration_ns, after the last rank came
    k.wait_ns,                 -- of duration_ns, before the last rank came
    k.unknown_ns,              -- of duration_ns, not known which
    k.late_of,                 -- synchronising calls that every rank seen took part in
    k.late_last,               -- of late_of, those where the rank arrived last by more than the clocks' error
    k.late_behind,             -- of late_of, those where it was late by half of late_typical_ns or more
    k.late_typical_ns,         -- half of its lateness is of calls where it was this late or later
    k.late_max_ns,             -- its largest lateness
    k.late_total_ns,           -- sum of its lateness against the second last rank
    k.caused_wait_ns,          -- what the others would wait less, had it come with the second last
    k.late_share,              -- part of the lateness of all ranks
    k.straggler,               -- 1: most of the lateness is its own, beyond the clocks' error
    k.late_inherited_ns,       -- of late_total_ns, what it owes to ranks that it waited for in other groups
    k.late_first_rank          -- rank that is the first cause of most of it; NULL where it is little
FROM _trace_rank k JOIN _trace t USING (trace_id) JOIN _source s USING (source_id)
JOIN _run r USING (run_id);

-- How long each rank waits in collectives, and how late it comes to them: by its trace, by the kernel trace in
-- RCCL's logs (origin kernel_log), or by a recorder's GPU times (origin recording), where each GPU is known to be
-- one rank.
CREATE VIEW rank_waits AS SELECT
    run,                       -- run
    origin,                    -- trace, kernel_log or recording
    rank,                      -- world rank
    host,                      -- host, where known
    device,                    -- device as the source names it
    bus_id,                    -- PCI bus id, of a kernel_log
    gpu,                       -- what the GPU is, where known
    calls,                     -- collectives of the rank, warm-up left out
    duration_ns,               -- summed time of these calls: transfer, wait and unknown
    transfer_ns,               -- of duration_ns, after the last rank came
    wait_ns,                   -- of duration_ns, before the last rank came
    unknown_ns,                -- of duration_ns, not known which
    late_of,                   -- synchronising calls that every rank seen took part in
    late_last,                 -- of late_of, those where the rank arrived last by more than the clocks' error
    late_behind,               -- of late_of, those where it was late by half of late_typical_ns or more
    late_typical_ns,           -- half of its lateness is of calls where it was this late or later
    late_max_ns,               -- its largest lateness
    late_total_ns,             -- sum of its lateness against the second last rank
    caused_wait_ns,            -- what the others would wait less, had it come with the second last
    late_share,                -- part of the lateness of all ranks
    straggler                  -- 1: most of the lateness is its own, beyond the clocks' error
FROM (
    SELECT r.label AS run, 'trace' AS origin, k.rank, t.host, t.device, NULL AS bus_id, t.gpu, k.calls,
           k.duration_ns, k.transfer_ns, k.wait_ns, k.unknown_ns, k.late_of, k.late_last,
           k.late_behind, k.late_typical_ns, k.late_max_ns, k.late_total_ns, k.caused_wait_ns,
           k.late_share, k.straggler
    FROM _trace_rank k JOIN _trace t USING (trace_id) JOIN _source s USING (source_id)
    JOIN _run r USING (run_id)
    UNION ALL
    SELECT r.label, CASE s.kind WHEN 'log' THEN 'kernel_log' ELSE 'recording' END, w.rank,
           COALESCE(p.host, c.host), NULL, e.bus_id, NULL, w.calls,
           w.duration_ns, w.transfer_ns, w.wait_ns, w.unknown_ns, w.late_of, w.late_last,
           w.late_behind, w.late_typical_ns, w.late_max_ns, w.late_total_ns, w.caused_wait_ns,
           w.late_share, w.straggler
    FROM _rank_wait w JOIN _kernel e USING (kernel_id) LEFT JOIN _process p USING (process_id)
    JOIN _source s ON s.source_id = e.source_id JOIN _run r USING (run_id)
    LEFT JOIN _recording c ON c.source_id = e.source_id);

-- Private: bytes that each rank moved, as bus bandwidth counts them (collscope/model/busbw.py), in the
-- calls whose transfer is known.
CREATE VIEW _rank_moved AS SELECT
    run,                       -- run
    rank,                      -- world rank
    TOTAL(size_bytes * CASE
        WHEN op = 'AllReduce' THEN 2.0 * (nranks - 1) / nranks
        WHEN op IN ('AllGather', 'ReduceScatter', 'AllToAll', 'AllToAllv', 'Gather', 'Scatter')
            THEN 1.0 * (nranks - 1) / nranks
        ELSE 1.0 END) AS moved_bytes, -- sum over calls
    TOTAL(transfer_ns) AS moved_ns -- sum over the same calls
FROM (
    SELECT r.label AS run, COALESCE(m.world_rank, e.rank) AS rank, l.op, l.size_bytes, l.nranks, j.transfer_ns
    FROM _kernel_call j JOIN _kernel e USING (kernel_id) JOIN _source s USING (source_id)
    JOIN _run r USING (run_id) JOIN _call k USING (call_id) JOIN _class l USING (class_id)
    LEFT JOIN _member m ON e.process_id IS NOT NULL AND m.comm_id = k.comm_id AND m.rank = e.rank
    WHERE j.transfer_ns > 0 AND l.size_bytes > 0 AND l.nranks > 1)
GROUP BY run, rank;

-- Node, GPU and NICs of each rank, where the sources name them.
CREATE VIEW rank_places AS SELECT
    r.label AS run,            -- run
    o.rank,                    -- world rank
    o.kind,                    -- node, GPU or NIC
    o.place                    -- host; with bus id or device; with NET transport and device
FROM (
    SELECT c.run_id, m.world_rank AS rank, 'node' AS kind, p.host AS place
    FROM _member m JOIN _comm c USING (comm_id) JOIN _comm_handle t USING (handle_id)
    JOIN _process p USING (process_id)
    UNION
    SELECT s.run_id, m.world_rank, 'NIC', p.host || ' ' || l.transport || '/' || l.net_dev
    FROM _link l JOIN _source s USING (source_id) JOIN _process p USING (process_id)
    JOIN _comm_handle t ON t.process_id = l.process_id AND t.handle_id = COALESCE(l.handle_id, t.handle_id)
    JOIN _member m ON m.handle_id = t.handle_id
    UNION
    SELECT s.run_id, w.rank, 'node', COALESCE(p.host, c.host)
    FROM _rank_wait w JOIN _kernel e USING (kernel_id) LEFT JOIN _process p USING (process_id)
    JOIN _source s ON s.source_id = e.source_id LEFT JOIN _recording c ON c.source_id = e.source_id
    UNION
    SELECT s.run_id, w.rank, 'GPU', p.host || ' ' || e.bus_id
    FROM _rank_wait w JOIN _kernel e USING (kernel_id) JOIN _process p USING (process_id)
    JOIN _source s ON s.source_id = e.source_id
    UNION
    SELECT s.run_id, k.rank, 'node', t.host
    FROM _trace_rank k JOIN _trace t USING (trace_id) JOIN _source s USING (source_id)
    UNION
    SELECT s.run_id, k.rank, 'GPU', t.host || ' ' || t.device
    FROM _trace_rank k JOIN _trace t USING (trace_id) JOIN _source s USING (source_id)) o
JOIN _run r USING (run_id) WHERE o.rank IS NOT NULL AND o.place IS NOT NULL;

-- Waiting, lateness and bandwidth of the ranks of each GPU, node and NIC, where the sources name them.
CREATE VIEW place_times AS SELECT
    o.run,                     -- run
    o.kind,                    -- GPU, node or NIC
    o.place,                   -- as in rank_places
    json_group_array(w.rank) AS ranks, -- its world ranks, JSON; a rank may use several NICs
    SUM(w.calls) AS calls,     -- collectives of those ranks, warm-up left out
    SUM(w.transfer_ns) AS transfer_ns, -- sum, after the last rank came
    SUM(w.wait_ns) AS wait_ns, -- sum, before the last rank came
    SUM(w.late_last) AS late_last, -- calls where one of them arrived last
    SUM(w.late_total_ns) AS late_total_ns, -- sum of their lateness, against the second last rank
    SUM(w.caused_wait_ns) AS caused_wait_ns, -- what the others would wait less, had it come with the second last
    SUM(v.moved_bytes) / NULLIF(SUM(v.moved_ns), 0) AS busbw_gbps -- mean of their calls, by time
FROM rank_places o JOIN rank_waits w ON w.run = o.run AND w.rank = o.rank
LEFT JOIN _rank_moved v ON v.run = o.run AND v.rank = o.rank
WHERE w.origin = 'trace' OR NOT EXISTS (
    SELECT 1 FROM rank_waits x WHERE x.run = w.run AND x.origin = 'trace')
GROUP BY o.run, o.kind, o.place;

-- Collectives of each stream of a rank, after the warm-up.
CREATE VIEW stream_overlaps AS SELECT
    r.label AS run,            -- run
    k.rank,                    -- world rank
    o.stream,                  -- stream as the trace names it
    o.total_ns,                -- collective time
    o.exposed_ns,              -- collective time not hidden by compute
    o.hidden_ns                -- collective time hidden by compute
FROM _trace_stream o JOIN _trace_rank k USING (trace_id) JOIN _trace t USING (trace_id)
JOIN _source s USING (source_id) JOIN _run r USING (run_id);

-- Calls that traces show: their times on the common clock.
CREATE VIEW call_times AS SELECT
    r.label AS run,            -- run
    c.call_id,                 -- call, see calls
    k.comm_id,                 -- communicator, see communicators
    k.seq,                     -- order on the communicator, from 0
    k.class_id,                -- class, see classes
    c.ranks_traced,            -- ranks whose trace shows it
    c.ranks_expected,          -- ranks of its group, traced or not; NULL: unknown
    c.transfer_ns,             -- last rank's start to last end; NULL where a rank is not there
    c.start_skew_ns,           -- first to last start; NULL: clocks cannot be compared
    c.end_skew_ns,             -- first to last end
    c.last_rank,               -- world rank that arrived last, NULL within the clocks' error
    c.lateness_ns,             -- last start after the second last
    c.warm_up,                 -- 1: first of its group and far longer than the rest; in no sum
    c.suspect,                 -- 1: the shortest kernel contradicts transfer_ns by more than 10 %
    c.mismatched               -- 1: the ranks disagree on operation or size
FROM _call_time c JOIN _call k USING (call_id) JOIN _comm m USING (comm_id)
JOIN _run r ON r.run_id = m.run_id;

-- Recordings of calls, with the time that the recorder took from the job where it is known.
CREATE VIEW recordings AS SELECT
    r.label AS run,            -- run
    c.source_id,               -- source, see sources
    c.rank,                    -- world rank, where known
    c.host,                    -- host, where known
    c.begin_ns,                -- first call, on the host's clock; NULL: no call has a time
    c.end_ns,                  -- last call, on the same clock
    c.callback_ns,             -- time of the job's threads in the recorder's callbacks, to the end of this part
    c.process,                 -- names the process, whose recording may be in parts; NULL: it is in one
    c.part                     -- place of this part, from 0
FROM _recording c JOIN _source s USING (source_id) JOIN _run r USING (run_id);

-- GPU times of recorded calls by communicator, class and window, warm-up left out.
CREATE VIEW recorded_windows AS SELECT
    run,                       -- run
    comm_id,                   -- communicator, see communicators
    class_id,                  -- class, see classes
    window,                    -- calls that follow each other on the communicator have one number
    COUNT(*) AS calls,         -- with a time on any rank
    SUM(kernels) AS kernels,   -- one per rank and call
    CAST(TOTAL(kernel_ns) AS INTEGER) AS kernel_ns, -- their summed duration
    MIN(shortest_ns) AS shortest_ns -- the shortest of them
FROM (
    SELECT r.label AS run, k.comm_id, k.class_id, n.kernels, n.kernel_ns, n.shortest_ns,
           k.seq - ROW_NUMBER() OVER (PARTITION BY k.comm_id ORDER BY k.seq) AS window
    FROM (SELECT j.call_id, s.run_id, COUNT(*) AS kernels, SUM(e.end_ns - e.start_ns) AS kernel_ns,
                 MIN(e.end_ns - e.start_ns) AS shortest_ns
          FROM _recording c JOIN _source s USING (source_id) JOIN _kernel e USING (source_id)
          JOIN _kernel_call j USING (kernel_id) WHERE j.call_id IS NOT NULL GROUP BY j.call_id) n
    JOIN _run r USING (run_id) JOIN _call k USING (call_id) JOIN _call_time t USING (call_id)
    WHERE NOT t.warm_up)
GROUP BY run, comm_id, class_id, window;

-- How far each recorded rank got in each group.
CREATE VIEW progress AS SELECT
    r.label AS run,            -- run
    p.group_name,              -- process group or communicator
    p.rank,                    -- world rank where the group's ranks are known, else rank in the group
    p.last_called,             -- last collective called
    p.last_completed,          -- last known to be completed
    p.first_missing,           -- first that another rank called and this one did not
    p.first_open               -- first called and not completed
FROM _progress p JOIN _run r USING (run_id);

-- What the ranks' recordings and traces disagree on.
CREATE VIEW disagreements AS SELECT
    r.label AS run,            -- run
    d.origin,                  -- recording or trace
    d.kind,                    -- stopped, missing, different, open, unmatched, different_size
    d.group_name,              -- process group or communicator
    d.ranks,                   -- JSON array of the ranks that stopped, lack it, differ, or wait
    d.world_ranks,             -- 1: world ranks; 0: ranks in the group
    d.seq,                     -- first place in the group, NULL for transfers
    d.message,                 -- one sentence
    d.count                    -- places
FROM _disagreement d JOIN _run r USING (run_id);

-- Totals per kernel name, as in a profiler's "top"; of traces those after the warm-up.
-- Denominator of share: sum of total_ns of kernels and copies of the same source
CREATE VIEW kernel_totals AS SELECT
    r.label AS run,            -- run
    t.source_id,               -- source, see sources
    n.name,                    -- kernel name
    n.family,                  -- nccl, rccl, msccl, mscclpp, custom; NULL: no collective
    t.kind,                    -- kernel or copy
    t.device,                  -- device, NULL: all together
    t.calls,                   -- executions
    t.total_ns,                -- summed duration
    t.min_ns,                  -- shortest
    t.max_ns,                  -- longest
    t.total_ns / TOTAL(t.total_ns) OVER (PARTITION BY t.source_id) AS share, -- ratio
    t.reported_percentage,     -- the source's own figure, 0..100
    n.op_hint,                 -- operation the name speaks of; a hint only
    n.algorithm_hint,          -- algorithm of the name; a hint only
    n.protocol_hint,           -- protocol of the name; a hint only
    n.redop_hint,              -- reduction of the name; a hint only
    n.datatype_hint            -- type of the name; a hint only
FROM _kernel_total t JOIN _source s USING (source_id) JOIN _run r USING (run_id)
JOIN _kernel_name n USING (name_id);

-- Share of GPU time in collectives, per profile. Sums are TOTAL, which cannot overflow: exact below
-- 2^53 ns, which is 104 days.
CREATE VIEW share AS SELECT
    run,                       -- run
    source_id,                 -- source, see sources
    CAST(TOTAL(CASE WHEN family IS NOT NULL THEN calls END) AS INTEGER) AS collective_calls, -- executions
    CAST(TOTAL(CASE WHEN family IS NOT NULL THEN total_ns END) AS INTEGER) AS collective_ns, -- their time
    CAST(TOTAL(CASE WHEN kind = 'kernel' THEN total_ns END) AS INTEGER) AS kernel_ns, -- all kernels
    CAST(TOTAL(total_ns) AS INTEGER) AS busy_ns,  -- all kernels and copies
    -- denominator: all kernels, copies left out
    TOTAL(CASE WHEN family IS NOT NULL THEN total_ns END)
        / NULLIF(TOTAL(CASE WHEN kind = 'kernel' THEN total_ns END), 0) AS share_of_kernels,
    -- denominator: all kernels and copies
    TOTAL(CASE WHEN family IS NOT NULL THEN total_ns END)
        / NULLIF(TOTAL(total_ns), 0) AS share_of_busy,
    -- sum of the percentages the source printed for the collectives, 0..100
    SUM(CASE WHEN family IS NOT NULL THEN reported_percentage END) AS reported_percentage,
    -- sum of every percentage printed; 100 when the table is whole
    SUM(reported_percentage) AS reported_coverage
FROM kernel_totals GROUP BY run, source_id;

-- Messages and copies by size range, as Cray perftools counts them per function.
CREATE VIEW message_bins AS SELECT
    r.label AS run,            -- run
    b.source_id,               -- source, see sources
    b.function,                -- function that made them
    b.what,                    -- MsgSz: messages; HtoA, AtoH, AtoA: copies between host and GPU
    b.low_bytes,               -- range, inclusive
    b.high_bytes,              -- exclusive; NULL: no upper end
    b.count                    -- mean over the processes, so it need not be whole
FROM _message_bin b JOIN _source s USING (source_id) JOIN _run r USING (run_id);
