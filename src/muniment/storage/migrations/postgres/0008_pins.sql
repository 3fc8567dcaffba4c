-- Bundles for an IPFS node: a row for each function that is to be pinned, and stays when it is.
CREATE TABLE pins (
  digest bytea PRIMARY KEY CHECK (length(digest) = 32),
  waits_since_ms bigint NOT NULL,
  due_at_ms bigint NOT NULL,
  taken bigint NOT NULL DEFAULT 0 CHECK (taken IN (0, 1)),
  turn bigint NOT NULL DEFAULT 0,
  failures bigint NOT NULL DEFAULT 0,
  error text,
  pinned_at_ms bigint
);
CREATE INDEX pins_waiting ON pins (due_at_ms) WHERE pinned_at_ms IS NULL;
