-- Three kinds of fact about an intent are kept apart: what operators say (status, transaction_hash), what the canonical
-- chain says (chain_status, chain_transaction_hash, taken back by a reorganisation), and `standing`, the status that
-- follows from both, or 'expired' once a sweep has seen the deadline pass. It is for indexes: whether an intent reads as
-- expired follows from the deadline whenever it is read.
CREATE TABLE intents (
  seq bigint PRIMARY KEY DEFAULT next_seq(),
  hash bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
  user_address bytea NOT NULL CHECK (length(user_address) = 20),
  settler bytea NOT NULL CHECK (length(settler) = 20),
  config_sig bytea NOT NULL CHECK (length(config_sig) = 65),
  op bigint NOT NULL,
  -- Seconds since 1970 as 32 bytes, big-endian: on chain a deadline may be any uint256, and such blobs sort as numbers.
  deadline bytea NOT NULL CHECK (length(deadline) = 32),
  status text NOT NULL,
  chain_status text,
  standing text NOT NULL,
  transaction_hash bytea,
  dest_transaction_hash bytea,
  chain_transaction_hash bytea,
  proposal_count bigint NOT NULL DEFAULT 0,
  log_count bigint NOT NULL DEFAULT 0,
  -- Grows with every change, for the ETag.
  version bigint NOT NULL DEFAULT 1,
  created_at_ms bigint NOT NULL,
  -- The members that never change, as JSON.
  record text NOT NULL
);
CREATE INDEX intents_by_user ON intents (user_address, seq);
CREATE INDEX intents_by_user_and_standing ON intents (user_address, standing, seq);
CREATE INDEX intents_by_settler ON intents (settler, seq);
CREATE INDEX intents_by_settler_and_standing ON intents (settler, standing, seq);
CREATE INDEX intents_by_config_sig ON intents (config_sig, seq);
CREATE INDEX intents_by_standing ON intents (standing, seq);
CREATE INDEX intents_by_op ON intents (op, seq);
CREATE INDEX intents_by_deadline ON intents (deadline, seq);
CREATE INDEX intents_by_creation ON intents (created_at_ms, seq);
-- For receipts: whose transaction it was that failed.
CREATE INDEX intents_by_transaction ON intents (transaction_hash) WHERE transaction_hash IS NOT NULL;
-- Those that can still expire, by when.
CREATE INDEX intents_by_end ON intents (deadline) WHERE standing IN ('created', 'enqueued', 'submitted');
-- Those that a sweep has marked, by when: it may have had another clock or grace than the next.
CREATE INDEX intents_by_marked_end ON intents (status, deadline) WHERE standing = 'expired';
-- For receipts: those that operators call succeeded, of which no chain has told anything.
CREATE INDEX intents_by_claim ON intents (settler, seq) WHERE status = 'succeeded' AND chain_status IS NULL;

-- Numbered from 1 within an intent. `record` is the proposal as it is answered; the columns are what it is made from.
CREATE TABLE intent_proposals (
  intent_seq bigint NOT NULL REFERENCES intents (seq),
  n bigint NOT NULL,
  hash bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
  status text NOT NULL,
  chain_status text,
  transaction_hash bytea,
  dest_transaction_hash bytea,
  chain_transaction_hash bytea,
  record text NOT NULL,
  PRIMARY KEY (intent_seq, n)
);
CREATE INDEX intent_proposals_by_transaction ON intent_proposals (transaction_hash)
  WHERE transaction_hash IS NOT NULL;

-- `identity` is a hash of the writer's id, or else of time, level and text: the same log twice is one.
CREATE TABLE intent_logs (
  intent_seq bigint NOT NULL REFERENCES intents (seq),
  n bigint NOT NULL,
  identity bytea NOT NULL CHECK (length(identity) = 32),
  record text NOT NULL,
  PRIMARY KEY (intent_seq, n),
  UNIQUE (intent_seq, identity)
);

-- What the watcher has seen on chains: one row for each event of a settler, and for each receipt of a transaction that
-- operators named (log_index -1; a good one says only that it was asked for). `subject` is the hash of a proposal or an
-- intent, or of that transaction. Rows go when their block does; an intent that arrives later finds what was seen before.
CREATE TABLE executions (
  chain_id bigint NOT NULL,
  block_number bigint NOT NULL,
  block_hash bytea NOT NULL CHECK (length(block_hash) = 32),
  transaction_hash bytea NOT NULL CHECK (length(transaction_hash) = 32),
  log_index bigint NOT NULL,
  settler bytea NOT NULL CHECK (length(settler) = 20),
  subject bytea NOT NULL CHECK (length(subject) = 32),
  outcome text NOT NULL CHECK (outcome IN ('succeeded', 'failed')),
  PRIMARY KEY (chain_id, block_hash, transaction_hash, log_index)
);
CREATE INDEX executions_by_subject ON executions (subject);
CREATE INDEX executions_by_block ON executions (chain_id, block_number);

-- How far a settler was followed, and the hashes of blocks that were seen, by which a reorganisation is noticed.
CREATE TABLE chain_progress (
  chain_id bigint NOT NULL,
  settler bytea NOT NULL CHECK (length(settler) = 20),
  next_block bigint NOT NULL,
  PRIMARY KEY (chain_id, settler)
);
CREATE TABLE chain_blocks (
  chain_id bigint NOT NULL,
  number bigint NOT NULL,
  hash bytea NOT NULL CHECK (length(hash) = 32),
  PRIMARY KEY (chain_id, number)
);

-- Who does what only one process may do at a time, and until when.
CREATE TABLE leases (
  name text PRIMARY KEY,
  holder text NOT NULL,
  until_ms bigint NOT NULL
);

-- How far an import has come: it goes on there when it is started again.
CREATE TABLE imports (
  source text PRIMARY KEY,
  lines bigint NOT NULL,
  bytes bigint NOT NULL,
  refused bigint NOT NULL,
  updated_at_ms bigint NOT NULL
);

-- Those who may write intents. Only the hash of a key is kept: it is 32 random bytes, so a plain hash cannot be undone.
CREATE TABLE operators (
  name text PRIMARY KEY,
  key_hash bytea NOT NULL UNIQUE CHECK (length(key_hash) = 32),
  created_at_ms bigint NOT NULL,
  revoked_at_ms bigint
);

-- Who wrote what, in the order of commits.
CREATE TABLE audit_entries (
  seq bigint PRIMARY KEY DEFAULT next_seq(),
  at_ms bigint NOT NULL,
  operator text NOT NULL,
  action text NOT NULL,
  subject bytea NOT NULL CHECK (length(subject) = 32)
);
CREATE INDEX audit_entries_by_subject ON audit_entries (subject, seq);
CREATE INDEX audit_entries_by_operator ON audit_entries (operator, seq);
