"""Python runs this in the processes of a `Service` of the tests: none finds itself overloaded because it is late.

How late an event loop is depends on what else the machine does, and a refusal with 503 is an answer that every request
may get. Tests of other subjects do not ask for it; `Service(…, sheds=True)` is as users run it.
"""

from __future__ import annotations

from contextlib import suppress

_NEVER_NS = 10**18

with suppress(ImportError):  # an interpreter without Muniment, or with one that has no such levels
    from muniment.limits import overload

    overload.LEVELS_NS = (_NEVER_NS,) * len(overload.LEVELS_NS)
