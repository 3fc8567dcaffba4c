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
  epoch INTEGER PRIMARY KEY,
  origin TEXT NOT NULL,
  vkeys TEXT NOT NULL,
  state TEXT NOT NULL,
  why TEXT,
  place TEXT NOT NULL,
  size INTEGER NOT NULL,
  root BLOB NOT NULL CHECK (length(root) = 32),
  after_function INTEGER NOT NULL,
  after_trigger INTEGER NOT NULL,
  after_deactivation INTEGER NOT NULL,
  old_function INTEGER NOT NULL,
  old_trigger INTEGER NOT NULL,
  old_deactivation INTEGER NOT NULL,
  taken_over INTEGER,
  note TEXT,
  note_size INTEGER NOT NULL,
  opened_at_ms INTEGER NOT NULL
) STRICT;

-- The entries behind the last full bundle, 255 at most.
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
