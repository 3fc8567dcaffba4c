-- Those that follow deactivations read them in this order.
CREATE UNIQUE INDEX CONCURRENTLY deactivations_by_seq ON deactivations (seq);
