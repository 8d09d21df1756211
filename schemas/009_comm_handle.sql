-- Store, version 9: what one process holds of a communicator is a handle; a stream is a CUDA or HIP
-- stream. Private tables only: the views do not change.

ALTER TABLE _stream RENAME TO _comm_handle;
ALTER TABLE _comm_handle RENAME COLUMN stream_id TO handle_id;
ALTER TABLE _member RENAME COLUMN stream_id TO handle_id;
ALTER TABLE _link RENAME COLUMN stream_id TO handle_id;
DROP INDEX _stream_by_process;
CREATE INDEX _comm_handle_by_process ON _comm_handle (process_id);
