"""Python runs this in the processes of a `Service` of the tests: event-loop lag does not count as overload.

The lag of an event loop depends on the load of the machine, and a refusal with 503 is an answer that every request
may get. Tests of load shedding use `Service(…, sheds=True)`.
"""

from __future__ import annotations

from contextlib import suppress

_NEVER_NS = 10**18

with suppress(ImportError):  # an interpreter without Muniment, or with one that has no such levels
    from muniment.service.running.limits import overload

    overload.LEVELS_NS = (_NEVER_NS,) * len(overload.LEVELS_NS)
