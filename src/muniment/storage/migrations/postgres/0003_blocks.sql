-- Blocks of bundles. A row is written once, and again only when it was damaged.
CREATE TABLE blocks (
  digest bytea PRIMARY KEY CHECK (length(digest) = 32),
  data bytea NOT NULL CHECK (length(data) <= 2097152)
);
-- Out of line and as it is: a block is always read whole, and packing it would cost more time at every read and write
-- than the third of its size that it might save.
ALTER TABLE blocks ALTER COLUMN data SET STORAGE EXTERNAL;
