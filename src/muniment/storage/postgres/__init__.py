"""The engine for PostgreSQL: statements that wait at the same moment are sent as one, over a few connections.

The path of a write: `engine` hands the work to `writer`, which queues it. `dispatcher` starts a group when one of the
writer's slots (`slot`) is free. `transaction` runs the works of the group in step: `steps` runs each work up to its
next statement, `statements` finds the form in which PostgreSQL takes it, `batches` sends the equal statements of many
works as one. Then COMMIT. A row that all works of a group add last (`Transaction.add_last`) needs no BEGIN and COMMIT.

The path of a read: `engine` hands the query to `reader`, which queues it by its statement. `dispatcher` starts a group
when one of the reader's slots is free. `batches` sends the group as one statement and splits the rows again.

`driver_errors` says what an error of the driver means. `subset` bounds the bytes of a page. `migrate` and `copying`
are what the commands use.
"""
