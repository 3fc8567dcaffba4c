"""How long a write waits for others to join its group; both engines use this.

A request takes two iterations of the event loop to become a write. Waiting for others costs a single write some ten
microseconds. Without it, the first of many writes would be committed alone, and the others would wait for that commit.
"""

from __future__ import annotations

from typing import Final

# Iterations of the event loop without a new write after which a group starts.
QUIET_ITERATIONS: Final = 2
# Iterations after which a group starts in any case. By then the loop has read a few hundred requests, which takes about
# as long as a commit.
ITERATIONS_MAX: Final = 16
# The same limit as a time, because each iteration of a busy process takes milliseconds: two or three commits.
GATHERING_SECONDS_MAX: Final = 0.01
