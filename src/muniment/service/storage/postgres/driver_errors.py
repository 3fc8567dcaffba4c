"""Classifies errors of the driver: whether the connection is lost, whether anything changed, what the caller gets.

All modules of the engine that send statements use this. SQLSTATE codes:
https://www.postgresql.org/docs/current/errcodes-appendix.html
"""

from __future__ import annotations

from typing import Any, Final

import asyncpg

from muniment.protocol.errors import DatabaseUnavailable

# The driver raises errors of the server, its own errors, and errors of sockets (TimeoutError is an OSError).
DRIVER_ERRORS: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)

_LOST_CLASSES: Final = {"08", "25"}  # connection exception; invalid transaction state: a primary became a standby
_LOST_STATES: Final = {"57P01", "57P02", "57P03", "57P05"}  # shutdown, crash, starting, idle for too long
_FAILING_CLASSES: Final = {"53", "55", "57", "58", "XX"}  # resources, state, intervention, system, internal
# No such table, column or function: the migrations of this release are not applied yet.
_FAILING_STATES: Final = {"42P01", "42703", "42883"}
# The role may not use a table, for instance after a restore without its rights.
_RIGHTS_STATE: Final = "42501"
# The connection takes no writes: `default_transaction_read_only`, or the server is a standby.
_READ_ONLY_STATE: Final = "25006"
# A prepared statement is absent, has another form, or takes other values, because another session prepared it: a pooler
# in transaction mode, or one whose mode was changed while the service ran.
_POOLED_STATES: Final = {"26000", "42P05", "08P01"}
_RETRYABLE_CLASSES: Final = {"40"}  # deadlock, serialization failure
_RETRYABLE_STATES: Final = {"0A000"}  # "cached plan must not change result type": after a migration

READ_ONLY: Final = "the database is read-only"
NO_RIGHTS: Final = "the database refuses this role: grant it the rights that `muniment doctor` names"
POOLED: Final = (
    "a connection pooler in transaction mode is in front of the database: set it to session mode "
    "(pool_mode = session of PgBouncer), or name the server itself in MUNIMENT_DATABASE_URL"
)


def _state(error: BaseException) -> str | None:
    """The SQLSTATE of an error of the server, None for any other error."""
    state: Any = getattr(error, "sqlstate", None)
    return state if isinstance(error, asyncpg.PostgresError) and isinstance(state, str) else None


def is_loss(error: BaseException) -> bool:
    """Whether the connection cannot be used after this error."""
    state = _state(error)
    if state is None:  # a socket error or a time-out: a late answer would be taken for the next statement's answer
        return True
    return state[:2] in _LOST_CLASSES or state in _LOST_STATES or is_pooled(error)


def is_away(error: BaseException) -> bool:
    """Whether the server may soon answer: it cannot be reached, starts or stops, or has no connection to give."""
    return (_state(error) or "")[:2] == "53" or (is_loss(error) and not is_pooled(error))


def is_refusal(error: BaseException) -> bool:
    """Whether this error proves that a statement, which was its own transaction, changed nothing.

    An ERROR of the server proves it. FATAL and PANIC end the connection, perhaps after the commit was on disk. An error
    without a severity is the driver's own: it could not encode a value.
    """
    severity: Any = getattr(error, "severity_en", None)
    is_usable = is_read_only(error) or is_pooled(error) or not is_loss(error)
    return _state(error) is not None and severity in {None, "ERROR"} and is_usable


def is_read_only(error: BaseException) -> bool:
    """Whether the connection takes no writes, so that the statement changed nothing."""
    return _state(error) == _READ_ONLY_STATE


def is_pooled(error: BaseException) -> bool:
    """Whether statements of one connection reach several servers. A FATAL 08P01 does not count: poolers end with it."""
    severity: Any = getattr(error, "severity_en", None)
    return _state(error) in _POOLED_STATES and severity in {None, "ERROR"}


def is_retryable(error: BaseException) -> bool:
    """Whether the transaction may succeed if it is run again."""
    state = _state(error) or ""
    return state[:2] in _RETRYABLE_CLASSES or state in _RETRYABLE_STATES


def for_caller(error: BaseException) -> BaseException:
    """The error for the caller of the engine: `DatabaseUnavailable` for a failure of the database.

    An error in a store's own statement is not a failure of the database, and is returned unchanged.
    """
    state = _state(error) or ""
    if not isinstance(error, DRIVER_ERRORS):
        return error
    is_failure = state[:2] in _FAILING_CLASSES or state in _FAILING_STATES
    if is_read_only(error):
        detail = READ_ONLY
    elif is_pooled(error):
        detail = POOLED
    elif state == _RIGHTS_STATE:
        detail = NO_RIGHTS
    elif not state or is_failure or is_retryable(error) or is_loss(error):
        detail = f"the database does not answer: {error_name(error)}"
    else:
        return error
    refusal = DatabaseUnavailable(detail)
    refusal.__cause__ = error
    return refusal


def error_name(error: BaseException) -> str:
    """The class of an error: clients must not see the hosts, statements and values in its message."""
    return type(error).__name__
