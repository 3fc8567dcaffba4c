-- A second way to give rows the order of commits, for engines without transaction numbers: one lock, `sequencer`. It is
-- off until `muniment sequence use sequencer`. The functions keep their names, so a process of the release before
-- numbers its rows in the same way as all others.

-- The one place that decides. `muniment sequence use` replaces this function while no numbered row is being written.
-- A plan contains only the way in use. STABLE, because the server makes such a plan again after the function was
-- replaced; of an IMMUTABLE function it would keep the old value.
CREATE FUNCTION uses_sequencer() RETURNS boolean LANGUAGE sql STABLE RETURN false;

-- The lock is that of the row of `epoch`, which every registry has and nothing else locks for long. A transaction holds
-- it until its end, so the numbers that it takes follow all committed numbers. The row is not changed: each change would
-- leave a version of it behind, and while somebody reads an old snapshot, a dump for example, every writer would have to
-- pass all of them. Without the row there is no number, and so no row.
CREATE FUNCTION sequencer_number() RETURNS bigint LANGUAGE sql VOLATILE
RETURN (SELECT nextval('row_numbers') FROM (SELECT id FROM epoch WHERE id = 1 FOR UPDATE) sequencer);

-- Takes the lock at the start of a transaction of several statements. If it came later, two transactions could wait for
-- each other: one for a row, the other for the lock.
CREATE FUNCTION lock_sequencer() RETURNS bigint LANGUAGE sql VOLATILE
RETURN (SELECT id FROM epoch WHERE id = 1 FOR UPDATE);

CREATE FUNCTION begin_numbering() RETURNS bigint LANGUAGE sql VOLATILE
RETURN CASE WHEN uses_sequencer() THEN lock_sequencer() END;

CREATE OR REPLACE FUNCTION next_seq() RETURNS bigint LANGUAGE sql VOLATILE
RETURN CASE WHEN uses_sequencer() THEN sequencer_number()
  ELSE ((seq_base() + pg_current_xact_id()::text::bigint) << 16) | (nextval('row_numbers') & 65535) END;

-- With the sequencer every committed row is final at once: no number below it can still come.
CREATE OR REPLACE FUNCTION settled_seq() RETURNS bigint LANGUAGE sql STABLE
RETURN CASE WHEN uses_sequencer() THEN 9223372036854775807
  ELSE (seq_base() + pg_snapshot_xmin(pg_current_snapshot())::text::bigint) << 16 END;
