-- The change feed: a row for each change of a trigger, a function or an intent, stored with the change itself.
-- A row does not change after its transaction. An event of a new row has the row's own number, and one of a later
-- change takes a number of its own. `kind` is a number of `muniment.feed.events.Kind`.
--   subject  the signature of a trigger, the digest of a function, or the hash of an intent
--   owners   the distinct addresses that it concerns, 20 bytes each: signer, creator, or users and payer of fees
--   origin   the digest of the function; of an intent, the signature of its trigger
--   facts    JSON: what the event tells beyond that
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

-- The times of changes, in milliseconds. NULL in rows of releases that did not say: then the time is the database's.
ALTER TABLE triggers ADD COLUMN deactivated_at_ms bigint;
ALTER TABLE function_creators ADD COLUMN joined_at_ms bigint;
ALTER TABLE intents ADD COLUMN changed_at_ms bigint;
ALTER TABLE intents_2 ADD COLUMN changed_at_ms bigint;
-- The version that the last change brought which was more than a line of the log.
ALTER TABLE intents ADD COLUMN changed_version bigint;
ALTER TABLE intents_2 ADD COLUMN changed_version bigint;
-- The number of the last event about the intent.
ALTER TABLE intents ADD COLUMN changed_seq bigint;
ALTER TABLE intents_2 ADD COLUMN changed_seq bigint;
-- On SQLite it says that no database trigger needs to add the event; here nothing uses it.
ALTER TABLE triggers ADD COLUMN has_event bigint;

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
  SELECT a.seq, told_at_ms(a.joined_at_ms), 3, f.digest, a.creator, f.digest, '{}'
  FROM added a JOIN functions f ON f.seq = a.function_seq;
  RETURN NULL;
END $$;
CREATE TRIGGER functions_created_event AFTER INSERT ON function_creators REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION functions_created_event();

CREATE FUNCTION intents_created_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (seq, at_ms, kind, subject, owners, origin, settler, facts)
  SELECT seq, created_at_ms, 4, hash, user_address, config_sig, settler,
    intent_facts(1, coalesce(chain_status, status), deadline, version, proposal_count, log_count,
      coalesce(chain_transaction_hash, transaction_hash))
  FROM added;
  RETURN NULL;
END $$;
CREATE TRIGGER intents_created_event AFTER INSERT ON intents REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION intents_created_event();

CREATE FUNCTION intents_2_created_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (seq, at_ms, kind, subject, owners, origin, settler, facts)
  SELECT seq, created_at_ms, 4, hash, '', trigger_sig, settler,
    intent_facts(2, coalesce(chain_status, status), deadline, version, proposal_count, log_count,
      coalesce(chain_transaction_hash, transaction_hash))
  FROM added;
  RETURN NULL;
END $$;
CREATE TRIGGER intents_2_created_event AFTER INSERT ON intents_2 REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION intents_2_created_event();

-- The users of an intent are rows that follow its own in the same transaction: its event gets them.
CREATE FUNCTION intents_2_users_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE events e SET owners = e.owners || a.users
  FROM (SELECT seq, string_agg(user_address, ''::bytea ORDER BY user_address) AS users FROM added GROUP BY seq) a
  WHERE e.seq = a.seq;
  RETURN NULL;
END $$;
CREATE TRIGGER intents_2_users_event AFTER INSERT ON intent_users_2 REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION intents_2_users_event();

CREATE FUNCTION number_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.changed_seq := number_after(coalesce(OLD.changed_seq, OLD.seq));
  RETURN NEW;
END $$;
CREATE TRIGGER intents_change_number BEFORE UPDATE OF version ON intents
FOR EACH ROW WHEN (NEW.version > OLD.version) EXECUTE FUNCTION number_change();
CREATE TRIGGER intents_2_change_number BEFORE UPDATE OF version ON intents_2
FOR EACH ROW WHEN (NEW.version > OLD.version) EXECUTE FUNCTION number_change();

-- An event 6 tells a new line of the log and nothing else.
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
    NEW.hash, NEW.user_address, NEW.config_sig, NEW.settler,
    intent_facts(1, coalesce(NEW.chain_status, NEW.status), NEW.deadline, NEW.version, NEW.proposal_count,
      NEW.log_count, coalesce(NEW.chain_transaction_hash, NEW.transaction_hash))
  );
  RETURN NULL;
END $$;
CREATE TRIGGER intents_changed_event AFTER UPDATE OF version ON intents
FOR EACH ROW WHEN (NEW.version > OLD.version) EXECUTE FUNCTION intents_changed_event();

CREATE FUNCTION intents_2_changed_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (seq, at_ms, kind, subject, owners, origin, settler, facts)
  VALUES (
    NEW.changed_seq, told_at_ms(NEW.changed_at_ms),
    change_kind(NEW.log_count > OLD.log_count, NEW.changed_version, NEW.version,
      NEW.standing = OLD.standing AND NEW.proposal_count = OLD.proposal_count),
    NEW.hash,
    (SELECT coalesce(string_agg(user_address, ''::bytea ORDER BY user_address), '')
      FROM intent_users_2 WHERE seq = NEW.seq),
    NEW.trigger_sig, NEW.settler,
    intent_facts(2, coalesce(NEW.chain_status, NEW.status), NEW.deadline, NEW.version, NEW.proposal_count,
      NEW.log_count, coalesce(NEW.chain_transaction_hash, NEW.transaction_hash))
  );
  RETURN NULL;
END $$;
CREATE TRIGGER intents_2_changed_event AFTER UPDATE OF version ON intents_2
FOR EACH ROW WHEN (NEW.version > OLD.version) EXECUTE FUNCTION intents_2_changed_event();
