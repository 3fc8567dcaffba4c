-- For the next file, which removes it from use: it has the rows without a number only.
CREATE INDEX CONCURRENTLY deactivations_unnumbered ON deactivations (created_at_ms, signature) WHERE seq IS NULL;
