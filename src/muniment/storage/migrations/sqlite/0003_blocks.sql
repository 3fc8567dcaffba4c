-- Blocks of bundles, where they are not kept as files. A row is written once, and again only when it was damaged.
-- Not WITHOUT ROWID: rows this large make a deep tree, while here the key's own index answers what needs no bytes.
CREATE TABLE blocks (
  digest BLOB NOT NULL PRIMARY KEY CHECK (length(digest) = 32),
  data BLOB NOT NULL CHECK (length(data) <= 2097152)
) STRICT;
