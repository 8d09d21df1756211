-- What a library printed, and what was wrong with the sources.

-- Connections between ranks and what carries them.
CREATE VIEW links AS SELECT
    r.label AS run,            -- run
    m.comm_id,                 -- NULL when the line does not show it
    l.src_rank,                -- sender, rank in the communicator
    l.dst_rank,                -- receiver, rank in the communicator
    l.direction,               -- send, receive, or NULL
    l.transport,               -- P2P/CUMEM, P2P/IPC, SHM/…, NET/IB, NET/Socket, …
    l.net,                     -- NET plugin's name
    l.net_dev,                 -- its device
    l.gdr,                     -- 1 with GPUDirect RDMA, 0 without, NULL: not a NET link
    l.channels,                -- channels that use it
    p.host,                    -- host that logged it
    s.path,                    -- path of the source
    l.line,                    -- first line
    l.excerpt                  -- that line's message
FROM _link l JOIN _source s USING (source_id) JOIN _run r USING (run_id)
LEFT JOIN _process p USING (process_id)
LEFT JOIN (SELECT DISTINCT handle_id, comm_id FROM _member) m ON m.handle_id = l.handle_id;

-- Environment and configuration values that the library printed as used.
CREATE VIEW settings AS SELECT
    r.label AS run,            -- run
    t.name,                    -- variable or configuration field
    t.value,                   -- value as printed
    t.origin,                  -- environment, config, invalid
    p.host,                    -- host that logged it
    p.pid,                     -- process that logged it
    s.path,                    -- path of the source
    t.line,                    -- line in the source
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
    s.path,                    -- path of the source
    f.line,                    -- first line
    f.excerpt                  -- that line's message
FROM _fact f JOIN _source s USING (source_id) JOIN _run r USING (run_id)
LEFT JOIN _process p USING (process_id);

-- Everything that was not as it should be, counted.
CREATE VIEW diagnostics AS SELECT
    r.label AS run,            -- run
    d.severity,                -- info, notice, data_loss, error
    d.code,                    -- stable name of the problem
    d.message,                 -- one sentence
    s.path,                    -- NULL: found while matching
    d.line,                    -- first line
    d.excerpt,                 -- that line, cut
    d.count                    -- occurrences
FROM _diagnostic d JOIN _run r ON r.run_id = d.run_id
LEFT JOIN _source s ON s.source_id = d.source_id;
