-- Which life of its sequence numbers a registry is in: another one begins when it was set back to an earlier state,
-- because numbers of lost rows are then given to new ones. One row. `renewals` 0 is the first epoch, whose cursors carry
-- no epoch.
CREATE TABLE epoch (
  id bigint PRIMARY KEY CHECK (id = 1),
  number bigint NOT NULL CHECK (number BETWEEN 0 AND 4294967295),
  renewals bigint NOT NULL DEFAULT 0
);
INSERT INTO epoch (id, number) VALUES (1, floor(random() * 4294967296)::bigint);

-- How the consent was signed, 'eip191' or 'eip712'; NULL in rows of releases that did not say.
ALTER TABLE deactivations ADD COLUMN form text;
