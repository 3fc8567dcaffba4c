"""What everything was measured with: the interpreter, how it was built, and how fast it runs a plain loop."""

from __future__ import annotations

import os
import platform
import re
import sys
import sysconfig
import time
from typing import Any

_LOOPS, _ROUNDS = 1_000_000, 7


def describe() -> dict[str, Any]:
    """The machine and its Python."""
    return {
        "interpreter": sys.executable,
        "python": platform.python_version(),
        "builtWith": built_with(),
        "calibrationMs": round(calibration_ms(), 1),
        "cores": len(os.sched_getaffinity(0)),
        "loadAtStart": round(os.getloadavg()[0], 2),
    }


def built_with() -> str:
    """The compiler's last -O, and whether the configuration asked for a build by profile (--enable-optimizations).

    A distribution may make such a build by other means (Debian does), which its configuration then does not say: the
    calibration loop tells.
    """
    levels = re.findall(r"-O\S*", str(sysconfig.get_config_var("PY_CFLAGS") or ""))
    configured = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    by_profile = "with" if "--enable-optimizations" in configured else "without"
    return f"{levels[-1] if levels else 'no -O'}, configured {by_profile} --enable-optimizations"


def calibration_ms() -> float:
    """CPU milliseconds of a million rounds of a loop that is nothing but Python; the lowest of seven."""
    return min(_loop_ms() for _ in range(_ROUNDS))


def _loop_ms() -> float:
    started, total = time.process_time_ns(), 0
    for number in range(_LOOPS):
        total = (total * 31 + number) & 0xFFFF
    return (time.process_time_ns() - started) / 1e6
