-- Store, version 8: the communicator's pointer of a kernel trace in a log has a column of its own. It
-- stood in `stream`, which is a CUDA or HIP stream, and which these lines do not name.

ALTER TABLE _kernel ADD COLUMN comm_ptr TEXT;
UPDATE _kernel SET comm_ptr = stream, stream = NULL WHERE process_id IS NOT NULL;
