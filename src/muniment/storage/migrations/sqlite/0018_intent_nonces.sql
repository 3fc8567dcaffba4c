-- Which intent of the second form holds a nonce: the settlement contract would execute two intents of one nonce, and the
-- owner would pay twice.
--   deadline   of the intent: the nonce is free once the deadline and the settlement grace have passed; NULL: never,
--              because the intent has succeeded
CREATE TABLE intent_nonces (
  trigger_sig BLOB NOT NULL CHECK (length(trigger_sig) = 65),
  settler BLOB NOT NULL CHECK (length(settler) = 20),
  nonce TEXT NOT NULL CHECK (length(nonce) = 66),
  intent_hash BLOB NOT NULL CHECK (length(intent_hash) = 32),
  deadline BLOB CHECK (length(deadline) = 32),
  PRIMARY KEY (trigger_sig, settler, nonce)
) STRICT, WITHOUT ROWID;

-- Of intents that are recorded already, one that succeeded holds the nonce, else the first; until the last deadline.
INSERT INTO intent_nonces (trigger_sig, settler, nonce, intent_hash, deadline)
SELECT trigger_sig, settler, nonce, hash, CASE WHEN has_succeeded = 0 THEN last_deadline END
FROM (
  SELECT trigger_sig, settler, nonce, hash, has_succeeded,
    first_value(deadline) OVER (PARTITION BY trigger_sig, settler, nonce ORDER BY deadline DESC) AS last_deadline,
    row_number() OVER (PARTITION BY trigger_sig, settler, nonce ORDER BY has_succeeded DESC, seq) AS n
  FROM (
    SELECT seq, trigger_sig, settler, hash, deadline,
      CASE WHEN json_valid(record) THEN json_extract(record, '$.nonce') END AS nonce,
      CASE WHEN coalesce(chain_status, status) = 'succeeded' THEN 1 ELSE 0 END AS has_succeeded
    FROM intents_2
  ) recorded
  WHERE nonce IS NOT NULL
) ranked
WHERE n = 1;
