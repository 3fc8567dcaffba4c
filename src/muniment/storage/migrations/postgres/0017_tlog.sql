DROP INDEX deactivations_unnumbered;

-- The transparency log: a tree of hashes over functions, triggers and deactivations.
-- A row for each epoch of the log: a tree with an origin and a key of its own.
--   vkeys        the keys that verify its checkpoints and their time, a line each
--   state        `open`, `frozen`, `halted` or `closed`; why: the reason of a halt
--   place        the database that the log was last opened in
--   after_*      the last number of each table whose row is in the tree
--   old_*        the last number of each table when the epoch began, whose rows are older than it
--   taken_over   the index of the entry behind those older rows; NULL: it is not yet there
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
  after_function bigint NOT NULL,
  after_trigger bigint NOT NULL,
  after_deactivation bigint NOT NULL,
  old_function bigint NOT NULL,
  old_trigger bigint NOT NULL,
  old_deactivation bigint NOT NULL,
  taken_over bigint,
  note text,
  note_size bigint NOT NULL,
  opened_at_ms bigint NOT NULL
);

-- The entries behind the last full bundle, 255 at most.
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
