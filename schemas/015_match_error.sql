-- Store, version 15: a run whose calls could not be matched keeps the reason, and other runs stay readable.

ALTER TABLE _run ADD COLUMN match_error TEXT; -- why the matching failed; NULL: it did not
-- How often its matching, which a migration made due, is still tried by who opens the store.
ALTER TABLE _run ADD COLUMN due INTEGER NOT NULL DEFAULT 0;
