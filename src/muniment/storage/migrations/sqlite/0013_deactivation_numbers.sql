-- Deactivations get numbers in the order of commits, as all other facts have. Old rows are numbered by their times.
-- Processes of the release before name the columns that they fill, so they go on.
ALTER TABLE deactivations RENAME TO deactivations_before;
CREATE TABLE deactivations (
  signature BLOB NOT NULL UNIQUE CHECK (length(signature) = 65),
  signer BLOB NOT NULL CHECK (length(signer) = 20),
  protocol TEXT NOT NULL,
  trigger_sigs BLOB NOT NULL,
  created_at_ms INTEGER NOT NULL,
  form TEXT,
  seq INTEGER PRIMARY KEY AUTOINCREMENT
) STRICT;
INSERT INTO deactivations (signature, signer, protocol, trigger_sigs, created_at_ms, form)
SELECT signature, signer, protocol, trigger_sigs, created_at_ms, form
FROM deactivations_before ORDER BY created_at_ms, signature;
DROP TABLE deactivations_before;
