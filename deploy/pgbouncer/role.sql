-- The session parameters that the service sends at the start of a connection, and that PgBouncer drops.
ALTER ROLE muniment SET statement_timeout = '5s';
ALTER ROLE muniment SET lock_timeout = '2s';
ALTER ROLE muniment SET idle_in_transaction_session_timeout = '10s';
ALTER ROLE muniment SET jit = off;
ALTER ROLE muniment SET enable_seqscan = off;
ALTER ROLE muniment SET enable_bitmapscan = off;
ALTER ROLE muniment SET synchronous_commit = on;
