"""The SQLite store: opening and migrating it, putting sources and matched runs into it."""
