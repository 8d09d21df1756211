-- What was measured.

-- Measured classes: replays, benchmark tables.
CREATE VIEW measurements AS SELECT
    r.label AS run,            -- run
    m.measurement_id,          -- key
    m.source_id,               -- source, see sources
    m.label,                   -- setting, library or machine measured
    m.round,                   -- round, when settings were measured in turns
    m.op,                      -- operation in the library's spelling
    m.datatype,                -- element type
    m.redop,                   -- reduction, NULL where the operation has none
    m.root,                    -- root rank, NULL where the operation has none
    m.count,                   -- elements as the API takes it
    m.size_bytes,              -- nccl-tests size S of one call
    m.in_place,                -- 1, 0; NULL: not known
    m.nranks,                  -- ranks measured
    m.nnodes,                  -- hosts of these ranks
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
    m.status,                  -- ok, wrong, failed, timeout, skipped; contradictory: its columns contradict each other
    m.message,                 -- the library's message, or why, when status is not ok
    m.scaled_from,             -- ranks of the job, where fewer were measured
    s.path,                    -- path of the source
    m.line                     -- line in the source
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
    c.source_id,               -- source, see sources
    c.label,                   -- setting, library or machine measured
    c.round,                   -- round, when settings were measured in turns
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
    c.status,                  -- ok, wrong, failed, timeout, skipped, contradictory
    c.message,                 -- the runtime's message, when status is not ok
    c.device,                  -- name of the GPU copied from, or of the processor
    c.runtime,                 -- name and version of the GPU runtime, or of MPI
    c.hostname,                -- host
    c.started,                 -- when, UTC
    s.path,                    -- path of the source
    c.line                     -- line in the source
FROM _copy c JOIN _run r USING (run_id) JOIN _source s USING (source_id);

-- Every sample of a copy.
CREATE VIEW copy_samples AS SELECT
    r.label AS run,            -- run
    p.copy_id,                 -- copy
    p.ordinal,                 -- order in which it was taken, from 0
    p.time_us                  -- one repetition, mean of the sample's repetitions
FROM _copy_sample p JOIN _copy c USING (copy_id) JOIN _run r USING (run_id);

-- Compute and collectives at the same time: how each rank's work and the calls slow each other.
CREATE VIEW interference AS SELECT
    r.label AS run,            -- run
    i.interference_id,         -- key
    i.source_id,               -- source, see sources
    i.label,                   -- setting, library or machine measured
    i.round,                   -- round, when settings were measured in turns
    i.op,                      -- operation in the library's spelling
    i.datatype,                -- element type
    i.redop,                   -- reduction, NULL where the operation has none
    i.count,                   -- elements as the API takes it
    i.size_bytes,              -- nccl-tests size S of one call
    i.in_place,                -- 1, 0; NULL: not known
    i.shape,                   -- point-to-point pattern
    i.nranks,                  -- ranks of the communicator
    i.nnodes,                  -- hosts of these ranks
    i.rank,                    -- rank whose work it is
    i.backend,                 -- cuda, hip, host
    i.compute,                 -- gemm, kernel, host-thread
    i.compute_description,     -- what it computes
    i.channels,                -- as the launch set them, NULL: the library's choice
    i.priority,                -- of the calls' stream: high, normal; NULL on the host
    i.compute_alone_us,        -- a batch of work alone, median
    i.compute_with_us,         -- the same work while calls run all the time
    i.relative_compute,        -- performance with calls / alone, median over rounds
    i.relative_compute_mad,    -- median absolute deviation of that
    i.relative_compute_noise,  -- standard deviation of the ratio of two undisturbed batches
    i.comm_alone_us,           -- one call alone, median
    i.comm_with_us,            -- one call while work runs all the time
    i.relative_busbw,          -- bus bandwidth with work / alone, median over rounds
    i.relative_busbw_mad,      -- median absolute deviation of that
    i.relative_busbw_noise,    -- standard deviation of the ratio of two undisturbed batches
    i.busbw_alone_gbps,        -- of comm_alone_us
    i.busbw_with_gbps,         -- of comm_with_us
    i.samples,                 -- rounds taken
    i.covered,                 -- of them, those where each lasted as long as the other
    i.multiprocessors,         -- of the GPU
    i.device,                  -- device of the rank
    i.library,                 -- name and version of the library
    i.runtime,                 -- name and version of the GPU runtime, or of MPI
    i.host,                    -- host of the rank
    i.environment,             -- variables of the libraries that were set
    i.status,                  -- ok, wrong, failed, timeout, uncovered, contradictory
    i.message,                 -- why, when status is not ok
    i.relative_compute_samples, -- of the rounds that count, JSON
    i.relative_busbw_samples,  -- of the rounds that count, JSON
    s.path,                    -- path of the source
    i.line                     -- line in the source
FROM _interference i JOIN _run r USING (run_id) JOIN _source s USING (source_id);

-- Figures of the application: step times, throughput.
CREATE VIEW metrics AS SELECT
    r.label AS run,            -- run
    m.metric_id,               -- key
    m.source_id,               -- source, see sources
    m.label,                   -- setting, library or machine measured
    m.name,                    -- what was measured
    m.value,                   -- figure
    m.unit,                    -- its unit, NULL when the source lacks it
    m.higher_is_better,        -- 1, 0, NULL when the unit does not show it
    s.path,                    -- path of the source
    m.line                     -- line in the source
FROM _metric m JOIN _run r USING (run_id) JOIN _source s USING (source_id);
