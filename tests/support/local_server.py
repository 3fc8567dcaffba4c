"""What HTTP servers of the tests are made of."""

from __future__ import annotations

import sys
from http.server import ThreadingHTTPServer
from typing import Any


class LocalServer(ThreadingHTTPServer):
    """A server in threads of this process. That a client has gone is no news: it would be in another test's output."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what went wrong, but for the end of a connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)
