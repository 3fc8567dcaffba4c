-- Keys are natural (address, digest, signature); `seq` beside them is the order of commits, for cursors.
-- Binary values are blobs: addresses 20 bytes, digests 32, signatures 65. Times are milliseconds since 1970.

CREATE TABLE users (
  address BLOB NOT NULL PRIMARY KEY CHECK (length(address) = 20),
  name TEXT NOT NULL DEFAULT '',
  intended_use TEXT NOT NULL DEFAULT '',
  email TEXT,
  key_generation INTEGER NOT NULL DEFAULT 1,
  grace_until_ms INTEGER NOT NULL DEFAULT 0,
  created_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A nonce is derived, not stored; only that it was used is. Rows are purged when its window can no longer be accepted.
CREATE TABLE used_nonces (
  address BLOB NOT NULL CHECK (length(address) = 20),
  nonce_window INTEGER NOT NULL,
  slot INTEGER NOT NULL,
  PRIMARY KEY (address, nonce_window, slot)
) STRICT, WITHOUT ROWID;
CREATE INDEX used_nonces_by_window ON used_nonces (nonce_window);

CREATE TABLE functions (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
  content BLOB NOT NULL UNIQUE CHECK (length(content) = 32),
  inputs TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL,
  record TEXT NOT NULL
) STRICT;

-- `seq` is the order in which creators joined functions: a listing of one creator is in this order.
CREATE TABLE function_creators (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  creator BLOB NOT NULL CHECK (length(creator) = 20),
  function_seq INTEGER NOT NULL REFERENCES functions (seq),
  name TEXT NOT NULL,
  version TEXT NOT NULL,
  UNIQUE (creator, function_seq),
  UNIQUE (creator, name, version)
) STRICT;
CREATE INDEX function_creators_by_creator ON function_creators (creator);

-- `live` is 1 until the trigger is deactivated or was seen to have ended, so that a listing of active ones does not
-- walk over those that ended long ago.
CREATE TABLE triggers (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  sig BLOB NOT NULL UNIQUE CHECK (length(sig) = 65),
  signer BLOB NOT NULL CHECK (length(signer) = 20),
  digest BLOB NOT NULL CHECK (length(digest) = 32),
  function_digest BLOB NOT NULL CHECK (length(function_digest) = 32),
  protocol TEXT NOT NULL,
  deactivated INTEGER NOT NULL DEFAULT 0 CHECK (deactivated IN (0, 1)),
  live INTEGER NOT NULL DEFAULT 1 CHECK (live IN (0, 1)),
  end_date_ms INTEGER NOT NULL,
  created_at_ms INTEGER NOT NULL,
  record TEXT NOT NULL,
  UNIQUE (signer, digest)
) STRICT;
-- SQLite ends every index entry with the row's seq, so each of these is also in the order of commits.
CREATE INDEX triggers_by_live ON triggers (live);
CREATE INDEX triggers_by_signer ON triggers (signer, live);
CREATE INDEX triggers_by_function ON triggers (function_digest, live);
CREATE INDEX triggers_by_signer_and_function ON triggers (signer, function_digest, live);
CREATE INDEX triggers_by_creation ON triggers (created_at_ms);
-- `live` leads although it is always 1 here: else triggers_by_live looks as good, and is walked from end to end.
CREATE INDEX triggers_by_end ON triggers (live, end_date_ms) WHERE live = 1 AND end_date_ms > 0;

-- The consents to deactivate, whole: the list that was signed, in its order, so that each can be checked again.
CREATE TABLE deactivations (
  signature BLOB NOT NULL PRIMARY KEY CHECK (length(signature) = 65),
  signer BLOB NOT NULL CHECK (length(signer) = 20),
  protocol TEXT NOT NULL,
  trigger_sigs BLOB NOT NULL,
  created_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
