-- Intents of the second form: with a list of operations. They lie in tables of their own, so that processes of the
-- release before never meet them; the columns that both forms have are those of `intents`, `intent_proposals` and
-- `intent_logs`, with the same meaning. Rows of `intents` and of `intents_2` are numbered from one sequence, so that a
-- listing of both has one order and its cursors fit either.
CREATE TABLE intents_2 (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
  settler BLOB NOT NULL CHECK (length(settler) = 20),
  trigger_sig BLOB NOT NULL CHECK (length(trigger_sig) = 65),
  deadline BLOB NOT NULL CHECK (length(deadline) = 32),
  status TEXT NOT NULL,
  chain_status TEXT,
  standing TEXT NOT NULL,
  transaction_hash BLOB,
  dest_transaction_hash BLOB,
  chain_transaction_hash BLOB,
  operation_count INTEGER NOT NULL,
  proposal_count INTEGER NOT NULL DEFAULT 0,
  log_count INTEGER NOT NULL DEFAULT 0,
  version INTEGER NOT NULL DEFAULT 1,
  created_at_ms INTEGER NOT NULL,
  record TEXT NOT NULL
) STRICT;
CREATE INDEX intents_2_by_settler ON intents_2 (settler);
CREATE INDEX intents_2_by_settler_and_standing ON intents_2 (settler, standing);
CREATE INDEX intents_2_by_trigger_sig ON intents_2 (trigger_sig);
CREATE INDEX intents_2_by_standing ON intents_2 (standing);
CREATE INDEX intents_2_by_deadline ON intents_2 (deadline);
CREATE INDEX intents_2_by_creation ON intents_2 (created_at_ms);
CREATE INDEX intents_2_by_transaction ON intents_2 (transaction_hash) WHERE transaction_hash IS NOT NULL;
CREATE INDEX intents_2_by_end ON intents_2 (standing, deadline) WHERE standing IN ('created', 'enqueued', 'submitted');
CREATE INDEX intents_2_by_marked_end ON intents_2 (status, deadline) WHERE standing = 'expired';
CREATE INDEX intents_2_by_claim ON intents_2 (settler) WHERE status = 'succeeded' AND chain_status IS NULL;

-- Whom an intent concerns: the users of its operations and its payer of fees, each once.
CREATE TABLE intent_users_2 (
  user_address BLOB NOT NULL CHECK (length(user_address) = 20),
  seq INTEGER NOT NULL REFERENCES intents_2 (seq),
  PRIMARY KEY (user_address, seq)
) STRICT, WITHOUT ROWID;
-- The types of an intent's operations, each once.
CREATE TABLE intent_ops_2 (
  op INTEGER NOT NULL,
  seq INTEGER NOT NULL REFERENCES intents_2 (seq),
  PRIMARY KEY (op, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE intent_proposals_2 (
  intent_seq INTEGER NOT NULL REFERENCES intents_2 (seq),
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
CREATE INDEX intent_proposals_2_by_transaction ON intent_proposals_2 (transaction_hash)
  WHERE transaction_hash IS NOT NULL;

CREATE TABLE intent_logs_2 (
  intent_seq INTEGER NOT NULL REFERENCES intents_2 (seq),
  n INTEGER NOT NULL,
  identity BLOB NOT NULL CHECK (length(identity) = 32),
  record TEXT NOT NULL,
  PRIMARY KEY (intent_seq, n),
  UNIQUE (intent_seq, identity)
) STRICT;

-- SQLite keeps the last number of each table in `sqlite_sequence`. The triggers keep the two numbers equal, whichever
-- release inserts a row.
INSERT INTO sqlite_sequence (name, seq) SELECT 'intents', 0
WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'intents');
INSERT INTO sqlite_sequence (name, seq) SELECT 'intents_2', seq FROM sqlite_sequence WHERE name = 'intents';
CREATE TRIGGER intents_numbered AFTER INSERT ON intents BEGIN
  UPDATE sqlite_sequence SET seq = NEW.seq WHERE name = 'intents_2' AND seq < NEW.seq;
END;
CREATE TRIGGER intents_2_numbered AFTER INSERT ON intents_2 BEGIN
  UPDATE sqlite_sequence SET seq = NEW.seq WHERE name = 'intents' AND seq < NEW.seq;
END;
