-- Deactivations get numbers in the order of commits, as all other facts have. The default holds for new rows only, also
-- for those of the release before, so that the table is not written again; the next files number the old ones.
ALTER TABLE deactivations ADD COLUMN seq bigint;
ALTER TABLE deactivations ALTER COLUMN seq SET DEFAULT next_seq();
