"""The engine for SQLite: one file, which several processes may share; each process commits its writes in groups.

The path of a write: `engine` hands the work to `writer`, which queues it and takes the queued works as a group. `jobs`
runs the works of the group in one transaction, on the event loop. A thread of `writer` then commits it; `commits`
proves that the commit is in the `files` that a restarted process would open.

The path of a read: `engine` reads on the event loop, in a snapshot that `view` keeps; a long read has its own thread.

`connection` has the settings of every connection. `revision` refuses the file of another revision before it is opened.
`migrate` serves the engine, `snapshot` the backup commands, and `copying` the commands that copy a registry.
"""
