-- Three kinds of fact about an intent are kept apart: what operators say (status, transaction_hash), what the canonical
-- chain says (chain_status, chain_transaction_hash, taken back by a reorganisation), and `standing`, the status that
-- follows from both, or 'expired' once a sweep has seen the deadline pass. It is for indexes: whether an intent reads as
-- expired follows from the deadline whenever it is read.
CREATE TABLE intents (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
  user_address BLOB NOT NULL CHECK (length(user_address) = 20),
  settler BLOB NOT NULL CHECK (length(settler) = 20),
  config_sig BLOB NOT NULL CHECK (length(config_sig) = 65),
  op INTEGER NOT NULL,
  -- Seconds since 1970 as 32 bytes, big-endian: on chain a deadline may be any uint256, and such blobs sort as numbers.
  deadline BLOB NOT NULL CHECK (length(deadline) = 32),
  status TEXT NOT NULL,
  chain_status TEXT,
  standing TEXT NOT NULL,
  transaction_hash BLOB,
  dest_transaction_hash BLOB,
  chain_transaction_hash BLOB,
  proposal_count INTEGER NOT NULL DEFAULT 0,
  log_count INTEGER NOT NULL DEFAULT 0,
  -- Grows with every change, for the ETag.
  version INTEGER NOT NULL DEFAULT 1,
  created_at_ms INTEGER NOT NULL,
  -- The members that never change, as JSON.
  record TEXT NOT NULL
) STRICT;
-- SQLite ends every index entry with the row's seq, so each of these is also in the order of commits.
CREATE INDEX intents_by_user ON intents (user_address);
CREATE INDEX intents_by_user_and_standing ON intents (user_address, standing);
CREATE INDEX intents_by_settler ON intents (settler);
CREATE INDEX intents_by_settler_and_standing ON intents (settler, standing);
CREATE INDEX intents_by_config_sig ON intents (config_sig);
CREATE INDEX intents_by_standing ON intents (standing);
CREATE INDEX intents_by_op ON intents (op);
CREATE INDEX intents_by_deadline ON intents (deadline);
CREATE INDEX intents_by_creation ON intents (created_at_ms);
-- For receipts: whose transaction it was that failed.
CREATE INDEX intents_by_transaction ON intents (transaction_hash) WHERE transaction_hash IS NOT NULL;
-- Those that can still expire, by when.
CREATE INDEX intents_by_end ON intents (standing, deadline) WHERE standing IN ('created', 'enqueued', 'submitted');
-- Those that a sweep has marked, by when: it may have had another clock or grace than the next.
CREATE INDEX intents_by_marked_end ON intents (status, deadline) WHERE standing = 'expired';
-- For receipts: those that operators call succeeded, of which no chain has told anything.
CREATE INDEX intents_by_claim ON intents (settler) WHERE status = 'succeeded' AND chain_status IS NULL;

-- Numbered from 1 within an intent. `record` is the proposal as it is answered; the columns are what it is made from.
CREATE TABLE intent_proposals (
  intent_seq INTEGER NOT NULL REFERENCES intents (seq),
  n INTEGER NOT NULL,
  hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
  status TEXT NOT NULL,
  chain_status TEXT,
  transaction_hash BLOB,
  dest_transaction_hash BLOB,
  chain_transaction_hash BLOB,
  record TEXT NOT NULL,
  PRIMARY KEY (intent_seq, n)
) STRICT;
CREATE INDEX intent_proposals_by_transaction ON intent_proposals (transaction_hash)
  WHERE transaction_hash IS NOT NULL;

-- `identity` is a hash of the writer's id, or else of time, level and text: the same log twice is one.
CREATE TABLE intent_logs (
  intent_seq INTEGER NOT NULL REFERENCES intents (seq),
  n INTEGER NOT NULL,
  identity BLOB NOT NULL CHECK (length(identity) = 32),
  record TEXT NOT NULL,
  PRIMARY KEY (intent_seq, n),
  UNIQUE (intent_seq, identity)
) STRICT;

-- What the watcher has seen on chains: one row for each event of a settler, and for each receipt of a transaction that
-- operators named (log_index -1; a good one says only that it was asked for). `subject` is the hash of a proposal or an
-- intent, or of that transaction. Rows go when their block does; an intent that arrives later finds what was seen before.
CREATE TABLE executions (
  chain_id INTEGER NOT NULL,
  block_number INTEGER NOT NULL,
  block_hash BLOB NOT NULL CHECK (length(block_hash) = 32),
  transaction_hash BLOB NOT NULL CHECK (length(transaction_hash) = 32),
  log_index INTEGER NOT NULL,
  settler BLOB NOT NULL CHECK (length(settler) = 20),
  subject BLOB NOT NULL CHECK (length(subject) = 32),
  outcome TEXT NOT NULL CHECK (outcome IN ('succeeded', 'failed')),
  PRIMARY KEY (chain_id, block_hash, transaction_hash, log_index)
) STRICT;
CREATE INDEX executions_by_subject ON executions (subject);
CREATE INDEX executions_by_block ON executions (chain_id, block_number);

-- How far a settler was followed, and the hashes of blocks that were seen, by which a reorganisation is noticed.
CREATE TABLE chain_progress (
  chain_id INTEGER NOT NULL,
  settler BLOB NOT NULL CHECK (length(settler) = 20),
  next_block INTEGER NOT NULL,
  PRIMARY KEY (chain_id, settler)
) STRICT, WITHOUT ROWID;
CREATE TABLE chain_blocks (
  chain_id INTEGER NOT NULL,
  number INTEGER NOT NULL,
  hash BLOB NOT NULL CHECK (length(hash) = 32),
  PRIMARY KEY (chain_id, number)
) STRICT, WITHOUT ROWID;

-- Who does what only one process may do at a time, and until when.
CREATE TABLE leases (
  name TEXT NOT NULL PRIMARY KEY,
  holder TEXT NOT NULL,
  until_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- How far an import has come: it goes on there when it is started again.
CREATE TABLE imports (
  source TEXT NOT NULL PRIMARY KEY,
  lines INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  refused INTEGER NOT NULL,
  updated_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Those who may write intents. Only the hash of a key is kept: it is 32 random bytes, so a plain hash cannot be undone.
CREATE TABLE operators (
  name TEXT NOT NULL PRIMARY KEY,
  key_hash BLOB NOT NULL UNIQUE CHECK (length(key_hash) = 32),
  created_at_ms INTEGER NOT NULL,
  revoked_at_ms INTEGER
) STRICT, WITHOUT ROWID;

-- Who wrote what, in the order of commits.
CREATE TABLE audit_entries (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms INTEGER NOT NULL,
  operator TEXT NOT NULL,
  action TEXT NOT NULL,
  subject BLOB NOT NULL CHECK (length(subject) = 32)
) STRICT;
CREATE INDEX audit_entries_by_subject ON audit_entries (subject);
CREATE INDEX audit_entries_by_operator ON audit_entries (operator);
