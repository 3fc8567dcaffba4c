"""`muniment`, except that a clock must be steady for STEADY_SECONDS only. It runs under libfaketime."""

from __future__ import annotations

import functools
import os
import select
import time

from muniment.__main__ import main
from muniment.service import app

app.build_context = functools.partial(app.build_context, steady_ms=int(float(os.environ["STEADY_SECONDS"]) * 1000))
# libfaketime moves the end of a sleep until a time of the monotonic clock too, which it was told to leave alone.
time.sleep = lambda seconds: select.select([], [], [], float(seconds)) and None

if __name__ == "__main__":
    main()
