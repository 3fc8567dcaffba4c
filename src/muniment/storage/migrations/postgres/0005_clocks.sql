-- By how much the time in a row of `triggers` or `intents` is ahead of the time in a later one, where that is more than
-- what is usual: rows were dated by a clock that was ahead. The largest counts; each is a power of two.
CREATE TABLE time_differences (
  differ_ms bigint PRIMARY KEY,
  noted_at_ms bigint NOT NULL
);

-- Nonces up to this window were used or not, nobody knows any more: none of them is good. At most one row.
CREATE TABLE forgotten_nonces (
  id bigint PRIMARY KEY CHECK (id = 1),
  until_window bigint NOT NULL
);
