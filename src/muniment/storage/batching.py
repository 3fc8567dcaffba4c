"""How long a write waits for more writes to join its group; both engines use this.

A request takes two iterations of the event loop to become a write. A single write loses some ten microseconds by the
wait. Of many that arrive together, the first one would otherwise be committed alone, and the others wait for that.
"""

from __future__ import annotations

from typing import Final

# Iterations of the event loop without a new write after which a group starts.
QUIET_ITERATIONS: Final = 2
# Iterations after which a group starts in any case: the loop has read a few hundred requests by then, which takes as
# long as a commit.
ITERATIONS_MAX: Final = 16
# The same in time, because iterations of a busy process take milliseconds each: two or three commits.
GATHERING_SECONDS_MAX: Final = 0.01
