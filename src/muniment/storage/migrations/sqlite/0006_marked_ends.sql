-- Those that a sweep has marked as ended, by when: a clock that was ahead may have marked too many.
-- `live` leads although it is always 0 here: else triggers_by_live looks as good, and is walked from end to end.
CREATE INDEX triggers_by_marked_end ON triggers (live, end_date_ms) WHERE live = 0 AND deactivated = 0;
