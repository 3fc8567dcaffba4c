-- Intents of the second form: with a list of operations. They lie in tables of their own, so that processes of the
-- release before never meet them; the columns that both forms have are those of `intents`, `intent_proposals` and
-- `intent_logs`, with the same meaning. Rows of `intents` and of `intents_2` are numbered from one sequence, so that a
-- listing of both has one order and its cursors fit either.
CREATE TABLE intents_2 (
  seq bigint PRIMARY KEY DEFAULT next_seq(),
  hash bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
  settler bytea NOT NULL CHECK (length(settler) = 20),
  trigger_sig bytea NOT NULL CHECK (length(trigger_sig) = 65),
  deadline bytea NOT NULL CHECK (length(deadline) = 32),
  status text NOT NULL,
  chain_status text,
  standing text NOT NULL,
  transaction_hash bytea,
  dest_transaction_hash bytea,
  chain_transaction_hash bytea,
  operation_count bigint NOT NULL,
  proposal_count bigint NOT NULL DEFAULT 0,
  log_count bigint NOT NULL DEFAULT 0,
  version bigint NOT NULL DEFAULT 1,
  created_at_ms bigint NOT NULL,
  record text NOT NULL
);
CREATE INDEX intents_2_by_settler ON intents_2 (settler, seq);
CREATE INDEX intents_2_by_settler_and_standing ON intents_2 (settler, standing, seq);
CREATE INDEX intents_2_by_trigger_sig ON intents_2 (trigger_sig, seq);
CREATE INDEX intents_2_by_standing ON intents_2 (standing, seq);
CREATE INDEX intents_2_by_deadline ON intents_2 (deadline, seq);
CREATE INDEX intents_2_by_creation ON intents_2 (created_at_ms, seq);
CREATE INDEX intents_2_by_transaction ON intents_2 (transaction_hash) WHERE transaction_hash IS NOT NULL;
CREATE INDEX intents_2_by_end ON intents_2 (deadline) WHERE standing IN ('created', 'enqueued', 'submitted');
CREATE INDEX intents_2_by_marked_end ON intents_2 (status, deadline) WHERE standing = 'expired';
CREATE INDEX intents_2_by_claim ON intents_2 (settler, seq) WHERE status = 'succeeded' AND chain_status IS NULL;

-- Whom an intent concerns: the users of its operations and its payer of fees, each once.
CREATE TABLE intent_users_2 (
  user_address bytea NOT NULL CHECK (length(user_address) = 20),
  seq bigint NOT NULL REFERENCES intents_2 (seq),
  PRIMARY KEY (user_address, seq)
);
-- The types of an intent's operations, each once.
CREATE TABLE intent_ops_2 (
  op bigint NOT NULL,
  seq bigint NOT NULL REFERENCES intents_2 (seq),
  PRIMARY KEY (op, seq)
);

CREATE TABLE intent_proposals_2 (
  intent_seq bigint NOT NULL REFERENCES intents_2 (seq),
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
CREATE INDEX intent_proposals_2_by_transaction ON intent_proposals_2 (transaction_hash)
  WHERE transaction_hash IS NOT NULL;

CREATE TABLE intent_logs_2 (
  intent_seq bigint NOT NULL REFERENCES intents_2 (seq),
  n bigint NOT NULL,
  identity bytea NOT NULL CHECK (length(identity) = 32),
  record text NOT NULL,
  PRIMARY KEY (intent_seq, n),
  UNIQUE (intent_seq, identity)
);
