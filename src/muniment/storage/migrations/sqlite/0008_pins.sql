-- Bundles for an IPFS node: a row for each function that is to be pinned, and stays when it is.
CREATE TABLE pins (
  digest BLOB NOT NULL PRIMARY KEY CHECK (length(digest) = 32),
  waits_since_ms INTEGER NOT NULL,
  due_at_ms INTEGER NOT NULL,
  taken INTEGER NOT NULL DEFAULT 0 CHECK (taken IN (0, 1)),
  turn INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0,
  error TEXT,
  pinned_at_ms INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX pins_waiting ON pins (due_at_ms) WHERE pinned_at_ms IS NULL;
