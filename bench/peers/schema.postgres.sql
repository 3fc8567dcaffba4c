-- What the three endpoints need, and no more: fewer indexes make a faster insert.
CREATE TABLE IF NOT EXISTS functions (cid text PRIMARY KEY, inputs text NOT NULL);
CREATE TABLE IF NOT EXISTS triggers (
  seq bigserial PRIMARY KEY,
  sig bytea NOT NULL UNIQUE,
  signer bytea NOT NULL,
  digest bytea NOT NULL,
  deactivated bigint NOT NULL DEFAULT 0,
  created_at_ms bigint NOT NULL,
  record text NOT NULL,
  UNIQUE (signer, digest)
);
CREATE INDEX IF NOT EXISTS triggers_by_signer ON triggers (signer, seq);
