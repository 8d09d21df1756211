-- Sources, communicators and calls. All views are the interface of the store: stable within a schema
-- version, one comment per column. Names that begin with an underscore are private.

-- Every source read, with what became of its lines.
CREATE VIEW sources AS SELECT
    r.label AS run,            -- run
    s.source_id,               -- key
    s.path,                    -- path as given
    substr(s.sha256, 1, 64) AS sha256, -- of the bytes as stored on disk
    s.kind,                    -- log, profile, trace, table, csv, metric
    s.dialect,                 -- format within the kind
    s.library,                 -- nccl or rccl, where known
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
    c.nranks,                  -- ranks of the communicator
    c.nnodes,                  -- as printed, or hosts where all ranks are seen
    c.parent_id,               -- communicator it was split from
    c.color,                   -- colour of the split
    c.comm_hash,               -- commId printed by the library, hexadecimal
    c.matched_by,              -- commId, parent/color, globalrank, process group, inferred
    c.ranks_seen,              -- ranks with at least one line
    c.name                     -- what the program calls it, by its traces: mesh_tp
FROM _comm c JOIN _run r USING (run_id);

-- Private: the first trace or recording of each rank.
CREATE VIEW _traced AS SELECT
    run_id,                    -- run
    rank,                      -- world rank
    MIN(source_id) AS source_id, -- source
    MAX(host) AS host          -- host, where known
FROM (
    SELECT s.run_id, COALESCE(k.rank, t.rank) AS rank, t.source_id, t.host
    FROM _trace t JOIN _source s USING (source_id) LEFT JOIN _trace_rank k USING (trace_id)
    UNION ALL
    SELECT s.run_id, d.rank, d.source_id, NULL FROM _recording d JOIN _source s USING (source_id)
) GROUP BY run_id, rank;

-- Ranks of communicators and the process, device and pointer behind each.
CREATE VIEW members AS SELECT
    r.label AS run,            -- run
    m.comm_id,                 -- communicator, see communicators
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
LEFT JOIN _comm_handle t USING (handle_id) LEFT JOIN _process p USING (process_id)
LEFT JOIN _traced x ON m.handle_id IS NULL AND x.run_id = c.run_id AND x.rank = m.world_rank;

-- Private: calls with what they share.
CREATE VIEW _call AS SELECT
    k.call_id,                 -- key
    t.comm_id,                 -- communicator
    k.seq,                     -- order on it
    t.class_id,                -- class
    k.group_id,                -- calls launched together
    t.tuning_id,               -- the choice in a TUNING line
    k.op_count,                -- opCount
    t.ranks_seen               -- ranks that logged it
FROM _call_row k JOIN _call_total t USING (total_id);

-- One row per call, however many ranks logged it.
CREATE VIEW calls AS SELECT
    r.label AS run,            -- run
    k.call_id,                 -- key; in launch order over all communicators, as the processes logged it
    k.comm_id,                 -- communicator, see communicators
    k.seq,                     -- order on the communicator, from 0
    k.class_id,                -- class, see classes
    l.op,                      -- operation in the library's spelling
    l.datatype,                -- element type
    l.redop,                   -- reduction, NULL where the operation has none
    l.root,                    -- root rank, NULL where the operation has none
    l.count,                   -- elements as the API takes it; NULL for all-to-all-v
    l.size_bytes,              -- nccl-tests size S of one call
    l.nranks,                  -- ranks of the communicator
    l.nnodes,                  -- hosts of these ranks
    l.in_place,                -- 1, 0; NULL: not known
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
    t.comm_id,                 -- communicator, see communicators
    t.class_id,                -- class, see classes
    u.algorithm,               -- from a TUNING line
    u.protocol,                -- from a TUNING line
    u.channels,                -- from a TUNING line
    t.ranks_seen,              -- ranks that logged the calls
    t.calls,                   -- number of such calls
    t.total_id                 -- key, see call_keys
FROM _call_total t JOIN _comm c USING (comm_id) JOIN _run r ON r.run_id = c.run_id
LEFT JOIN _tuning u USING (tuning_id);

-- Keys of calls alone, of all runs: call_totals has what a call shares with others. For who reads
-- millions of them.
CREATE VIEW call_keys AS SELECT
    call_id,                   -- key, see calls
    total_id,                  -- what it shares, see call_totals
    group_id                   -- calls launched together
FROM _call_row;

-- Calls that cost the same, with their number.
CREATE VIEW classes AS SELECT
    r.label AS run,            -- run
    l.class_id,                -- key
    l.op,                      -- operation in the library's spelling
    l.datatype,                -- element type
    l.redop,                   -- reduction, NULL where the operation has none
    l.root,                    -- root rank, NULL where the operation has none
    l.count,                   -- elements as the API takes it
    l.size_bytes,              -- nccl-tests size S of one call
    l.in_place,                -- 1, 0; NULL: not known
    l.nranks,                  -- ranks of the communicator
    l.nnodes,                  -- hosts of these ranks
    l.shape,                   -- point-to-point pattern
    l.backend,                 -- native, msccl, mscclpp
    n.calls,                   -- calls of the class in the run
    n.calls * l.size_bytes AS total_bytes, -- calls times size_bytes
    w.kernel_calls,            -- calls whose kernel times separate transfer from waiting
    w.transfer_ns,             -- sum over those calls of the time after the last rank's arrival
    w.wait_ns,                 -- sum over those calls and their ranks of waiting
    w.kernel_observations,     -- kernels behind the two sums: one per rank and call
    w.split_ns,                -- their summed duration
    s.seen_calls,              -- calls with a kernel of known duration, warm-up left out
    s.seen_kernels,            -- those kernels, warm-up left out
    s.kernel_ns                -- their summed duration: of one rank's trace, the time on that rank
FROM _class l JOIN _run r USING (run_id)
JOIN (SELECT class_id, SUM(calls) AS calls FROM _call_total GROUP BY class_id) n USING (class_id)
LEFT JOIN (
    SELECT class_id, COUNT(*) AS kernel_calls, CAST(TOTAL(transfer_ns) AS INTEGER) AS transfer_ns,
           CAST(TOTAL(wait_ns) AS INTEGER) AS wait_ns, SUM(observations) AS kernel_observations,
           CAST(TOTAL(kernel_ns) AS INTEGER) AS split_ns
    FROM (SELECT k.class_id, MAX(j.transfer_ns) AS transfer_ns, TOTAL(j.wait_ns) AS wait_ns,
                 COUNT(*) AS observations, TOTAL(j.transfer_ns + j.wait_ns) AS kernel_ns
          FROM _kernel_call j JOIN _call k USING (call_id)
          WHERE j.transfer_ns IS NOT NULL GROUP BY j.call_id)
    GROUP BY class_id
) w USING (class_id)
LEFT JOIN (
    SELECT k.class_id, COUNT(DISTINCT CASE WHEN NOT COALESCE(t.warm_up, 0) THEN j.call_id END) AS seen_calls,
           SUM(NOT COALESCE(t.warm_up, 0)) AS seen_kernels,
           CAST(TOTAL((e.end_ns - e.start_ns) * NOT COALESCE(t.warm_up, 0)) AS INTEGER) AS kernel_ns
    FROM _kernel_call j JOIN _kernel e USING (kernel_id) JOIN _call k USING (call_id)
    LEFT JOIN _call_time t USING (call_id)
    WHERE e.end_ns IS NOT NULL GROUP BY k.class_id
) s USING (class_id);

-- Ranks that did not log a call, or logged another operation or count at its place.
CREATE VIEW deviations AS SELECT
    r.label AS run,            -- run
    d.call_id,                 -- call, see calls
    k.comm_id,                 -- communicator, see communicators
    k.seq,                     -- order on the communicator, from 0
    d.rank,                    -- rank that deviates
    d.what,                    -- missing or differs; the report calls missing to the end stopped
    d.detail,                  -- what the rank logged instead; NULL where it logged nothing
    s.path,                    -- path of the source
    d.line                     -- line in the source
FROM _deviation d JOIN _call k USING (call_id) JOIN _comm c USING (comm_id)
JOIN _run r ON r.run_id = c.run_id LEFT JOIN _source s ON s.source_id = d.source_id;

-- Point-to-point transfers, joined from a Send of one rank and a Recv of another.
CREATE VIEW transfers AS SELECT
    r.label AS run,            -- run
    t.call_id,                 -- call (group) it belongs to
    k.comm_id,                 -- communicator, see communicators
    t.src_rank,                -- sender, rank in the communicator
    t.dst_rank,                -- receiver, rank in the communicator
    t.count,                   -- elements
    t.datatype,                -- element type
    t.size_bytes,              -- bytes
    t.seen                     -- both, send, recv: which halves were logged
FROM _transfer t JOIN _call k USING (call_id) JOIN _comm c USING (comm_id)
JOIN _run r ON r.run_id = c.run_id;
