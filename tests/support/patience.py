"""Limits of real time that a busy machine reaches before the work of a test is done.

A user waits seven seconds for the checks of the doctor, which then ends its process: that of the tests, where they call
it. PostgreSQL has three seconds to take a connection, another server one, readiness two and a half, a node five, and
the doctor's requests to a service six.
A child of the sandbox has five seconds to end. Tests marked `timed` show the seven seconds; tests of what does not end,
and of a limit, set their own.
"""

from __future__ import annotations

from functools import partial

from muniment.outgoing import Outgoing
from muniment.service.storage import probe
from muniment.service.storage.postgres import connection as postgres_connection

_MINUTE_S = 60.0
# What users have.
POSTGRES_CONNECT_S = postgres_connection.CONNECT_SECONDS_MAX


def wait_a_minute() -> None:
    """From now on the checks have a minute, unless they are told how long."""
    from muniment.guest import children  # noqa: PLC0415 - it takes the limit
    from muniment.operate.doctor import examination, front  # noqa: PLC0415 - it loads the sandbox
    from muniment.relayer.runner import pinning  # noqa: PLC0415 - likewise

    children._END_S = _MINUTE_S  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage] - likewise
    front.SECONDS_MAX = _MINUTE_S  # pyright: ignore[reportAttributeAccessIssue] - likewise
    pinning.CALL_SECONDS_MAX = _MINUTE_S  # pyright: ignore[reportAttributeAccessIssue] - likewise
    examination.examine = partial(examination.examine, seconds_max=_MINUTE_S)


def wait_for_servers() -> None:
    """From now on servers have a minute to take a connection of this process, and to show that they work."""
    probe.ANSWER_SECONDS_MAX = _MINUTE_S  # pyright: ignore[reportAttributeAccessIssue] - final but for busy machines
    postgres_connection.CONNECT_SECONDS_MAX = _MINUTE_S  # pyright: ignore[reportAttributeAccessIssue] - likewise
    Outgoing.__init__.__kwdefaults__ = {**(Outgoing.__init__.__kwdefaults__ or {}), "connect_seconds_max": _MINUTE_S}
