-- The users of one intent, for its events.
CREATE INDEX intent_users_2_by_seq ON intent_users_2 (seq);
