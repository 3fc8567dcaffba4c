-- The same tables as on SQLite; there `seq` is the order of commits because one holder of a lock gives it, here
-- because it begins with the transaction's number.

-- A sequence number is the number of its transaction (47 bits: 10,000 writes a second for 400 years) and 16 bits that
-- tell rows of one transaction apart. Transactions whose number is below that of the oldest running one are over, so
-- what is below `settled_seq()` is final: no row will ever appear there. The numbers of two rows of one transaction
-- are equal only when 65,536 rows were numbered in between; the table's key refuses the second one then.
CREATE SEQUENCE row_numbers;

-- What is added to a transaction's number. In a cluster where a dump was restored transactions count from the start
-- again; `migrate` raises this so that new rows are numbered after those of the dump.
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
  name_key bytea NOT NULL,
  record text NOT NULL
);
CREATE INDEX functions_by_name ON functions (name_key, seq);

-- `seq` is the order in which creators joined functions: a listing of one creator is in this order.
CREATE TABLE function_creators (
  seq bigint PRIMARY KEY DEFAULT next_seq(),
  creator bytea NOT NULL CHECK (length(creator) = 20),
  function_seq bigint NOT NULL REFERENCES functions (seq),
  name text NOT NULL,
  version text NOT NULL,
  joined_at_ms bigint NOT NULL,
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
  -- When it was deactivated.
  deactivated_at_ms bigint,
  UNIQUE (signer, digest)
);
CREATE INDEX triggers_by_live ON triggers (live, seq);
CREATE INDEX triggers_by_signer ON triggers (signer, live, seq);
CREATE INDEX triggers_by_function ON triggers (function_digest, live, seq);
CREATE INDEX triggers_by_signer_and_function ON triggers (signer, function_digest, live, seq);
CREATE INDEX triggers_by_creation ON triggers (created_at_ms, seq);
-- `live` is not a column of it: a condition that the index's own implies is not used to look into it.
CREATE INDEX triggers_by_end ON triggers (end_date_ms) WHERE live = 1 AND end_date_ms > 0;

-- Those that a sweep has marked as ended, by when: a clock that was ahead may have marked too many.
CREATE INDEX triggers_by_marked_end ON triggers (end_date_ms) WHERE live = 0 AND deactivated = 0;

-- The consents to deactivate, whole: the list that was signed, in its order, so that each can be checked again.
CREATE TABLE deactivations (
  signature bytea PRIMARY KEY CHECK (length(signature) = 65),
  signer bytea NOT NULL CHECK (length(signer) = 20),
  protocol text NOT NULL,
  trigger_sigs bytea NOT NULL,
  created_at_ms bigint NOT NULL,
  -- How the consent was signed: 'eip191' or 'eip712'.
  form text NOT NULL,
  seq bigint DEFAULT next_seq()
);
CREATE UNIQUE INDEX deactivations_by_seq ON deactivations (seq);

-- Three kinds of fact about an intent are kept apart: claims of operators (status, transaction_hash), facts of the
-- canonical chain (chain_status, chain_transaction_hash, taken back by a reorganisation), and `standing`, the status that
-- follows from both, or 'expired' once a sweep has seen the deadline pass. It is for indexes: whether an intent reads as
-- expired follows from the deadline whenever it is read.
CREATE TABLE intents (
  seq bigint PRIMARY KEY DEFAULT next_seq(),
  -- The form: 1 has one operation, 2 a list of operations.
  generation bigint NOT NULL CHECK (generation IN (1, 2)),
  hash bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
  settler bytea NOT NULL CHECK (length(settler) = 20),
  -- Of the trigger: `configSig` of generation 1, `triggerSig` of generation 2.
  trigger_sig bytea NOT NULL CHECK (length(trigger_sig) = 65),
  -- Of generation 1; those of generation 2 are in `intent_users` and `intent_ops`.
  user_address bytea CHECK (length(user_address) = 20),
  op bigint,
  -- Of generation 2.
  operation_count bigint,
  nonce text,
  -- Seconds since 1970 as 32 bytes, big-endian: on chain a deadline may be any uint256, and such blobs sort as numbers.
  deadline bytea NOT NULL CHECK (length(deadline) = 32),
  status text NOT NULL,
  chain_status text,
  standing text NOT NULL,
  transaction_hash bytea,
  dest_transaction_hash bytea,
  chain_transaction_hash bytea,
  -- When the chain gave it the status that it has; NULL where operators said so first.
  decided_at_ms bigint,
  execution_hash bytea,
  proposal_count bigint NOT NULL DEFAULT 0,
  log_count bigint NOT NULL DEFAULT 0,
  -- Grows with every change, for the ETag.
  version bigint NOT NULL DEFAULT 1,
  created_at_ms bigint NOT NULL,
  -- The time of the last change, and the version that the last change brought which was more than a line of the log.
  changed_at_ms bigint,
  changed_version bigint,
  -- The number of the last event about the intent.
  changed_seq bigint,
  -- The members that never change, as JSON, written once. What changes is a column.
  record text NOT NULL,
  CHECK ((user_address IS NOT NULL) = (generation = 1)),
  CHECK ((op IS NOT NULL) = (generation = 1)),
  CHECK ((operation_count IS NOT NULL) = (generation = 2)),
  CHECK ((nonce IS NOT NULL) = (generation = 2))
);
-- A listing is of one generation, or merges both.
CREATE INDEX intents_by_generation ON intents (generation, seq);
CREATE INDEX intents_by_settler ON intents (generation, settler, seq);
CREATE INDEX intents_by_settler_and_standing ON intents (generation, settler, standing, seq);
CREATE INDEX intents_by_trigger_sig ON intents (generation, trigger_sig, seq);
CREATE INDEX intents_by_standing ON intents (generation, standing, seq);
CREATE INDEX intents_by_deadline ON intents (generation, deadline, seq);
CREATE INDEX intents_by_user ON intents (user_address, seq) WHERE user_address IS NOT NULL;
CREATE INDEX intents_by_user_and_standing ON intents (user_address, standing, seq) WHERE user_address IS NOT NULL;
CREATE INDEX intents_by_op ON intents (op, seq) WHERE op IS NOT NULL;
CREATE INDEX intents_by_creation ON intents (created_at_ms, seq);
-- For receipts: whose transaction it was that failed.
CREATE INDEX intents_by_transaction ON intents (transaction_hash) WHERE transaction_hash IS NOT NULL;
-- Those that can still expire, by when.
CREATE INDEX intents_by_end ON intents (deadline) WHERE standing IN ('created', 'enqueued', 'submitted');
-- Those that a sweep has marked, by when: it may have had another clock or grace than the next.
CREATE INDEX intents_by_marked_end ON intents (status, deadline) WHERE standing = 'expired';
-- For receipts: intents that operators call succeeded, without a fact of a chain.
CREATE INDEX intents_by_claim ON intents (generation, settler, seq) WHERE status = 'succeeded' AND chain_status IS NULL;

-- Whom an intent of generation 2 concerns: the users of its operations and its payer of fees, each once.
CREATE TABLE intent_users (
  address bytea NOT NULL CHECK (length(address) = 20),
  seq bigint NOT NULL REFERENCES intents (seq),
  PRIMARY KEY (address, seq)
);
CREATE INDEX intent_users_by_seq ON intent_users (seq);

-- The types of the operations of an intent of generation 2, each once.
CREATE TABLE intent_ops (
  op_type bigint NOT NULL,
  seq bigint NOT NULL REFERENCES intents (seq),
  PRIMARY KEY (op_type, seq)
);

-- Numbered from 1 within an intent. `record` has the members that never change, as JSON, written once.
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
-- operators named (log_index -1; a good one only records that it was asked for). `subject` is the hash of a proposal or an
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

-- The next block to read for a settler, and the hashes of blocks that were read, which reveal a reorganisation.
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

-- Work that only one process may do at a time: its holder, and until when.
CREATE TABLE leases (
  name text PRIMARY KEY,
  holder text NOT NULL,
  until_ms bigint NOT NULL
);

-- Those who may write intents and runs. Only the hash of a key is kept: it is 32 random bytes, so a plain hash cannot be
-- undone. `address` names the operator publicly, in the runs that it records.
CREATE TABLE operators (
  name text PRIMARY KEY,
  key_hash bytea NOT NULL UNIQUE CHECK (length(key_hash) = 32),
  created_at_ms bigint NOT NULL,
  revoked_at_ms bigint,
  address bytea CHECK (length(address) = 20)
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

-- Which intent of generation 2 holds a nonce: the settlement contract would execute two intents of one nonce, and the
-- owner would pay twice.
--   deadline   of the intent: the nonce is free once the deadline and the settlement grace have passed; NULL: never,
--              because the intent has succeeded
CREATE TABLE intent_nonces (
  trigger_sig bytea NOT NULL CHECK (length(trigger_sig) = 65),
  settler bytea NOT NULL CHECK (length(settler) = 20),
  nonce text NOT NULL CHECK (length(nonce) = 66),
  intent_hash bytea NOT NULL CHECK (length(intent_hash) = 32),
  deadline bytea CHECK (length(deadline) = 32),
  PRIMARY KEY (trigger_sig, settler, nonce)
);

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
  seq bigint PRIMARY KEY DEFAULT next_seq(),
  hash bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
  trigger_seq bigint NOT NULL REFERENCES triggers (seq),
  trigger_type bigint NOT NULL,
  payload_hash bytea NOT NULL CHECK (length(payload_hash) = 32),
  result text NOT NULL,
  reason text,
  verdict bigint NOT NULL CHECK (verdict IN (0, 1)),
  disputed bigint NOT NULL DEFAULT 0 CHECK (disputed IN (0, 1)),
  relayer bytea NOT NULL CHECK (length(relayer) = 20),
  outputs bytea NOT NULL CHECK (length(outputs) % 32 = 0),
  min_validations bigint NOT NULL,
  version bigint NOT NULL DEFAULT 1,
  created_at_ms bigint NOT NULL,
  -- The time of the last change.
  changed_at_ms bigint,
  -- The number of the last event about the run.
  changed_seq bigint,
  record_bytes bigint NOT NULL,
  record text NOT NULL,
  more_logs text NOT NULL,
  detail text NOT NULL
);
CREATE INDEX runs_by_due ON runs (trigger_seq, payload_hash);
-- `seq + 0`: by `seq` the planner would rather walk the primary key, and test each row, for a filter that many rows pass.
-- If these are old, it would walk past all newer ones.
CREATE INDEX runs_by_trigger ON runs (trigger_seq, (seq + 0));
CREATE INDEX runs_by_trigger_and_result ON runs (trigger_seq, result, (seq + 0));
CREATE INDEX runs_by_trigger_and_relayer ON runs (trigger_seq, relayer, (seq + 0));
CREATE INDEX runs_by_trigger_relayer_and_result ON runs (trigger_seq, relayer, result, (seq + 0));
CREATE INDEX runs_by_relayer ON runs (relayer, (seq + 0));
CREATE INDEX runs_by_relayer_and_result ON runs (relayer, result, (seq + 0));
CREATE INDEX runs_by_result ON runs (result, (seq + 0));
CREATE INDEX runs_by_creation ON runs (created_at_ms, seq);
-- Those that are removed when they are old.
CREATE INDEX runs_by_age ON runs (created_at_ms) WHERE result <> 'intents';

-- Who recorded a run, numbered from 1 within it; `evidence` is the hash of what that relayer read.
CREATE TABLE run_records (
  run_seq bigint NOT NULL REFERENCES runs (seq),
  n bigint NOT NULL,
  operator text NOT NULL,
  relayer bytea NOT NULL CHECK (length(relayer) = 20),
  evidence bytea NOT NULL CHECK (length(evidence) = 32),
  created_at_ms bigint NOT NULL,
  -- When the operator said that the block of the run was dropped.
  orphaned_at_ms bigint,
  PRIMARY KEY (run_seq, n),
  UNIQUE (run_seq, operator)
);

-- Blocks of bundles. A row is written once, and again only when it was damaged.
CREATE TABLE blocks (
  digest bytea PRIMARY KEY CHECK (length(digest) = 32),
  data bytea NOT NULL CHECK (length(data) <= 2097152)
);
-- Out of line and as it is: a block is always read whole, and packing it would cost more time at every read and write
-- than the third of its size that it might save.
ALTER TABLE blocks ALTER COLUMN data SET STORAGE EXTERNAL;

-- The epoch of the sequence numbers: a new epoch begins when the registry is set back to an earlier state, because
-- the numbers of lost rows are then given to new rows. One row. `renewals` 0 is the first epoch, whose cursors carry
-- no epoch.
CREATE TABLE epoch (
  id bigint PRIMARY KEY CHECK (id = 1),
  number bigint NOT NULL CHECK (number BETWEEN 0 AND 4294967295),
  renewals bigint NOT NULL DEFAULT 0
);
INSERT INTO epoch (id, number) VALUES (1, floor(random() * 4294967296)::bigint);

-- By how much the time in a row of `triggers`, `intents` or `runs` is ahead of the time in a later one, where that is
-- more than what is usual: rows were dated by a clock that was ahead. The largest counts; each is a power of two.
CREATE TABLE time_differences (
  differ_ms bigint PRIMARY KEY,
  noted_at_ms bigint NOT NULL
);

-- Whether nonces up to this window were used is unknown, so all of them are refused. At most one row.
CREATE TABLE forgotten_nonces (
  id bigint PRIMARY KEY CHECK (id = 1),
  until_window bigint NOT NULL
);

-- The change feed: a row for each change of a trigger, a function, an intent or a run, stored with the change itself.
-- A row does not change after its transaction. An event of a new row has the row's own number, and one of a later
-- change takes a number of its own. `kind` is a number of `muniment.service.resources.feed.events.Kind`.
--   subject  the signature of a trigger, the digest of a function, or the hash of an intent or a run
--   owners   the distinct addresses that it concerns, 20 bytes each: signer, creator, or users and payer of fees
--   origin   the digest of the function; of an intent or a run, the signature of its trigger
--   facts    JSON: the other members of the event
CREATE TABLE events (
  seq bigint PRIMARY KEY DEFAULT next_seq(),
  at_ms bigint NOT NULL,
  kind bigint NOT NULL,
  subject bytea NOT NULL,
  owners bytea NOT NULL,
  origin bytea NOT NULL,
  settler bytea,
  facts text NOT NULL
);

-- Events up to `floor_seq` were removed because of their age. One row.
CREATE TABLE feed (
  id bigint PRIMARY KEY CHECK (id = 1),
  floor_seq bigint NOT NULL DEFAULT 0
);
INSERT INTO feed (id) VALUES (1);

CREATE FUNCTION told_at_ms(bigint) RETURNS bigint LANGUAGE sql VOLATILE
RETURN coalesce($1, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);

CREATE FUNCTION intent_facts(
  generation bigint, status text, deadline bytea, version bigint, proposals bigint, logs bigint, transaction bytea
) RETURNS text LANGUAGE sql IMMUTABLE
RETURN json_build_object(
  'generation', generation, 'status', status, 'deadline', ltrim(encode(deadline, 'hex'), '0'), 'version', version,
  'proposals', proposals, 'logs', logs, 'transaction', coalesce(encode(transaction, 'hex'), '')
)::text;

-- The number of an event about a row must follow the numbers of all earlier events about it. Transactions are numbered
-- when they begin to write, so one that waited for the row of a later one has too low a number. It fails with 40001,
-- and is run again under another number.
CREATE FUNCTION number_after(earlier bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  n bigint := next_seq();
BEGIN
  IF n <= earlier THEN
    RAISE EXCEPTION 'a later transaction has changed this row' USING ERRCODE = '40001';
  END IF;
  RETURN n;
END $$;

CREATE FUNCTION triggers_created_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (seq, at_ms, kind, subject, owners, origin, facts)
  SELECT seq, created_at_ms, 1, sig, signer, function_digest, '{"endDate":' || end_date_ms || '}' FROM added;
  RETURN NULL;
END $$;
CREATE TRIGGER triggers_created_event AFTER INSERT ON triggers REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION triggers_created_event();

CREATE FUNCTION triggers_deactivated_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (seq, at_ms, kind, subject, owners, origin, facts)
  VALUES (
    number_after(OLD.seq), told_at_ms(NEW.deactivated_at_ms), 2, NEW.sig, NEW.signer, NEW.function_digest,
    json_build_object('deactivateSig', NEW.record::json -> 'deactivateSig')::text
  );
  RETURN NULL;
END $$;
CREATE TRIGGER triggers_deactivated_event AFTER UPDATE OF deactivated ON triggers
FOR EACH ROW WHEN (OLD.deactivated = 0 AND NEW.deactivated = 1) EXECUTE FUNCTION triggers_deactivated_event();

CREATE FUNCTION functions_created_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (seq, at_ms, kind, subject, owners, origin, facts)
  SELECT a.seq, a.joined_at_ms, 3, f.digest, a.creator, f.digest, '{}'
  FROM added a JOIN functions f ON f.seq = a.function_seq;
  RETURN NULL;
END $$;
CREATE TRIGGER functions_created_event AFTER INSERT ON function_creators REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION functions_created_event();

CREATE FUNCTION intents_created_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (seq, at_ms, kind, subject, owners, origin, settler, facts)
  SELECT seq, created_at_ms, 4, hash, coalesce(user_address, ''), trigger_sig, settler,
    intent_facts(generation, coalesce(chain_status, status), deadline, version, proposal_count, log_count,
      coalesce(chain_transaction_hash, transaction_hash))
  FROM added;
  RETURN NULL;
END $$;
CREATE TRIGGER intents_created_event AFTER INSERT ON intents REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION intents_created_event();

-- The users of an intent of generation 2 are rows that follow its own in the same transaction: its event gets them.
CREATE FUNCTION intents_users_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE events e SET owners = e.owners || a.users
  FROM (SELECT seq, string_agg(address, ''::bytea ORDER BY address) AS users FROM added GROUP BY seq) a
  WHERE e.seq = a.seq;
  RETURN NULL;
END $$;
CREATE TRIGGER intents_users_event AFTER INSERT ON intent_users REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION intents_users_event();

CREATE FUNCTION number_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.changed_seq := number_after(coalesce(OLD.changed_seq, OLD.seq));
  RETURN NEW;
END $$;
CREATE TRIGGER intents_change_number BEFORE UPDATE OF version ON intents
FOR EACH ROW WHEN (NEW.version > OLD.version) EXECUTE FUNCTION number_change();

-- Event 6 reports only a new line of the log.
CREATE FUNCTION change_kind(
  has_line boolean, changed_version bigint, version bigint, is_same boolean
) RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN CASE WHEN has_line AND is_same AND changed_version IS DISTINCT FROM version THEN 6 ELSE 5 END;

CREATE FUNCTION intents_changed_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (seq, at_ms, kind, subject, owners, origin, settler, facts)
  VALUES (
    NEW.changed_seq, told_at_ms(NEW.changed_at_ms),
    change_kind(NEW.log_count > OLD.log_count, NEW.changed_version, NEW.version,
      NEW.standing = OLD.standing AND NEW.proposal_count = OLD.proposal_count),
    NEW.hash,
    coalesce(
      NEW.user_address,
      (SELECT string_agg(address, ''::bytea ORDER BY address) FROM intent_users WHERE seq = NEW.seq), ''
    ),
    NEW.trigger_sig, NEW.settler,
    intent_facts(NEW.generation, coalesce(NEW.chain_status, NEW.status), NEW.deadline, NEW.version, NEW.proposal_count,
      NEW.log_count, coalesce(NEW.chain_transaction_hash, NEW.transaction_hash))
  );
  RETURN NULL;
END $$;
CREATE TRIGGER intents_changed_event AFTER UPDATE OF version ON intents
FOR EACH ROW WHEN (NEW.version > OLD.version) EXECUTE FUNCTION intents_changed_event();

-- Event 7 reports a run that was recorded, and that another operator recorded it or said that its block was dropped.
CREATE FUNCTION run_facts(
  trigger_type bigint, result text, status text, outputs bytea, relayer bytea
) RETURNS text LANGUAGE sql IMMUTABLE
RETURN json_build_object(
  'triggerType', trigger_type, 'result', result, 'status', status, 'outputs', encode(outputs, 'hex'),
  'relayer', encode(relayer, 'hex')
)::text;

CREATE FUNCTION runs_recorded_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (seq, at_ms, kind, subject, owners, origin, facts)
  SELECT a.seq, a.created_at_ms, 7, a.hash, t.signer, t.sig,
    run_facts(a.trigger_type, a.result,
      CASE WHEN a.verdict = 1 AND a.min_validations <= 1 THEN 'valid' ELSE 'pending' END, a.outputs, a.relayer)
  FROM added a JOIN triggers t ON t.seq = a.trigger_seq;
  RETURN NULL;
END $$;
CREATE TRIGGER runs_recorded_event AFTER INSERT ON runs REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION runs_recorded_event();

CREATE TRIGGER runs_change_number BEFORE UPDATE OF version ON runs
FOR EACH ROW WHEN (NEW.version > OLD.version) EXECUTE FUNCTION number_change();

CREATE FUNCTION runs_changed_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (seq, at_ms, kind, subject, owners, origin, facts)
  SELECT NEW.changed_seq, told_at_ms(NEW.changed_at_ms), 7, NEW.hash, t.signer, t.sig,
    run_facts(NEW.trigger_type, NEW.result, CASE
      WHEN v.valid = 0 AND v.orphaned > 0 THEN 'invalid'
      WHEN NEW.verdict = 1 AND v.valid >= NEW.min_validations THEN 'valid' ELSE 'pending' END,
      NEW.outputs, NEW.relayer)
  FROM triggers t, (
    SELECT
      count(*) FILTER (WHERE r.orphaned_at_ms IS NULL AND o.revoked_at_ms IS NULL) AS valid,
      count(*) FILTER (WHERE r.orphaned_at_ms IS NOT NULL) AS orphaned
    FROM run_records r JOIN operators o ON o.name = r.operator WHERE r.run_seq = NEW.seq
  ) v
  WHERE t.seq = NEW.trigger_seq;
  RETURN NULL;
END $$;
CREATE TRIGGER runs_changed_event AFTER UPDATE OF version ON runs
FOR EACH ROW WHEN (NEW.version > OLD.version) EXECUTE FUNCTION runs_changed_event();

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
  id bytea PRIMARY KEY CHECK (length(id) = 16),
  operator text NOT NULL,
  slot bigint NOT NULL,
  url text NOT NULL,
  types text,
  filters text,
  batch bigint NOT NULL DEFAULT 0 CHECK (batch IN (0, 1)),
  status text NOT NULL,
  reason text,
  secret_id text NOT NULL,
  key_generation bigint NOT NULL DEFAULT 1,
  old_secret_id text,
  old_until_ms bigint,
  epoch bigint NOT NULL,
  seq bigint NOT NULL,
  due_at_ms bigint NOT NULL,
  failures bigint NOT NULL DEFAULT 0,
  failing_since_ms bigint,
  refused bigint NOT NULL DEFAULT 0,
  revision bigint NOT NULL DEFAULT 0,
  redirects bigint NOT NULL DEFAULT 0,
  created_at_ms bigint NOT NULL
);
CREATE UNIQUE INDEX webhooks_by_operator ON webhooks (operator, slot);
CREATE INDEX webhooks_active ON webhooks (due_at_ms) WHERE status = 'active';

-- The last attempts of each hook. `seq` is NULL for a test; `status` is NULL where no answer came.
CREATE TABLE webhook_attempts (
  hook bytea NOT NULL REFERENCES webhooks (id),
  n bigint NOT NULL,
  at_ms bigint NOT NULL,
  epoch bigint,
  seq bigint,
  status bigint,
  took_ms bigint NOT NULL,
  outcome text NOT NULL,
  PRIMARY KEY (hook, n)
);

-- Events that a receiver refused repeatedly, moved here so that the next could be delivered.
CREATE TABLE webhook_dead_letters (
  hook bytea NOT NULL REFERENCES webhooks (id),
  epoch bigint NOT NULL,
  seq bigint NOT NULL,
  at_ms bigint NOT NULL,
  status bigint NOT NULL,
  PRIMARY KEY (hook, epoch, seq)
);

-- The transparency log: a tree of hashes over functions, triggers and deactivations.
-- A row for each epoch of the log: a tree with an origin and a key of its own.
--   vkeys        the keys that verify its checkpoints and their time, a line each
--   state        `open`, `closing`, `frozen`, `halted` or `closed`; why: the reason of a halt
--   place        the database that the log was last opened in
--   backfilled   the index of the entry after those older rows; NULL: not yet reached
--   note         the last signed checkpoint, and note_size the size of its tree; this alone is public
CREATE TABLE tlog_epochs (
  epoch bigint PRIMARY KEY,
  origin text NOT NULL,
  vkeys text NOT NULL,
  state text NOT NULL,
  why text,
  place text NOT NULL,
  size bigint NOT NULL,
  root bytea NOT NULL CHECK (length(root) = 32),
  backfilled bigint,
  note text,
  note_size bigint NOT NULL,
  opened_at_ms bigint NOT NULL
);

-- How far the tree has the facts of a kind (1: function_creators, 2: triggers, 3: deactivations): up to the number
-- `after` in their table. Those up to `backfill_until` are older than the epoch.
CREATE TABLE tlog_cursors (
  epoch bigint NOT NULL,
  kind bigint NOT NULL,
  after bigint NOT NULL,
  backfill_until bigint NOT NULL,
  PRIMARY KEY (epoch, kind)
);

-- The entries after the last full bundle, 255 at most.
CREATE TABLE tlog_tail (
  epoch bigint NOT NULL,
  leaf_index bigint NOT NULL,
  entry bytea NOT NULL,
  PRIMARY KEY (epoch, leaf_index)
);

-- Hashes and entries. Level -1: a full bundle of entries, compressed by gzip; 0: a full tile; above: a tile that grows.
CREATE TABLE tlog_tiles (
  epoch bigint NOT NULL,
  level bigint NOT NULL,
  n bigint NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (epoch, level, n)
);
-- Out of line and as it is: hashes do not shrink, and bundles are compressed.
ALTER TABLE tlog_tiles ALTER COLUMN data SET STORAGE EXTERNAL;

-- Where the facts of a table stand in the tree: `count` rows from the number `first_seq` on have the leaves from
-- `first_index` on. Kind 1: function_creators, 2: triggers, 3: deactivations.
CREATE TABLE tlog_runs (
  epoch bigint NOT NULL,
  kind bigint NOT NULL,
  first_seq bigint NOT NULL,
  first_index bigint NOT NULL,
  count bigint NOT NULL,
  PRIMARY KEY (epoch, kind, first_seq)
);
