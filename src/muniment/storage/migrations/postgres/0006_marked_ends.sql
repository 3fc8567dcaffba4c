-- Those that a sweep has marked as ended, by when: a clock that was ahead may have marked too many.
CREATE INDEX CONCURRENTLY triggers_by_marked_end ON triggers (end_date_ms) WHERE live = 0 AND deactivated = 0;
