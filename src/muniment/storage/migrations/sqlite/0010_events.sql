-- The change feed: a row for each change of a trigger, a function or an intent, stored with the change itself.
-- A row does not change after its transaction. `seq` is the order of commits. `kind` is a number of
-- `muniment.feed.events.Kind`.
--   subject  the signature of a trigger, the digest of a function, or the hash of an intent
--   owners   the distinct addresses that it concerns, 20 bytes each: signer, creator, or users and payer of fees
--   origin   the digest of the function; of an intent, the signature of its trigger
--   facts    JSON: what the event tells beyond that
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

-- The times of changes, in milliseconds. NULL in rows of releases that did not say: then the time is the database's,
-- from its Julian day.
ALTER TABLE triggers ADD COLUMN deactivated_at_ms INTEGER;
ALTER TABLE function_creators ADD COLUMN joined_at_ms INTEGER;
ALTER TABLE intents ADD COLUMN changed_at_ms INTEGER;
ALTER TABLE intents_2 ADD COLUMN changed_at_ms INTEGER;
-- The version that the last change brought which was more than a line of the log.
ALTER TABLE intents ADD COLUMN changed_version INTEGER;
ALTER TABLE intents_2 ADD COLUMN changed_version INTEGER;
-- On PostgreSQL the number of the last event; here nothing uses it.
ALTER TABLE intents ADD COLUMN changed_seq INTEGER;
ALTER TABLE intents_2 ADD COLUMN changed_seq INTEGER;
-- 1: the statement that added the trigger is followed by one that adds its event, which costs a quarter of a database
-- trigger. NULL: a process of the release before added it.
ALTER TABLE triggers ADD COLUMN has_event INTEGER;

CREATE TRIGGER triggers_created_event AFTER INSERT ON triggers WHEN NEW.has_event IS NULL BEGIN
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
    coalesce(NEW.joined_at_ms, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    3, digest, NEW.creator, digest, '{}'
  FROM functions WHERE seq = NEW.function_seq;
END;

CREATE TRIGGER intents_created_event AFTER INSERT ON intents BEGIN
  INSERT INTO events (at_ms, kind, subject, owners, origin, settler, facts)
  VALUES (
    NEW.created_at_ms, 4, NEW.hash, NEW.user_address, NEW.config_sig, NEW.settler,
    json_object(
      'generation', 1, 'status', coalesce(NEW.chain_status, NEW.status), 'deadline', ltrim(hex(NEW.deadline), '0'),
      'version', NEW.version, 'proposals', NEW.proposal_count, 'logs', NEW.log_count,
      'transaction', hex(coalesce(NEW.chain_transaction_hash, NEW.transaction_hash))
    )
  );
END;

-- An event 6 tells a new line of the log and nothing else.
CREATE TRIGGER intents_changed_event AFTER UPDATE OF version ON intents WHEN NEW.version > OLD.version BEGIN
  INSERT INTO events (at_ms, kind, subject, owners, origin, settler, facts)
  VALUES (
    coalesce(NEW.changed_at_ms, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    CASE WHEN NEW.log_count > OLD.log_count AND NEW.changed_version IS NOT NEW.version
      AND NEW.standing = OLD.standing AND NEW.proposal_count = OLD.proposal_count THEN 6 ELSE 5 END,
    NEW.hash, NEW.user_address, NEW.config_sig, NEW.settler,
    json_object(
      'generation', 1, 'status', coalesce(NEW.chain_status, NEW.status), 'deadline', ltrim(hex(NEW.deadline), '0'),
      'version', NEW.version, 'proposals', NEW.proposal_count, 'logs', NEW.log_count,
      'transaction', hex(coalesce(NEW.chain_transaction_hash, NEW.transaction_hash))
    )
  );
END;

CREATE TRIGGER intents_2_created_event AFTER INSERT ON intents_2 BEGIN
  INSERT INTO events (at_ms, kind, subject, owners, origin, settler, facts)
  VALUES (
    NEW.created_at_ms, 4, NEW.hash, x'', NEW.trigger_sig, NEW.settler,
    json_object(
      'generation', 2, 'status', coalesce(NEW.chain_status, NEW.status), 'deadline', ltrim(hex(NEW.deadline), '0'),
      'version', NEW.version, 'proposals', NEW.proposal_count, 'logs', NEW.log_count,
      'transaction', hex(coalesce(NEW.chain_transaction_hash, NEW.transaction_hash))
    )
  );
END;

-- The users of an intent are rows that follow its own in the same transaction: its event gets them one by one.
CREATE TRIGGER intents_2_user_event AFTER INSERT ON intent_users_2 BEGIN
  UPDATE events SET owners = CAST(owners || NEW.user_address AS BLOB)
  WHERE seq = (SELECT max(seq) FROM events) AND kind = 4
    AND subject = (SELECT hash FROM intents_2 WHERE seq = NEW.seq);
END;

CREATE TRIGGER intents_2_changed_event AFTER UPDATE OF version ON intents_2 WHEN NEW.version > OLD.version BEGIN
  INSERT INTO events (at_ms, kind, subject, owners, origin, settler, facts)
  VALUES (
    coalesce(NEW.changed_at_ms, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    CASE WHEN NEW.log_count > OLD.log_count AND NEW.changed_version IS NOT NEW.version
      AND NEW.standing = OLD.standing AND NEW.proposal_count = OLD.proposal_count THEN 6 ELSE 5 END,
    NEW.hash,
    (SELECT CAST(coalesce(group_concat(user_address, ''), '') AS BLOB) FROM intent_users_2 WHERE seq = NEW.seq),
    NEW.trigger_sig, NEW.settler,
    json_object(
      'generation', 2, 'status', coalesce(NEW.chain_status, NEW.status), 'deadline', ltrim(hex(NEW.deadline), '0'),
      'version', NEW.version, 'proposals', NEW.proposal_count, 'logs', NEW.log_count,
      'transaction', hex(coalesce(NEW.chain_transaction_hash, NEW.transaction_hash))
    )
  );
END;
