"""The engine for PostgreSQL: equal statements of many callers are sent as one, over a few connections.

A *work* is a caller's coroutine, which reads and writes through a `Transaction`. A *group* is either the works that
are committed together, or the reads of one statement. A *batch* is the equal statements of a group, sent as one
statement. A *slot* holds one connection.

The path of a write: `engine` hands the work to `writer`, which queues it. `dispatcher` starts a group when one of the
writer's slots (`slot`) is free. `transaction` looks up and inserts the rows of all `InsertOnce` of the group with two
statements, without BEGIN and COMMIT, and runs the other works one after the other in one transaction. `statements` puts
each statement into PostgreSQL's form, and `batches` sends it.

The path of a read: `engine` hands the query to `read_queue`, which queues it by its statement. `dispatcher` starts a
group when one of the queue's slots is free. `batches` sends the group as one statement and gives each caller its rows.

`driver_errors` classifies the errors of the driver; all modules that send statements use it. `connection` makes one
connection, and tells whether a pooler mixes its session with others. `subset` limits the bytes of a page. `migrate`
serves the engine, `copying` the commands that copy a registry.
"""
