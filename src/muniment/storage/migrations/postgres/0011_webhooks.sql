-- Webhooks: receivers to which the change feed is delivered, each with its own place in it.
--   id              16 random bytes
--   owner           the wallet that made it, 20 bytes; or else
--   operator        the name of the operator who made it
--   place           its number among the hooks of its maker: the unique indexes below keep their limit
--   types, filters  JSON: which events it gets; NULL: all
--   status          `muniment.webhooks.types.WebhookStatus`; `reason` says why it is not active
--   secret_id       the secret of the ring from which its keys are derived, with its `generation`
--   old_secret_id   the same of the keys before, which sign too until `old_until_ms`
--   epoch, seq      the last event that was delivered or set aside
--   due_at_ms       when the next delivery may begin
--   failures        attempts in a row that failed, the first of them at `failing_since_ms`
--   refused         attempts in a row at which the receiver refused the event, the first of them at `refused_since_ms`
--   turn            grows when a person changes the hook: deliveries that began before store at most the cursor
--   redirects       grows when such a change decides which events come next, or where they go: then they store nothing
CREATE TABLE webhooks (
  id bytea PRIMARY KEY CHECK (length(id) = 16),
  owner bytea CHECK (length(owner) = 20),
  operator text,
  place bigint NOT NULL,
  url text NOT NULL,
  types text,
  filters text,
  batch bigint NOT NULL DEFAULT 0 CHECK (batch IN (0, 1)),
  status text NOT NULL,
  reason text,
  secret_id text NOT NULL,
  generation bigint NOT NULL DEFAULT 1,
  old_secret_id text,
  old_until_ms bigint,
  epoch bigint NOT NULL,
  seq bigint NOT NULL,
  due_at_ms bigint NOT NULL,
  failures bigint NOT NULL DEFAULT 0,
  failing_since_ms bigint,
  refused bigint NOT NULL DEFAULT 0,
  refused_since_ms bigint,
  turn bigint NOT NULL DEFAULT 0,
  redirects bigint NOT NULL DEFAULT 0,
  created_at_ms bigint NOT NULL,
  CHECK ((owner IS NULL) <> (operator IS NULL))
);
CREATE UNIQUE INDEX webhooks_by_owner ON webhooks (owner, place) WHERE owner IS NOT NULL;
CREATE UNIQUE INDEX webhooks_by_operator ON webhooks (operator, place) WHERE operator IS NOT NULL;
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

-- Events that a receiver refused again and again, and that were set aside so that the next could be delivered.
CREATE TABLE webhook_dead_letters (
  hook bytea NOT NULL REFERENCES webhooks (id),
  epoch bigint NOT NULL,
  seq bigint NOT NULL,
  at_ms bigint NOT NULL,
  status bigint NOT NULL,
  PRIMARY KEY (hook, epoch, seq)
);
