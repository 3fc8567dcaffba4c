-- What the three endpoints need, and no more: fewer indexes make a faster insert.
CREATE TABLE IF NOT EXISTS functions (cid TEXT PRIMARY KEY, inputs TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS triggers (
  seq INTEGER PRIMARY KEY,
  sig BLOB NOT NULL UNIQUE,
  signer BLOB NOT NULL,
  digest BLOB NOT NULL,
  deactivated INTEGER NOT NULL DEFAULT 0,
  created_at_ms INTEGER NOT NULL,
  record TEXT NOT NULL,
  UNIQUE (signer, digest)
) STRICT;
CREATE INDEX IF NOT EXISTS triggers_by_signer ON triggers (signer, seq);
