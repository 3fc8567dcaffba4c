"""Run `muniment WORDS` where the name servers of `*.silent.test` never answer: `silent_names.py WORDS`.

A resolver waits for them twice for five seconds (resolv.conf(5)), which loopback cannot imitate.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from muniment.__main__ import main

_SECONDS = 10
_look_up = socket.getaddrinfo


def _wait(host: Any, *given: Any, **named: Any) -> Any:
    if isinstance(host, str) and host.endswith(".silent.test"):
        time.sleep(_SECONDS)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    return _look_up(host, *given, **named)


socket.getaddrinfo = _wait

if __name__ == "__main__":
    main()
