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
  id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
  owner BLOB CHECK (length(owner) = 20),
  operator TEXT,
  place INTEGER NOT NULL,
  url TEXT NOT NULL,
  types TEXT,
  filters TEXT,
  batch INTEGER NOT NULL DEFAULT 0 CHECK (batch IN (0, 1)),
  status TEXT NOT NULL,
  reason TEXT,
  secret_id TEXT NOT NULL,
  generation INTEGER NOT NULL DEFAULT 1,
  old_secret_id TEXT,
  old_until_ms INTEGER,
  epoch INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  due_at_ms INTEGER NOT NULL,
  failures INTEGER NOT NULL DEFAULT 0,
  failing_since_ms INTEGER,
  refused INTEGER NOT NULL DEFAULT 0,
  refused_since_ms INTEGER,
  turn INTEGER NOT NULL DEFAULT 0,
  redirects INTEGER NOT NULL DEFAULT 0,
  created_at_ms INTEGER NOT NULL,
  CHECK ((owner IS NULL) <> (operator IS NULL))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX webhooks_by_owner ON webhooks (owner, place) WHERE owner IS NOT NULL;
CREATE UNIQUE INDEX webhooks_by_operator ON webhooks (operator, place) WHERE operator IS NOT NULL;
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

-- Events that a receiver refused again and again, and that were set aside so that the next could be delivered.
CREATE TABLE webhook_dead_letters (
  hook BLOB NOT NULL REFERENCES webhooks (id),
  epoch INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  at_ms INTEGER NOT NULL,
  status INTEGER NOT NULL,
  PRIMARY KEY (hook, epoch, seq)
) STRICT, WITHOUT ROWID;
