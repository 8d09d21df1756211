-- The store's interface: stable within a schema version. One comment per column.

-- Every source read, with what became of its lines.
CREATE VIEW sources AS SELECT
    r.label AS run,            -- run the source belongs to
    s.source_id,               -- key
    s.path,                    -- path as given
    substr(s.sha256, 1, 64) AS sha256, -- of the bytes as stored on disk
    s.kind,                    -- log, profile, trace, table, csv, metric
    s.dialect,                 -- format within the kind
    s.library,                 -- nccl or rccl, where the source tells
    s.library_version,         -- as printed
    s.lines,                   -- physical lines (text sources)
    s.parsed,                  -- lines that gave a record
    s.ignored,                 -- library lines that say nothing kept
    s.foreign_lines,           -- lines of other programs
    s.damaged                  -- torn or cut lines
FROM _source s JOIN _run r USING (run_id);

-- Communicators: one row each, however many ranks logged it.
CREATE VIEW communicators AS SELECT
    r.label AS run,            -- run
    c.comm_id,                 -- key
    c.nranks,                  -- ranks it has
    c.nnodes,                  -- as the library printed, or hosts where all ranks are seen
    c.parent_id,               -- communicator it was split from
    c.color,                   -- colour of the split
    c.comm_hash,               -- commId printed by the library, hexadecimal
    c.matched_by,              -- commId, parent/color, globalrank, process group, inferred
    c.ranks_seen               -- ranks with at least one line
FROM _comm c JOIN _run r USING (run_id);

-- Private: the first trace or recording of each rank.
CREATE VIEW _traced AS SELECT
    run_id,                    -- run
    rank,                      -- world rank
    MIN(source_id) AS source_id, -- source
    MAX(host) AS host          -- host, where told
FROM (
    SELECT s.run_id, COALESCE(k.rank, t.rank) AS rank, t.source_id, t.host
    FROM _trace t JOIN _source s USING (source_id) LEFT JOIN _trace_rank k USING (trace_id)
    UNION ALL
    SELECT s.run_id, d.rank, d.source_id, NULL FROM _recording d JOIN _source s USING (source_id)
) GROUP BY run_id, rank;

-- Ranks of communicators and the process, device and pointer behind each.
CREATE VIEW members AS SELECT
    r.label AS run,            -- run
    m.comm_id,                 -- communicator
    m.rank,                    -- rank in the communicator
    m.world_rank,              -- rank in the largest first communicator of the same process
    COALESCE(p.host, x.host) AS host, -- host name as logged or traced
    p.pid,                     -- process id as logged
    t.comm_ptr,                -- pointer in that process
    t.generation,              -- how often the process had used this pointer before
    t.cuda_dev,                -- device index in the process
    t.bus_id,                  -- PCI bus id, packed hexadecimal as logged
    COALESCE(p.source_id, x.source_id) AS source_id -- source of the rank's lines, else its trace
FROM _member m JOIN _comm c USING (comm_id) JOIN _run r USING (run_id)
LEFT JOIN _stream t USING (stream_id) LEFT JOIN _process p USING (process_id)
LEFT JOIN _traced x ON m.stream_id IS NULL AND x.run_id = c.run_id AND x.rank = m.world_rank;

-- Private: calls with what they share.
CREATE VIEW _call AS SELECT
    k.call_id,                 -- key
    t.comm_id,                 -- communicator
    k.seq,                     -- order on it
    t.class_id,                -- class
    k.group_id,                -- calls launched together
    t.tuning_id,               -- what a TUNING line says
    k.op_count,                -- opCount
    t.ranks_seen               -- ranks that logged it
FROM _call_row k JOIN _call_total t USING (total_id);

-- One row per call, however many ranks logged it.
CREATE VIEW calls AS SELECT
    r.label AS run,            -- run
    k.call_id,                 -- key; in launch order over all communicators, as the processes logged it
    k.comm_id,                 -- communicator
    k.seq,                     -- order on the communicator, from 0
    k.class_id,                -- class, see classes
    l.op,                      -- operation in the library's spelling
    l.datatype,                -- element type
    l.redop,                   -- reduction, NULL where the operation has none
    l.root,                    -- root rank, NULL where the operation has none
    l.count,                   -- elements as the API takes it; NULL for all-to-all-v
    l.size_bytes,              -- nccl-tests size S (total bytes)
    l.nranks,                  -- ranks of the communicator
    l.nnodes,                  -- hosts of the communicator
    l.in_place,                -- 1, 0, or NULL when not known
    l.shape,                   -- point-to-point pattern
    l.backend,                 -- native, msccl, mscclpp
    k.group_id,                -- calls launched together
    k.op_count,                -- opCount of the first rank that logged it
    u.algorithm,               -- from a TUNING line
    u.protocol,                -- from a TUNING line
    u.channels,                -- from a TUNING line
    k.ranks_seen,              -- ranks that logged it
    c.matched_by               -- how the communicator's ranks were joined
FROM _call k JOIN _comm c USING (comm_id) JOIN _run r ON r.run_id = c.run_id
JOIN _class l USING (class_id) LEFT JOIN _tuning u USING (tuning_id);

-- Calls counted per communicator, class, tuning and number of ranks that logged them.
CREATE VIEW call_totals AS SELECT
    r.label AS run,            -- run
    t.comm_id,                 -- communicator
    t.class_id,                -- class, see classes
    u.algorithm,               -- from a TUNING line
    u.protocol,                -- from a TUNING line
    u.channels,                -- from a TUNING line
    t.ranks_seen,              -- ranks that logged the calls
    t.calls                    -- number of such calls
FROM _call_total t JOIN _comm c USING (comm_id) JOIN _run r ON r.run_id = c.run_id
LEFT JOIN _tuning u USING (tuning_id);

-- Calls that cost the same, with their number.
CREATE VIEW classes AS SELECT
    r.label AS run,            -- run
    l.class_id,                -- key
    l.op,                      -- operation
    l.datatype,                -- element type
    l.redop,                   -- reduction
    l.root,                    -- root rank
    l.count,                   -- elements as the API takes it
    l.size_bytes,              -- nccl-tests size S of one call
    l.in_place,                -- 1, 0, or NULL when not known
    l.nranks,                  -- ranks
    l.nnodes,                  -- hosts
    l.shape,                   -- point-to-point pattern
    l.backend,                 -- native, msccl, mscclpp
    n.calls,                   -- calls of the class in the run
    n.calls * l.size_bytes AS total_bytes, -- calls times size_bytes
    w.kernel_calls,            -- calls whose kernel times tell transfer from waiting
    w.transfer_ns,             -- sum over those calls of the time after the last rank's arrival
    w.wait_ns,                 -- sum over those calls and their ranks of waiting
    w.kernel_observations,     -- kernels behind the two sums: one per rank and call
    w.kernel_ns                -- their summed duration
FROM _class l JOIN _run r USING (run_id)
JOIN (SELECT class_id, SUM(calls) AS calls FROM _call_total GROUP BY class_id) n USING (class_id)
LEFT JOIN (
    SELECT class_id, COUNT(*) AS kernel_calls, SUM(transfer_ns) AS transfer_ns,
           SUM(wait_ns) AS wait_ns, SUM(observations) AS kernel_observations,
           SUM(kernel_ns) AS kernel_ns
    FROM (SELECT k.class_id, MAX(j.transfer_ns) AS transfer_ns, SUM(j.wait_ns) AS wait_ns,
                 COUNT(*) AS observations, SUM(j.transfer_ns + j.wait_ns) AS kernel_ns
          FROM _kernel_call j JOIN _call k USING (call_id)
          WHERE j.transfer_ns IS NOT NULL GROUP BY j.call_id)
    GROUP BY class_id
) w USING (class_id);

-- Ranks that did not log a call, or logged another operation or count at its place.
CREATE VIEW deviations AS SELECT
    r.label AS run,            -- run
    d.call_id,                 -- call
    k.comm_id,                 -- communicator
    k.seq,                     -- order on the communicator
    d.rank,                    -- rank that deviates
    d.what,                    -- missing or differs
    d.detail,                  -- what the rank logged instead
    s.path,                    -- its source
    d.line                     -- line in the source
FROM _deviation d JOIN _call k USING (call_id) JOIN _comm c USING (comm_id)
JOIN _run r ON r.run_id = c.run_id LEFT JOIN _source s ON s.source_id = d.source_id;

-- Point-to-point transfers, joined from a Send of one rank and a Recv of another.
CREATE VIEW transfers AS SELECT
    r.label AS run,            -- run
    t.call_id,                 -- call (group) it belongs to
    k.comm_id,                 -- communicator
    t.src_rank,                -- sender
    t.dst_rank,                -- receiver
    t.count,                   -- elements
    t.datatype,                -- element type
    t.size_bytes,              -- bytes
    t.seen                     -- both, send, recv: which halves were logged
FROM _transfer t JOIN _call k USING (call_id) JOIN _comm c USING (comm_id)
JOIN _run r ON r.run_id = c.run_id;

-- Single executions of kernels and copies with times.
CREATE VIEW kernels AS SELECT
    r.label AS run,            -- run
    e.kernel_id,               -- key
    e.source_id,               -- source
    n.name,                    -- as the source spells it
    n.family,                  -- nccl, rccl, msccl, mscclpp, custom; NULL: not a collective
    e.kind,                    -- kernel or copy
    e.device,                  -- device as the source names it
    e.stream,                  -- stream or queue
    e.rank,                    -- rank in its communicator; of a trace the world rank
    e.nranks,                  -- ranks of its communicator
    e.bus_id,                  -- PCI bus id, packed hexadecimal
    e.op_count,                -- opCount of an RCCL kernel trace (may be truncated)
    e.blocks,                  -- distinct blocks seen
    e.start_ns,                -- start on the source's clock
    e.end_ns,                  -- end on the same clock, NULL when never printed
    e.end_ns - e.start_ns AS duration_ns, -- duration
    e.launch_ns,               -- start of the host call that launched it, on the same clock
    j.call_id,                 -- call it executed
    j.transfer_ns,             -- part after the call's last rank came; NULL: not known, or warm-up
    j.wait_ns,                 -- duration minus transfer_ns
    j.exposed_ns               -- part with no compute kernel beside it
FROM _kernel e JOIN _source s USING (source_id) JOIN _run r USING (run_id)
LEFT JOIN _kernel_name n USING (name_id) LEFT JOIN _kernel_call j USING (kernel_id);

-- Traces: one row per rank or device, with its clock.
CREATE VIEW traces AS SELECT
    r.label AS run,            -- run
    t.trace_id,                -- key
    t.source_id,               -- source
    COALESCE(k.rank, t.rank) AS rank, -- world rank; of a trace that tells none the smallest free
    t.world_size,              -- ranks of the job, where told
    t.host,                    -- host, where told
    t.device,                  -- device as the source names it
    t.kernels,                 -- kernels, copies and memsets
    k.trace_id IS NOT NULL AS used, -- 0: left out, another trace of the run has its rank
    k.clock_offset_ns,         -- clock ahead of the first comparable trace's; removed before waits
    k.clock_error_ns,          -- one standard deviation of that
    k.clock_drift,             -- ns per ns, 0 where not significant
    k.clock_component,         -- traces of different ones have no common call: not comparable
    k.clock_calls              -- calls behind the estimate
FROM _trace t JOIN _source s USING (source_id) JOIN _run r USING (run_id)
LEFT JOIN _trace_rank k USING (trace_id);

-- What each rank's GPU did after the warm-up, and how late the rank came to its collectives.
CREATE VIEW rank_times AS SELECT
    r.label AS run,            -- run
    k.rank,                    -- world rank
    k.span_ns,                 -- from the end of the warm-up to the last kernel's end
    k.compute_ns,              -- a kernel ran that is no collective
    k.copy_ns,                 -- a copy or memset ran
    k.collective_ns,           -- a collective ran
    k.exposed_ns,              -- of it, with no compute kernel beside it
    k.hidden_ns,               -- of it, beside a compute kernel
    k.copy_only_ns,            -- of exposed_ns, beside a copy or memset
    k.idle_ns,                 -- nothing ran
    k.calls,                   -- collectives, warm-up left out
    k.duration_ns,             -- their summed time: transfer, wait and unknown
    k.transfer_ns,             -- of it, after the last rank came
    k.wait_ns,                 -- of it, before the last rank came
    k.unknown_ns,              -- of it, not to be told
    k.late_of,                 -- synchronising calls that all traced ranks took part in
    k.late_last,               -- of them, those it came last to by more than the clocks' error
    k.late_behind,             -- of them, those with at least half the typical lateness
    k.late_typical_ns,         -- half of its lateness is of calls where it was this late or later
    k.late_max_ns,             -- largest
    k.late_total_ns,           -- sum, against the second last rank
    k.caused_wait_ns,          -- what the others would wait less, had it come with the second last
    k.late_share,              -- ratio to the lateness of all ranks
    k.straggler                -- 1: most of the lateness is its own, beyond the clocks' error
FROM _trace_rank k JOIN _trace t USING (trace_id) JOIN _source s USING (source_id)
JOIN _run r USING (run_id);

-- Collectives of each stream of a rank, after the warm-up.
CREATE VIEW stream_overlaps AS SELECT
    r.label AS run,            -- run
    k.rank,                    -- world rank
    o.stream,                  -- stream as the trace names it
    o.total_ns,                -- collective time
    o.exposed_ns,              -- of it, with no compute kernel beside it
    o.hidden_ns                -- of it, beside one
FROM _trace_stream o JOIN _trace_rank k USING (trace_id) JOIN _trace t USING (trace_id)
JOIN _source s USING (source_id) JOIN _run r USING (run_id);

-- Calls that traces show: their times on the common clock.
CREATE VIEW call_times AS SELECT
    r.label AS run,            -- run
    c.call_id,                 -- call
    k.comm_id,                 -- communicator
    k.seq,                     -- order on the communicator
    k.class_id,                -- class, see classes
    c.ranks_traced,            -- ranks whose trace shows it
    c.ranks_expected,          -- ranks that have a trace and belong to it
    c.transfer_ns,             -- from the last rank's start to the last rank's end
    c.start_skew_ns,           -- first to last start; NULL: clocks cannot be compared
    c.end_skew_ns,             -- first to last end
    c.last_rank,               -- world rank that came last, NULL within the clocks' error
    c.lateness_ns,             -- last start after the second last
    c.warm_up,                 -- 1: first of its group and far longer than the rest; in no sum
    c.suspect,                 -- 1: the shortest kernel contradicts transfer_ns by more than 10 %
    c.mismatched               -- 1: the ranks disagree on operation or size
FROM _call_time c JOIN _call k USING (call_id) JOIN _comm m USING (comm_id)
JOIN _run r ON r.run_id = m.run_id;

-- How far each recorded rank got in each group.
CREATE VIEW progress AS SELECT
    r.label AS run,            -- run
    p.group_name,              -- process group or communicator as recorded
    p.rank,                    -- world rank where the group's ranks are told, else rank in the group
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
-- denominator of share: sum of total_ns of kernels and copies of the same source
CREATE VIEW kernel_totals AS SELECT
    r.label AS run,            -- run
    t.source_id,               -- profile
    n.name,                    -- kernel name
    n.family,                  -- NULL: not a collective
    t.kind,                    -- kernel or copy
    t.device,                  -- device, NULL: all together
    t.calls,                   -- executions
    t.total_ns,                -- summed duration
    t.min_ns,                  -- shortest
    t.max_ns,                  -- longest
    1.0 * t.total_ns / SUM(t.total_ns) OVER (PARTITION BY t.source_id) AS share, -- ratio
    t.reported_percentage,     -- the source's own figure, 0..100
    n.op_hint,                 -- operation the name speaks of; a hint only
    n.algorithm_hint,          -- algorithm of the name; a hint only
    n.protocol_hint,           -- protocol of the name; a hint only
    n.redop_hint,              -- reduction of the name; a hint only
    n.datatype_hint            -- type of the name; a hint only
FROM _kernel_total t JOIN _source s USING (source_id) JOIN _run r USING (run_id)
JOIN _kernel_name n USING (name_id);

-- Share of GPU time in collectives, per profile.
CREATE VIEW share AS SELECT
    run,                       -- run
    source_id,                 -- profile
    SUM(CASE WHEN family IS NOT NULL THEN calls ELSE 0 END) AS collective_calls, -- executions
    SUM(CASE WHEN family IS NOT NULL THEN total_ns ELSE 0 END) AS collective_ns, -- their time
    SUM(CASE WHEN kind = 'kernel' THEN total_ns ELSE 0 END) AS kernel_ns, -- all kernels
    SUM(total_ns) AS busy_ns,  -- all kernels and copies
    -- denominator: all kernels, copies left out
    1.0 * SUM(CASE WHEN family IS NOT NULL THEN total_ns ELSE 0 END)
        / NULLIF(SUM(CASE WHEN kind = 'kernel' THEN total_ns ELSE 0 END), 0) AS share_of_kernels,
    -- denominator: all kernels and copies
    1.0 * SUM(CASE WHEN family IS NOT NULL THEN total_ns ELSE 0 END)
        / NULLIF(SUM(total_ns), 0) AS share_of_busy,
    -- sum of the percentages the source printed for the collectives, 0..100
    SUM(CASE WHEN family IS NOT NULL THEN reported_percentage END) AS reported_percentage,
    -- sum of every percentage printed; 100 when the table is whole
    SUM(reported_percentage) AS reported_coverage
FROM kernel_totals GROUP BY run, source_id;

-- Messages and copies by size range, as Cray perftools counts them per function.
CREATE VIEW message_bins AS SELECT
    r.label AS run,            -- run
    b.source_id,               -- report
    b.function,                -- function that made them
    b.what,                    -- MsgSz: messages; HtoA, AtoH, AtoA: copies between host and GPU
    b.low_bytes,               -- range, inclusive
    b.high_bytes,              -- exclusive; NULL: no upper end
    b.count                    -- mean over the processes, so it need not be whole
FROM _message_bin b JOIN _source s USING (source_id) JOIN _run r USING (run_id);

-- Connections between ranks and what carries them.
CREATE VIEW links AS SELECT
    r.label AS run,            -- run
    m.comm_id,                 -- communicator, NULL when the line does not tell
    l.src_rank,                -- sender in the communicator
    l.dst_rank,                -- receiver
    l.direction,               -- send, receive, or NULL
    l.transport,               -- P2P/CUMEM, P2P/IPC, SHM/…, NET/IB, NET/Socket, …
    l.net,                     -- NET plugin's name
    l.net_dev,                 -- its device
    l.gdr,                     -- 1 with GPUDirect RDMA, 0 without, NULL: not a NET link
    l.channels,                -- channels that use it
    p.host,                    -- host that logged it
    s.path,                    -- source
    l.line,                    -- first of its lines
    l.excerpt                  -- that line's message
FROM _link l JOIN _source s USING (source_id) JOIN _run r USING (run_id)
LEFT JOIN _process p USING (process_id)
LEFT JOIN (SELECT DISTINCT stream_id, comm_id FROM _member) m ON m.stream_id = l.stream_id;

-- Environment and configuration values that the library said it used.
CREATE VIEW settings AS SELECT
    r.label AS run,            -- run
    t.name,                    -- variable or configuration field
    t.value,                   -- value as printed
    t.origin,                  -- environment, config, invalid
    p.host,                    -- host that logged it
    p.pid,                     -- process that logged it
    s.path,                    -- source
    t.line,                    -- line
    t.excerpt                  -- that line's message
FROM _setting t JOIN _source s USING (source_id) JOIN _run r USING (run_id)
LEFT JOIN _process p USING (process_id);

-- Other statements of the library: network in use, plugins, channel counts, warnings.
CREATE VIEW facts AS SELECT
    r.label AS run,            -- run
    f.kind,                    -- network, net_plugin, warning, …
    f.value,                   -- text
    f.count,                   -- how often in the source
    p.host,                    -- host that logged it first
    s.path,                    -- source
    f.line,                    -- first line
    f.excerpt                  -- that line's message
FROM _fact f JOIN _source s USING (source_id) JOIN _run r USING (run_id)
LEFT JOIN _process p USING (process_id);

-- Measured classes: replays, benchmark tables.
CREATE VIEW measurements AS SELECT
    r.label AS run,            -- run
    m.measurement_id,          -- key
    m.source_id,               -- file it was read from
    m.label,                   -- setting, library or machine measured
    m.round,                   -- round, when several settings were measured in turns
    m.op,                      -- operation
    m.datatype,                -- element type
    m.redop,                   -- reduction
    m.root,                    -- root rank
    m.count,                   -- elements as the API takes it
    m.size_bytes,              -- nccl-tests size S of one call
    m.in_place,                -- 1, 0, or NULL when not known
    m.nranks,                  -- ranks measured
    m.nnodes,                  -- hosts these ranks ran on
    m.shape,                   -- point-to-point pattern
    m.calls,                   -- calls of the class in the replayed run
    m.time_us_median,          -- one call on the slowest rank, median over the samples
    m.time_us_min,             -- shortest sample
    m.time_us_max,             -- longest sample
    m.time_us_mad,             -- median absolute deviation of the samples
    m.iterations,              -- calls timed, all samples together
    m.algbw_gbps,              -- size / time, GB = 1e9 bytes
    m.busbw_gbps,              -- algbw times the operation's factor; NULL when nranks is 1 or unknown
    m.reported_busbw_gbps,     -- as a foreign tool printed it; never used
    m.n_wrong,                 -- wrong elements over all ranks, NULL when not checked
    m.checked,                 -- all or sample: what n_wrong looked at
    m.method,                  -- batch, graph, isolated, sequence, or what a foreign tool does
    m.backend,                 -- cuda, hip, host
    m.library,                 -- name and version of the library
    m.device,                  -- device of the slowest rank
    m.host,                    -- host of the slowest rank
    m.status,                  -- ok, wrong, failed, timeout, skipped
    m.message,                 -- what the library said, when status is not ok
    m.scaled_from,             -- ranks of the job, where fewer were measured
    s.path,                    -- file it was read from
    m.line                     -- its line there
FROM _measurement m JOIN _run r USING (run_id) JOIN _source s USING (source_id);

-- Every sample of a measurement that has them.
CREATE VIEW measurement_samples AS SELECT
    r.label AS run,            -- run
    p.measurement_id,          -- measurement
    p.ordinal,                 -- order in which it was taken, from 0
    p.time_us                  -- one call on the slowest rank, mean of the sample's calls
FROM _sample p JOIN _measurement m USING (measurement_id) JOIN _run r USING (run_id);

-- Plain copies without a collective library: what a transfer could reach.
CREATE VIEW copies AS SELECT
    r.label AS run,            -- run
    c.copy_id,                 -- key
    c.source_id,               -- file it was read from
    c.label,                   -- setting or machine measured
    c.round,                   -- round, when everything was measured several times
    c.kind,                    -- peer_async, h2d_pinned, ipc_open, …: see schemas/memcpy-csv.md
    c.src_device,              -- GPU copied from, NULL: memory of the host
    c.dst_device,              -- GPU copied to, NULL: memory of the host
    c.direction,               -- one, or both: two copies at once, in opposite directions
    c.access,                  -- peer: one GPU reaches the other's memory; none; NULL: does not apply
    c.size_bytes,              -- of one copy in one direction
    c.time_us_median,          -- of one repetition, median over the samples
    c.time_us_min,             -- shortest sample
    c.time_us_max,             -- longest sample
    c.time_us_mad,             -- median absolute deviation of the samples
    c.iterations,              -- repetitions timed, all samples together
    c.bandwidth_gbps,          -- size / time, of one direction, GB = 1e9 bytes; NULL where nothing is copied
    c.n_wrong,                 -- wrong bytes, NULL when not checked
    c.checked,                 -- all or sample: what n_wrong looked at
    c.status,                  -- ok, wrong, failed, timeout, skipped
    c.message,                 -- what the runtime said, when status is not ok
    c.device,                  -- name of the GPU copied from, or of the processor
    c.runtime,                 -- name and version of the GPU runtime, or of MPI
    c.hostname,                -- host
    c.started,                 -- when, UTC
    s.path,                    -- file it was read from
    c.line                     -- its line there
FROM _copy c JOIN _run r USING (run_id) JOIN _source s USING (source_id);

-- Every sample of a copy.
CREATE VIEW copy_samples AS SELECT
    r.label AS run,            -- run
    p.copy_id,                 -- copy
    p.ordinal,                 -- order in which it was taken, from 0
    p.time_us                  -- one repetition, mean of the sample's repetitions
FROM _copy_sample p JOIN _copy c USING (copy_id) JOIN _run r USING (run_id);

-- Computation beside collectives: what each rank's work and the calls cost each other.
CREATE VIEW interference AS SELECT
    r.label AS run,            -- run
    i.interference_id,         -- key
    i.source_id,               -- file it was read from
    i.label,                   -- setting, library or machine measured
    i.round,                   -- round, when several settings were measured in turns
    i.op,                      -- operation
    i.datatype,                -- element type
    i.redop,                   -- reduction
    i.count,                   -- elements as the API takes it
    i.size_bytes,              -- nccl-tests size S of one call
    i.in_place,                -- 1, 0, or NULL when not known
    i.shape,                   -- point-to-point pattern
    i.nranks,                  -- ranks of the communicator
    i.nnodes,                  -- hosts these ranks ran on
    i.rank,                    -- rank whose work it is
    i.backend,                 -- cuda, hip, host
    i.compute,                 -- gemm, kernel, host-thread
    i.compute_description,     -- what it computes
    i.channels,                -- as the launch set them, NULL: the library's choice
    i.priority,                -- of the calls' stream: high, normal; NULL on the host
    i.compute_alone_us,        -- a batch of work with nothing beside it, median
    i.compute_with_us,         -- the same work while calls run all the time
    i.relative_compute,        -- performance beside calls / alone, median over rounds
    i.relative_compute_mad,    -- median absolute deviation of that
    i.relative_compute_noise,  -- standard deviation of the ratio of two undisturbed batches
    i.comm_alone_us,           -- one call with nothing beside it, median
    i.comm_with_us,            -- one call while work runs all the time
    i.relative_busbw,          -- bus bandwidth beside work / alone, median over rounds
    i.relative_busbw_mad,      -- median absolute deviation of that
    i.relative_busbw_noise,    -- standard deviation of the ratio of two undisturbed batches
    i.busbw_alone_gbps,        -- of comm_alone_us
    i.busbw_with_gbps,         -- of comm_with_us
    i.samples,                 -- rounds taken
    i.covered,                 -- of them, those where each lasted as long as the other
    i.multiprocessors,         -- of the GPU
    i.device,                  -- device of the rank
    i.library,                 -- name and version of the library
    i.runtime,                 -- name and version of the GPU runtime
    i.host,                    -- host of the rank
    i.environment,             -- variables of the libraries that were set
    i.status,                  -- ok, wrong, failed, timeout, uncovered
    i.message,                 -- why, when status is not ok
    i.relative_compute_samples, -- of the rounds that count, JSON
    i.relative_busbw_samples,  -- of the rounds that count, JSON
    s.path,                    -- file it was read from
    i.line                     -- its line there
FROM _interference i JOIN _run r USING (run_id) JOIN _source s USING (source_id);

-- Figures of the application: step times, throughput.
CREATE VIEW metrics AS SELECT
    r.label AS run,            -- run
    m.metric_id,               -- key
    m.source_id,               -- file it was read from
    m.label,                   -- setting, library or machine
    m.name,                    -- what was measured
    m.value,                   -- figure
    m.unit,                    -- its unit, NULL when the source does not tell
    m.higher_is_better,        -- 1, 0, NULL when the unit does not tell
    s.path,                    -- file it was read from
    m.line                     -- its line there
FROM _metric m JOIN _run r USING (run_id) JOIN _source s USING (source_id);

-- Everything that was not as it should be, counted.
CREATE VIEW diagnostics AS SELECT
    r.label AS run,            -- run
    d.severity,                -- info, notice, data_loss, error
    d.code,                    -- stable name of the problem
    d.message,                 -- one sentence
    s.path,                    -- source, NULL: found while matching
    d.line,                    -- first line
    d.excerpt,                 -- that line, cut
    d.count                    -- occurrences
FROM _diagnostic d JOIN _run r ON r.run_id = d.run_id
LEFT JOIN _source s ON s.source_id = d.source_id;
