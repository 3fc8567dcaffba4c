-- The same tables as on SQLite; there `seq` is the order of commits because one holder of a lock gives it, here
-- because it begins with the transaction's number.

-- A sequence number is the number of its transaction (47 bits: 10,000 writes a second for 400 years) and 16 bits that
-- tell rows of one transaction apart. Transactions whose number is below that of the oldest running one are over, so
-- what is below `settled_seq()` is final: no row will ever appear there. The numbers of two rows of one transaction
-- are equal only when 65,536 rows were numbered in between; the table's key refuses the second one then.
CREATE SEQUENCE row_numbers;

-- What is added to a transaction's number. In a cluster where a dump was restored transactions count from the start
-- again; `migrate` raises this so that new rows are numbered behind those that came with the dump.
CREATE FUNCTION seq_base() RETURNS bigint LANGUAGE sql IMMUTABLE RETURN 0;

CREATE FUNCTION next_seq() RETURNS bigint LANGUAGE sql VOLATILE
RETURN ((seq_base() + pg_current_xact_id()::text::bigint) << 16) | (nextval('row_numbers') & 65535);

CREATE FUNCTION settled_seq() RETURNS bigint LANGUAGE sql STABLE
RETURN (seq_base() + pg_snapshot_xmin(pg_current_snapshot())::text::bigint) << 16;

CREATE TABLE users (
  address bytea PRIMARY KEY CHECK (length(address) = 20),
  name text NOT NULL DEFAULT '',
  intended_use text NOT NULL DEFAULT '',
  email text,
  key_generation bigint NOT NULL DEFAULT 1,
  grace_until_ms bigint NOT NULL DEFAULT 0,
  created_at_ms bigint NOT NULL
);

-- A nonce is derived, not stored; only that it was used is. Rows are purged when its window can no longer be accepted.
CREATE TABLE used_nonces (
  address bytea NOT NULL CHECK (length(address) = 20),
  nonce_window bigint NOT NULL,
  slot bigint NOT NULL,
  PRIMARY KEY (address, nonce_window, slot)
);
CREATE INDEX used_nonces_by_window ON used_nonces (nonce_window);

CREATE TABLE functions (
  seq bigint PRIMARY KEY DEFAULT next_seq(),
  digest bytea NOT NULL UNIQUE CHECK (length(digest) = 32),
  content bytea NOT NULL UNIQUE CHECK (length(content) = 32),
  inputs text NOT NULL,
  created_at_ms bigint NOT NULL,
  record text NOT NULL
);

-- `seq` is the order in which creators joined functions: a listing of one creator is in this order.
CREATE TABLE function_creators (
  seq bigint PRIMARY KEY DEFAULT next_seq(),
  creator bytea NOT NULL CHECK (length(creator) = 20),
  function_seq bigint NOT NULL REFERENCES functions (seq),
  name text NOT NULL,
  version text NOT NULL,
  UNIQUE (creator, function_seq),
  UNIQUE (creator, name, version)
);
CREATE INDEX function_creators_by_creator ON function_creators (creator, seq);

-- `live` is 1 until the trigger is deactivated or was seen to have ended, so that a listing of active ones does not
-- walk over those that ended long ago.
CREATE TABLE triggers (
  seq bigint PRIMARY KEY DEFAULT next_seq(),
  sig bytea NOT NULL UNIQUE CHECK (length(sig) = 65),
  signer bytea NOT NULL CHECK (length(signer) = 20),
  digest bytea NOT NULL CHECK (length(digest) = 32),
  function_digest bytea NOT NULL CHECK (length(function_digest) = 32),
  protocol text NOT NULL,
  deactivated bigint NOT NULL DEFAULT 0 CHECK (deactivated IN (0, 1)),
  live bigint NOT NULL DEFAULT 1 CHECK (live IN (0, 1)),
  end_date_ms bigint NOT NULL,
  created_at_ms bigint NOT NULL,
  record text NOT NULL,
  UNIQUE (signer, digest)
);
CREATE INDEX triggers_by_live ON triggers (live, seq);
CREATE INDEX triggers_by_signer ON triggers (signer, live, seq);
CREATE INDEX triggers_by_function ON triggers (function_digest, live, seq);
CREATE INDEX triggers_by_signer_and_function ON triggers (signer, function_digest, live, seq);
CREATE INDEX triggers_by_creation ON triggers (created_at_ms, seq);
-- `live` is not a column of it: a condition that the index's own implies is not used to look into it.
CREATE INDEX triggers_by_end ON triggers (end_date_ms) WHERE live = 1 AND end_date_ms > 0;

-- The consents to deactivate, whole: the list that was signed, in its order, so that each can be checked again.
CREATE TABLE deactivations (
  signature bytea PRIMARY KEY CHECK (length(signature) = 65),
  signer bytea NOT NULL CHECK (length(signer) = 20),
  protocol text NOT NULL,
  trigger_sigs bytea NOT NULL,
  created_at_ms bigint NOT NULL
);
