"""Settings and a gate without limits."""

from __future__ import annotations

import time
from typing import Any

from muniment.service.http.admission import Admission, ClientAddresses
from muniment.service.running.limits.limiter import Limiter
from muniment.service.running.limits.overload import Overload
from muniment.service.running.limits.policies import NAMES
from muniment.service.running.settings import Settings

OFF = {f"rate_limit_{name}": "off" for name in NAMES}


def unlimited_settings(**given: Any) -> Settings:
    """Settings without rate limits."""
    return Settings(**OFF, **given)


def unlimited() -> Admission:
    limiter = Limiter({}, time.monotonic_ns)
    return Admission(limiter, ClientAddresses([]), Overload(lambda: 0.5, 0))
