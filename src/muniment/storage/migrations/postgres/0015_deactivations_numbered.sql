-- Repeated: until it changes no row, each time in a transaction of its own. Nobody waits for it, because rows do not
-- change, and it never runs for long, so that followers see new rows soon.
UPDATE deactivations SET seq = numbered.n
FROM (
  SELECT signature, next_seq() AS n
  FROM (SELECT signature FROM deactivations WHERE seq IS NULL ORDER BY created_at_ms, signature LIMIT 1000) oldest
) numbered
WHERE deactivations.signature = numbered.signature;
