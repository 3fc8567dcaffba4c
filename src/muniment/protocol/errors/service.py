"""Refusals of requests that are correct, but that the service cannot answer."""

from __future__ import annotations

from muniment.protocol.errors.refusal import Refusal


class Unavailable(Refusal):
    """A part that this service depends on does not answer. Nothing was half done; try again."""


class DatabaseUnavailable(Unavailable):
    """The database cannot be reached, is busy, or cannot write.

    Nothing was stored, unless `detail` says that it was lost during the commit: then send the request again, or read.
    """

    code = "database-unavailable"
    title = "Database unavailable"


class ChainsUnavailable(Unavailable):
    """None of the configured chains could be read; an empty answer would mean that the wallet has nothing."""

    code = "chains-unavailable"
    title = "Chains unavailable"


class StorageUnavailable(Unavailable):
    """The block store cannot write, for instance because the disk is full; nothing was stored."""

    code = "storage-unavailable"
    title = "Block storage unavailable"


class DiskAlmostFull(Unavailable):
    """A disk of the registry is almost full: what is left is kept for deactivations and log-ins. Nothing was stored.

    Uploads are refused first, then whatever else adds a record. The operator must free space.
    """

    code = "disk-almost-full"
    title = "Disk almost full"


class TooManyUploads(Unavailable):
    """Too many uploads of this creator wait for their check; send them one by one."""

    code = "too-many-uploads"
    title = "Too many uploads at once"


class DeadlineExceeded(Unavailable):
    """The read took longer than one request may; ask for fewer records, or use a cursor."""

    code = "deadline-exceeded"
    title = "Deadline exceeded"


class Overloaded(Unavailable):
    """This process is overloaded; nothing was begun. `Retry-After` says when to try again."""

    code = "overloaded"
    title = "Overloaded"


class ClockInDoubt(Unavailable):
    """The clock of this process stepped, or differs from others: nothing new is registered until it is steady."""

    code = "clock-in-doubt"
    title = "Clock in doubt"


class NotReady(Unavailable):
    """This process is starting or stopping, or a dependency is not in the state it needs."""

    code = "not-ready"
    title = "Not ready"


class Broken(Refusal):
    """The service has an error that another try cannot repair."""


class Integrity(Broken):
    """Stored content no longer matches its hash, and is withheld. The operator finds the error in the log."""

    code = "integrity"
    title = "Stored content is damaged"


class InternalError(Broken):
    """An error of this software. The log has its details under the request id; the answer has none."""

    code = "internal-error"
    title = "Internal error"
