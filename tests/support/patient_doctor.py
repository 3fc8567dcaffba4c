"""Examinations of this process may take a minute, in place of the seven seconds that a user waits for at most.

On a busy machine the seconds may pass, and then the command ends its process, which may be that of the tests. The
seven seconds are shown by the test that is marked `timed`, in a process of its own.
"""

from __future__ import annotations

from functools import partial

from muniment.operate.doctor import examination


def wait_for_checks() -> None:
    """From now on `muniment doctor` and `examine` wait a minute for the checks, unless they are told how long."""
    examination.examine = partial(examination.examine, seconds_max=60.0)
