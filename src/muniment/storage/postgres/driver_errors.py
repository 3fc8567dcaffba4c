"""Says what an error of the driver means: is the connection lost, was anything changed, what does the caller get.

All modules of the engine that send statements use this. SQLSTATE codes:
https://www.postgresql.org/docs/current/errcodes-appendix.html
"""

from __future__ import annotations

from typing import Any, Final

import asyncpg

from muniment.errors import DatabaseUnavailable

# The driver raises errors of the server, its own errors, and errors of sockets (TimeoutError is an OSError).
DRIVER_ERRORS: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)

_LOST_CLASSES: Final = {"08", "25"}  # connection exception; invalid transaction state: a primary became a standby
_LOST_STATES: Final = {"57P01", "57P02", "57P03", "57P05"}  # shutdown, crash, starting, idle for too long
_FAILING_CLASSES: Final = {"53", "55", "57", "58", "XX"}  # resources, state, intervention, system, internal
# No such table, column or function: the migrations of this release are not applied yet.
_FAILING_STATES: Final = {"42P01", "42703", "42883"}
# The connection takes no writes: `default_transaction_read_only`, or the server is a standby.
_READ_ONLY_STATE: Final = "25006"
# A prepared statement is absent, has another form, or takes other values: another session prepared it. A pooler in
# transaction mode mixes sessions like this.
_POOLED_STATES: Final = {"26000", "42P05", "08P01"}
_RETRYABLE_CLASSES: Final = {"40"}  # deadlock, serialization failure
_RETRYABLE_STATES: Final = {"0A000"}  # "cached plan must not change result type": after a migration

READ_ONLY: Final = "the database is read-only"
POOLED: Final = (
    "a connection pooler gives the statements of one session to another, which has not prepared them: it must keep "
    "prepared statements, or work in its session mode"
)


def _state(error: BaseException) -> str | None:
    """The SQLSTATE of an error of the server, None for any other error."""
    state: Any = getattr(error, "sqlstate", None)
    return state if isinstance(error, asyncpg.PostgresError) and isinstance(state, str) else None


def is_loss(error: BaseException) -> bool:
    """Whether the connection cannot be used after this error."""
    state = _state(error)
    if state is None:  # of a socket, or a time-out: a late answer would be taken for that of the next statement
        return True
    return state[:2] in _LOST_CLASSES or state in _LOST_STATES


def is_refusal(error: BaseException) -> bool:
    """Whether a statement that was its own transaction changed nothing, by this error.

    An ERROR of the server says so. FATAL and PANIC end the session, perhaps after the commit was on disk. An error
    without a severity is the driver's: it could not send a value.
    """
    severity: Any = getattr(error, "severity_en", None)
    is_usable = is_read_only(error) or not is_loss(error)
    return _state(error) is not None and severity in {None, "ERROR"} and is_usable


def is_read_only(error: BaseException) -> bool:
    """Whether the connection takes no writes, so that the statement changed nothing."""
    return _state(error) == _READ_ONLY_STATE


def is_pooled(error: BaseException) -> bool:
    """Whether statements of this session reach another session. A pooler itself ends sessions by a FATAL 08P01."""
    severity: Any = getattr(error, "severity_en", None)
    return _state(error) in _POOLED_STATES and severity in {None, "ERROR"}


def is_retryable(error: BaseException) -> bool:
    """Whether the same transaction, begun again, may succeed."""
    state = _state(error) or ""
    return state[:2] in _RETRYABLE_CLASSES or state in _RETRYABLE_STATES


def for_caller(error: BaseException) -> BaseException:
    """The error that the caller of the engine gets: `DatabaseUnavailable` for a failure of the database.

    An error in a statement of a store is no failure of the database, and stays as it is.
    """
    state = _state(error) or ""
    if not isinstance(error, DRIVER_ERRORS):
        return error
    if is_read_only(error) or is_pooled(error):
        refusal = DatabaseUnavailable(READ_ONLY if is_read_only(error) else POOLED)
        refusal.__cause__ = error
        return refusal
    is_failure = state[:2] in _FAILING_CLASSES or state in _FAILING_STATES
    if state and not (is_failure or is_retryable(error) or is_loss(error)):
        return error
    refusal = DatabaseUnavailable(f"the database does not answer: {error_name(error)}")
    refusal.__cause__ = error
    return refusal


def error_name(error: BaseException) -> str:
    """An error in one word, without hosts, statements and values, which a client must not see."""
    return type(error).__name__
