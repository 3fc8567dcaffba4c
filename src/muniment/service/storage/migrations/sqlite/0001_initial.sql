-- Keys are natural (address, digest, signature); `seq` is the order of commits, for cursors.
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
  name_key BLOB NOT NULL,
  record TEXT NOT NULL
) STRICT;
CREATE INDEX functions_by_name ON functions (name_key);

-- `seq` is the order in which creators joined functions: a listing of one creator is in this order.
CREATE TABLE function_creators (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  creator BLOB NOT NULL CHECK (length(creator) = 20),
  function_seq INTEGER NOT NULL REFERENCES functions (seq),
  name TEXT NOT NULL,
  version TEXT NOT NULL,
  joined_at_ms INTEGER NOT NULL,
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
  -- When it was deactivated.
  deactivated_at_ms INTEGER,
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

-- Those that a sweep has marked as ended, by when: a clock that was ahead may have marked too many.
-- `live` leads although it is always 0 here: else triggers_by_live looks as good, and is walked from end to end.
CREATE INDEX triggers_by_marked_end ON triggers (live, end_date_ms) WHERE live = 0 AND deactivated = 0;

-- The consents to deactivate, whole: the list that was signed, in its order, so that each can be checked again.
CREATE TABLE deactivations (
  signature BLOB NOT NULL UNIQUE CHECK (length(signature) = 65),
  signer BLOB NOT NULL CHECK (length(signer) = 20),
  protocol TEXT NOT NULL,
  trigger_sigs BLOB NOT NULL,
  created_at_ms INTEGER NOT NULL,
  -- How the consent was signed: 'eip191' or 'eip712'.
  form TEXT NOT NULL,
  seq INTEGER PRIMARY KEY AUTOINCREMENT
) STRICT;

-- Three kinds of fact about an intent are kept apart: claims of operators (status, transaction_hash), facts of the
-- canonical chain (chain_status, chain_transaction_hash, taken back by a reorganisation), and `standing`, the status that
-- follows from both, or 'expired' once a sweep has seen the deadline pass. It is for indexes: whether an intent reads as
-- expired follows from the deadline whenever it is read.
CREATE TABLE intents (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  -- The form: 1 has one operation, 2 a list of operations.
  generation INTEGER NOT NULL CHECK (generation IN (1, 2)),
  hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
  settler BLOB NOT NULL CHECK (length(settler) = 20),
  -- Of the trigger: `configSig` of generation 1, `triggerSig` of generation 2.
  trigger_sig BLOB NOT NULL CHECK (length(trigger_sig) = 65),
  -- Of generation 1; those of generation 2 are in `intent_users` and `intent_ops`.
  user_address BLOB CHECK (length(user_address) = 20),
  op INTEGER,
  -- Of generation 2.
  operation_count INTEGER,
  nonce TEXT,
  -- Seconds since 1970 as 32 bytes, big-endian: on chain a deadline may be any uint256, and such blobs sort as numbers.
  deadline BLOB NOT NULL CHECK (length(deadline) = 32),
  status TEXT NOT NULL,
  chain_status TEXT,
  standing TEXT NOT NULL,
  transaction_hash BLOB,
  dest_transaction_hash BLOB,
  chain_transaction_hash BLOB,
  -- When the chain gave it the status that it has; NULL where operators said so first.
  decided_at_ms INTEGER,
  execution_hash BLOB,
  proposal_count INTEGER NOT NULL DEFAULT 0,
  log_count INTEGER NOT NULL DEFAULT 0,
  -- Grows with every change, for the ETag.
  version INTEGER NOT NULL DEFAULT 1,
  created_at_ms INTEGER NOT NULL,
  -- The time of the last change, and the version that the last change brought which was more than a line of the log.
  changed_at_ms INTEGER,
  changed_version INTEGER,
  -- On PostgreSQL the number of the last event; here it is unused.
  changed_seq INTEGER,
  -- The members that never change, as JSON, written once. What changes is a column.
  record TEXT NOT NULL,
  CHECK ((user_address IS NOT NULL) = (generation = 1)),
  CHECK ((op IS NOT NULL) = (generation = 1)),
  CHECK ((operation_count IS NOT NULL) = (generation = 2)),
  CHECK ((nonce IS NOT NULL) = (generation = 2))
) STRICT;
-- SQLite ends every index entry with the row's seq, so each of these is also in the order of commits.
-- A listing is of one generation, or merges both.
CREATE INDEX intents_by_generation ON intents (generation);
CREATE INDEX intents_by_settler ON intents (generation, settler);
CREATE INDEX intents_by_settler_and_standing ON intents (generation, settler, standing);
CREATE INDEX intents_by_trigger_sig ON intents (generation, trigger_sig);
CREATE INDEX intents_by_standing ON intents (generation, standing);
CREATE INDEX intents_by_deadline ON intents (generation, deadline);
CREATE INDEX intents_by_user ON intents (user_address) WHERE user_address IS NOT NULL;
CREATE INDEX intents_by_user_and_standing ON intents (user_address, standing) WHERE user_address IS NOT NULL;
CREATE INDEX intents_by_op ON intents (op) WHERE op IS NOT NULL;
CREATE INDEX intents_by_creation ON intents (created_at_ms);
-- For receipts: whose transaction it was that failed.
CREATE INDEX intents_by_transaction ON intents (transaction_hash) WHERE transaction_hash IS NOT NULL;
-- Those that can still expire, by when.
CREATE INDEX intents_by_end ON intents (standing, deadline) WHERE standing IN ('created', 'enqueued', 'submitted');
-- Those that a sweep has marked, by when: it may have had another clock or grace than the next.
CREATE INDEX intents_by_marked_end ON intents (status, deadline) WHERE standing = 'expired';
-- For receipts: intents that operators call succeeded, without a fact of a chain.
CREATE INDEX intents_by_claim ON intents (generation, settler) WHERE status = 'succeeded' AND chain_status IS NULL;

-- Whom an intent of generation 2 concerns: the users of its operations and its payer of fees, each once.
CREATE TABLE intent_users (
  address BLOB NOT NULL CHECK (length(address) = 20),
  seq INTEGER NOT NULL REFERENCES intents (seq),
  PRIMARY KEY (address, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX intent_users_by_seq ON intent_users (seq);

-- The types of the operations of an intent of generation 2, each once.
CREATE TABLE intent_ops (
  op_type INTEGER NOT NULL,
  seq INTEGER NOT NULL REFERENCES intents (seq),
  PRIMARY KEY (op_type, seq)
) STRICT, WITHOUT ROWID;

-- Numbered from 1 within an intent. `record` has the members that never change, as JSON, written once.
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
-- operators named (log_index -1; a good one only records that it was asked for). `subject` is the hash of a proposal or an
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

-- The next block to read for a settler, and the hashes of blocks that were read, which reveal a reorganisation.
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

-- Work that only one process may do at a time: its holder, and until when.
CREATE TABLE leases (
  name TEXT NOT NULL PRIMARY KEY,
  holder TEXT NOT NULL,
  until_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Those who may write intents and runs. Only the hash of a key is kept: it is 32 random bytes, so a plain hash cannot be
-- undone. `address` names the operator publicly, in the runs that it records.
CREATE TABLE operators (
  name TEXT NOT NULL PRIMARY KEY,
  key_hash BLOB NOT NULL UNIQUE CHECK (length(key_hash) = 32),
  created_at_ms INTEGER NOT NULL,
  revoked_at_ms INTEGER,
  address BLOB CHECK (length(address) = 20)
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

-- Which intent of generation 2 holds a nonce: the settlement contract would execute two intents of one nonce, and the
-- owner would pay twice.
--   deadline   of the intent: the nonce is free once the deadline and the settlement grace have passed; NULL: never,
--              because the intent has succeeded
CREATE TABLE intent_nonces (
  trigger_sig BLOB NOT NULL CHECK (length(trigger_sig) = 65),
  settler BLOB NOT NULL CHECK (length(settler) = 20),
  nonce TEXT NOT NULL CHECK (length(nonce) = 66),
  intent_hash BLOB NOT NULL CHECK (length(intent_hash) = 32),
  deadline BLOB CHECK (length(deadline) = 32),
  PRIMARY KEY (trigger_sig, settler, nonce)
) STRICT, WITHOUT ROWID;

-- Runs that relayers recorded. A verdict takes the place of the notes about what was due, which are removed.
--   payload_hash     with the trigger, what was due
--   result, reason   as in the API; `reason` is the code, NULL where a result has none
--   verdict          1: it follows from bytes and blocks; 0: it is a note of one relayer
--   disputed         1: another verdict on the same due was recorded, so that there may be conflicts to look for
--   relayer          the address of the operator that recorded it first, or zeros
--   outputs          the hashes of the intents that the run made, 32 bytes each, in their order
--   min_validations  of the trigger
--   version          grows when another operator records the run, and when one says that its block was dropped
--   record           JSON: the members that never change and that listings show; `record_bytes` is its length. The last
--                    of them is `logs`, with the first 50 lines; `more_logs` has the others, without brackets
--   detail           JSON: `inputs` and `context`, which only the answer for one run shows
CREATE TABLE runs (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
  trigger_seq INTEGER NOT NULL REFERENCES triggers (seq),
  trigger_type INTEGER NOT NULL,
  payload_hash BLOB NOT NULL CHECK (length(payload_hash) = 32),
  result TEXT NOT NULL,
  reason TEXT,
  verdict INTEGER NOT NULL CHECK (verdict IN (0, 1)),
  disputed INTEGER NOT NULL DEFAULT 0 CHECK (disputed IN (0, 1)),
  relayer BLOB NOT NULL CHECK (length(relayer) = 20),
  outputs BLOB NOT NULL CHECK (length(outputs) % 32 = 0),
  min_validations INTEGER NOT NULL,
  version INTEGER NOT NULL DEFAULT 1,
  created_at_ms INTEGER NOT NULL,
  -- The time of the last change.
  changed_at_ms INTEGER,
  -- On PostgreSQL the number of the last event; here it is unused.
  changed_seq INTEGER,
  record_bytes INTEGER NOT NULL,
  record TEXT NOT NULL,
  more_logs TEXT NOT NULL,
  detail TEXT NOT NULL
) STRICT;
-- SQLite ends every index entry with the row's seq, so each of these is also in the order of commits.
CREATE INDEX runs_by_due ON runs (trigger_seq, payload_hash);
CREATE INDEX runs_by_trigger ON runs (trigger_seq);
CREATE INDEX runs_by_trigger_and_result ON runs (trigger_seq, result);
CREATE INDEX runs_by_trigger_and_relayer ON runs (trigger_seq, relayer);
CREATE INDEX runs_by_trigger_relayer_and_result ON runs (trigger_seq, relayer, result);
CREATE INDEX runs_by_relayer ON runs (relayer);
CREATE INDEX runs_by_relayer_and_result ON runs (relayer, result);
CREATE INDEX runs_by_result ON runs (result);
CREATE INDEX runs_by_creation ON runs (created_at_ms);
-- Those that are removed when they are old.
CREATE INDEX runs_by_age ON runs (created_at_ms) WHERE result <> 'intents';

-- Who recorded a run, numbered from 1 within it; `evidence` is the hash of what that relayer read.
CREATE TABLE run_records (
  run_seq INTEGER NOT NULL REFERENCES runs (seq),
  n INTEGER NOT NULL,
  operator TEXT NOT NULL,
  relayer BLOB NOT NULL CHECK (length(relayer) = 20),
  evidence BLOB NOT NULL CHECK (length(evidence) = 32),
  created_at_ms INTEGER NOT NULL,
  -- When the operator said that the block of the run was dropped.
  orphaned_at_ms INTEGER,
  PRIMARY KEY (run_seq, n),
  UNIQUE (run_seq, operator)
) STRICT, WITHOUT ROWID;

-- Blocks of bundles, where they are not kept as files. A row is written once, and again only when it was damaged.
-- Not WITHOUT ROWID: rows this large make a deep tree, while here the key's own index answers what needs no bytes.
CREATE TABLE blocks (
  digest BLOB NOT NULL PRIMARY KEY CHECK (length(digest) = 32),
  data BLOB NOT NULL CHECK (length(data) <= 2097152)
) STRICT;

-- The epoch of the sequence numbers: a new epoch begins when the registry is set back to an earlier state, because
-- the numbers of lost rows are then given to new rows. One row. `renewals` 0 is the first epoch, whose cursors carry
-- no epoch.
CREATE TABLE epoch (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  number INTEGER NOT NULL CHECK (number BETWEEN 0 AND 4294967295),
  renewals INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO epoch (id, number) VALUES (1, random() & 4294967295);

-- By how much the time in a row of `triggers`, `intents` or `runs` is ahead of the time in a later one, where that is
-- more than what is usual: rows were dated by a clock that was ahead. The largest counts; each is a power of two.
CREATE TABLE time_differences (
  differ_ms INTEGER PRIMARY KEY,
  noted_at_ms INTEGER NOT NULL
) STRICT;

-- Whether nonces up to this window were used is unknown, so all of them are refused. At most one row.
CREATE TABLE forgotten_nonces (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  until_window INTEGER NOT NULL
) STRICT;

-- The change feed: a row for each change of a trigger, a function, an intent or a run, stored with the change itself.
-- A row does not change after its transaction. `seq` is the order of commits. `kind` is a number of
-- `muniment.service.resources.feed.events.Kind`.
--   subject  the signature of a trigger, the digest of a function, or the hash of an intent or a run
--   owners   the distinct addresses that it concerns, 20 bytes each: signer, creator, or users and payer of fees
--   origin   the digest of the function; of an intent or a run, the signature of its trigger
--   facts    JSON: the other members of the event
CREATE TABLE events (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  subject BLOB NOT NULL,
  owners BLOB NOT NULL,
  origin BLOB NOT NULL,
  settler BLOB,
  facts TEXT NOT NULL
) STRICT;

-- Events up to `floor_seq` were removed because of their age. One row.
CREATE TABLE feed (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  floor_seq INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO feed (id) VALUES (1);

CREATE TRIGGER triggers_created_event AFTER INSERT ON triggers BEGIN
  INSERT INTO events (at_ms, kind, subject, owners, origin, facts)
  VALUES (NEW.created_at_ms, 1, NEW.sig, NEW.signer, NEW.function_digest, json_object('endDate', NEW.end_date_ms));
END;

CREATE TRIGGER triggers_deactivated_event AFTER UPDATE OF deactivated ON triggers
WHEN OLD.deactivated = 0 AND NEW.deactivated = 1 BEGIN
  INSERT INTO events (at_ms, kind, subject, owners, origin, facts)
  VALUES (
    coalesce(NEW.deactivated_at_ms, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    2, NEW.sig, NEW.signer, NEW.function_digest,
    json_object('deactivateSig', json_extract(NEW.record, '$.deactivateSig'))
  );
END;

CREATE TRIGGER functions_created_event AFTER INSERT ON function_creators BEGIN
  INSERT INTO events (at_ms, kind, subject, owners, origin, facts)
  SELECT
    NEW.joined_at_ms, 3, digest, NEW.creator, digest, '{}'
  FROM functions WHERE seq = NEW.function_seq;
END;

CREATE TRIGGER intents_created_event AFTER INSERT ON intents BEGIN
  INSERT INTO events (at_ms, kind, subject, owners, origin, settler, facts)
  VALUES (
    NEW.created_at_ms, 4, NEW.hash, coalesce(NEW.user_address, x''), NEW.trigger_sig, NEW.settler,
    json_object(
      'generation', NEW.generation, 'status', coalesce(NEW.chain_status, NEW.status),
      'deadline', ltrim(hex(NEW.deadline), '0'), 'version', NEW.version, 'proposals', NEW.proposal_count,
      'logs', NEW.log_count, 'transaction', hex(coalesce(NEW.chain_transaction_hash, NEW.transaction_hash))
    )
  );
END;

-- The users of an intent of generation 2 are rows that follow its own in the same transaction: its event gets them.
CREATE TRIGGER intents_user_event AFTER INSERT ON intent_users BEGIN
  UPDATE events SET owners = CAST(owners || NEW.address AS BLOB)
  WHERE seq = (SELECT max(seq) FROM events) AND kind = 4
    AND subject = (SELECT hash FROM intents WHERE seq = NEW.seq);
END;

-- Event 6 reports only a new line of the log.
CREATE TRIGGER intents_changed_event AFTER UPDATE OF version ON intents WHEN NEW.version > OLD.version BEGIN
  INSERT INTO events (at_ms, kind, subject, owners, origin, settler, facts)
  VALUES (
    coalesce(NEW.changed_at_ms, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    CASE WHEN NEW.log_count > OLD.log_count AND NEW.changed_version IS NOT NEW.version
      AND NEW.standing = OLD.standing AND NEW.proposal_count = OLD.proposal_count THEN 6 ELSE 5 END,
    NEW.hash,
    coalesce(
      NEW.user_address,
      (SELECT CAST(coalesce(group_concat(address, ''), '') AS BLOB) FROM intent_users WHERE seq = NEW.seq)
    ),
    NEW.trigger_sig, NEW.settler,
    json_object(
      'generation', NEW.generation, 'status', coalesce(NEW.chain_status, NEW.status),
      'deadline', ltrim(hex(NEW.deadline), '0'), 'version', NEW.version, 'proposals', NEW.proposal_count,
      'logs', NEW.log_count, 'transaction', hex(coalesce(NEW.chain_transaction_hash, NEW.transaction_hash))
    )
  );
END;

-- Event 7 reports a run that was recorded, and that another operator recorded it or said that its block was dropped.
CREATE TRIGGER runs_recorded_event AFTER INSERT ON runs BEGIN
  INSERT INTO events (at_ms, kind, subject, owners, origin, facts)
  SELECT
    NEW.created_at_ms, 7, NEW.hash, signer, sig,
    json_object(
      'triggerType', NEW.trigger_type, 'result', NEW.result,
      'status', CASE WHEN NEW.verdict = 1 AND NEW.min_validations <= 1 THEN 'valid' ELSE 'pending' END,
      'outputs', hex(NEW.outputs), 'relayer', hex(NEW.relayer)
    )
  FROM triggers WHERE seq = NEW.trigger_seq;
END;

CREATE TRIGGER runs_changed_event AFTER UPDATE OF version ON runs WHEN NEW.version > OLD.version BEGIN
  INSERT INTO events (at_ms, kind, subject, owners, origin, facts)
  SELECT
    coalesce(NEW.changed_at_ms, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)), 7, NEW.hash, t.signer, t.sig,
    json_object(
      'triggerType', NEW.trigger_type, 'result', NEW.result,
      'status', CASE
        WHEN v.valid = 0 AND v.orphaned > 0 THEN 'invalid'
        WHEN NEW.verdict = 1 AND v.valid >= NEW.min_validations THEN 'valid' ELSE 'pending' END,
      'outputs', hex(NEW.outputs), 'relayer', hex(NEW.relayer)
    )
  FROM triggers t, (
    SELECT
      count(*) FILTER (WHERE r.orphaned_at_ms IS NULL AND o.revoked_at_ms IS NULL) AS valid,
      count(*) FILTER (WHERE r.orphaned_at_ms IS NOT NULL) AS orphaned
    FROM run_records r JOIN operators o ON o.name = r.operator WHERE r.run_seq = NEW.seq
  ) v
  WHERE t.seq = NEW.trigger_seq;
END;

-- Webhooks: receivers to which the change feed is delivered, each with its own cursor.
--   id              16 random bytes
--   operator        the name of the operator to whom it belongs
--   slot            its number among the hooks of its operator: the unique index below keeps their limit
--   types, filters  JSON: which events it gets; NULL: all
--   status          `muniment.service.resources.webhooks.types.WebhookStatus`; `reason`: why it is not active
--   secret_id       the secret of the ring from which its key is derived, with its `key_generation`
--   old_secret_id   the same of the key before, which signs too until `old_until_ms`
--   epoch, seq      the last event that was delivered or moved to dead letters
--   due_at_ms       when the next delivery may begin
--   failures        attempts in a row that failed, the first of them at `failing_since_ms`
--   refused         attempts in a row at which the receiver refused the event
--   revision        grows when a person changes the hook: deliveries that began before store at most the cursor
--   redirects       grows when such a change decides which events come next, or where they go: then they store no result
CREATE TABLE webhooks (
  id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
  operator TEXT NOT NULL,
  slot INTEGER NOT NULL,
  url TEXT NOT NULL,
  types TEXT,
  filters TEXT,
  batch INTEGER NOT NULL DEFAULT 0 CHECK (batch IN (0, 1)),
  status TEXT NOT NULL,
  reason TEXT,
  secret_id TEXT NOT NULL,
  key_generation INTEGER NOT NULL DEFAULT 1,
  old_secret_id TEXT,
  old_until_ms INTEGER,
  epoch INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  due_at_ms INTEGER NOT NULL,
  failures INTEGER NOT NULL DEFAULT 0,
  failing_since_ms INTEGER,
  refused INTEGER NOT NULL DEFAULT 0,
  revision INTEGER NOT NULL DEFAULT 0,
  redirects INTEGER NOT NULL DEFAULT 0,
  created_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX webhooks_by_operator ON webhooks (operator, slot);
CREATE INDEX webhooks_active ON webhooks (due_at_ms) WHERE status = 'active';

-- The last attempts of each hook. `seq` is NULL for a test; `status` is NULL where no answer came.
CREATE TABLE webhook_attempts (
  hook BLOB NOT NULL REFERENCES webhooks (id),
  n INTEGER NOT NULL,
  at_ms INTEGER NOT NULL,
  epoch INTEGER,
  seq INTEGER,
  status INTEGER,
  took_ms INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  PRIMARY KEY (hook, n)
) STRICT, WITHOUT ROWID;

-- Events that a receiver refused repeatedly, moved here so that the next could be delivered.
CREATE TABLE webhook_dead_letters (
  hook BLOB NOT NULL REFERENCES webhooks (id),
  epoch INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  at_ms INTEGER NOT NULL,
  status INTEGER NOT NULL,
  PRIMARY KEY (hook, epoch, seq)
) STRICT, WITHOUT ROWID;

-- The transparency log: a tree of hashes over functions, triggers and deactivations.
-- A row for each epoch of the log: a tree with an origin and a key of its own.
--   vkeys        the keys that verify its checkpoints and their time, a line each
--   state        `open`, `closing`, `frozen`, `halted` or `closed`; why: the reason of a halt
--   place        the database that the log was last opened in
--   backfilled   the index of the entry after those older rows; NULL: not yet reached
--   note         the last signed checkpoint, and note_size the size of its tree; this alone is public
CREATE TABLE tlog_epochs (
  epoch INTEGER PRIMARY KEY,
  origin TEXT NOT NULL,
  vkeys TEXT NOT NULL,
  state TEXT NOT NULL,
  why TEXT,
  place TEXT NOT NULL,
  size INTEGER NOT NULL,
  root BLOB NOT NULL CHECK (length(root) = 32),
  backfilled INTEGER,
  note TEXT,
  note_size INTEGER NOT NULL,
  opened_at_ms INTEGER NOT NULL
) STRICT;

-- How far the tree has the facts of a kind (1: function_creators, 2: triggers, 3: deactivations): up to the number
-- `after` in their table. Those up to `backfill_until` are older than the epoch.
CREATE TABLE tlog_cursors (
  epoch INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  after INTEGER NOT NULL,
  backfill_until INTEGER NOT NULL,
  PRIMARY KEY (epoch, kind)
) STRICT;

-- The entries after the last full bundle, 255 at most.
CREATE TABLE tlog_tail (
  epoch INTEGER NOT NULL,
  leaf_index INTEGER NOT NULL,
  entry BLOB NOT NULL,
  PRIMARY KEY (epoch, leaf_index)
) STRICT;

-- Hashes and entries. Level -1: a full bundle of entries, compressed by gzip; 0: a full tile; above: a tile that grows.
CREATE TABLE tlog_tiles (
  epoch INTEGER NOT NULL,
  level INTEGER NOT NULL,
  n INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (epoch, level, n)
) STRICT;

-- Where the facts of a table stand in the tree: `count` rows from the number `first_seq` on have the leaves from
-- `first_index` on. Kind 1: function_creators, 2: triggers, 3: deactivations.
CREATE TABLE tlog_runs (
  epoch INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  first_index INTEGER NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (epoch, kind, first_seq)
) STRICT;
