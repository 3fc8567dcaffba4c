"""The request is fine; it is this side that cannot answer."""

from __future__ import annotations

from muniment.errors.refusal import Refusal


class Unavailable(Refusal):
    """Something this service depends on does not answer; nothing was half done, try again."""


class DatabaseUnavailable(Unavailable):
    """The database cannot be reached, is busy, or cannot write.

    Nothing was stored, unless `detail` says that it was lost while it committed: then send the same again, or read.
    """

    code = "database-unavailable"
    title = "Database unavailable"


class ChainsUnavailable(Unavailable):
    """None of the configured chains could be read; an empty answer would say that the wallet has nothing."""

    code = "chains-unavailable"
    title = "Chains unavailable"


class StorageUnavailable(Unavailable):
    """The block store cannot write, for instance because the disk is full; nothing was stored."""

    code = "storage-unavailable"
    title = "Block storage unavailable"


class TooManyUploads(Unavailable):
    """Uploads of the same creator wait to be checked for longer than a client should; send them one by one."""

    code = "too-many-uploads"
    title = "Too many uploads at once"


class DeadlineExceeded(Unavailable):
    """Reading took longer than this service allows one request; ask for less, or by cursor."""

    code = "deadline-exceeded"
    title = "Deadline exceeded"


class Overloaded(Unavailable):
    """This process has more to do than it can; nothing was begun. `Retry-After` says when to try again."""

    code = "overloaded"
    title = "Overloaded"


class ClockInDoubt(Unavailable):
    """The clock of this process stepped, or stands apart from others: nothing new is registered until it is steady."""

    code = "clock-in-doubt"
    title = "Clock in doubt"


class NotReady(Unavailable):
    """This process is starting or stopping, or a dependency is not in the state it needs."""

    code = "not-ready"
    title = "Not ready"


class Broken(Refusal):
    """Something is wrong on this side that trying again will not mend."""


class Integrity(Broken):
    """Stored content no longer has the hash it is stored under, and is withheld. The operator has been told."""

    code = "integrity"
    title = "Stored content is damaged"


class InternalError(Broken):
    """An error of this software. It is in the log under the request id; nothing of it is shown."""

    code = "internal-error"
    title = "Internal error"
