"""HTTP: handlers become operations, refusals become problem documents. Knows no resource and no database."""
