"""How long writes wait: for company, in turns of the event loop, and for their own turn.

A request that has arrived takes two turns to become a write. A lone one loses some ten microseconds by waiting for
them; of many that arrive together the first does not leave alone, with a commit that the others would wait for.
"""

from __future__ import annotations

from typing import Final

# Turns without a new write after which a group starts.
QUIET_TURNS: Final = 2
# Turns after which it starts all the same: a few hundred requests have been looked at by then, which takes as long as
# a commit.
TURNS_MAX: Final = 16
# The same in time, for turns of a busy process take milliseconds each: two or three commits.
GATHERING_SECONDS_MAX: Final = 0.01
# How long a write may wait for its turn; then its client has been waiting long enough.
WAITING_SECONDS_MAX: Final = 10.0
