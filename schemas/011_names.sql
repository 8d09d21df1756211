-- Store, version 11: what a program calls its process groups (mesh_tp), and what a trace calls its GPU.

ALTER TABLE _comm ADD COLUMN name TEXT;
ALTER TABLE _trace ADD COLUMN gpu TEXT;
